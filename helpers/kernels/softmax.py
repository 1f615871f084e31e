"""Softmax over the last dimension, fused: each element is read once and written once.

Three kernels show three ideas, and a fourth is the first one tuned:

* `softmax_rows`: one program a row, the whole row in one block of registers;
* `softmax_online`: one program a row, the row walked in blocks with a running maximum and sum, then walked again;
* `softmax_split`: a row shared by several programs that keep their parts in registers and exchange one 64-bit word
  each, (maximum, sum), so that a row of any width is read once and the whole chip works on it;
* the tile kernel behind `softmax_forward`: `softmax_rows` with several short rows a program and, for widths between two
  powers of two, a second, shorter block instead of padding.

`plan_softmax` picks kernel and launch parameters from rows, columns and dtype; `softmax_forward` follows it. All compute in
float32, take any distance between rows (offsets are 64-bit), and give what torch gives for NaN, ±inf and rows of −inf.

Set `TRITON_INTERPRET=1` before this module is imported to run the kernels in Triton's interpreter, on CPU tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

INTERPRETED = bool(triton.knobs.runtime.interpret)
MAX_ROW_BLOCK = 1 << 17  # elements: the widest row that softmax_rows takes; above it the compiler only spills
REGISTERS_PER_SM = 1 << 16  # on every generation since 2014
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


# [kernel:softmax_rows_kernel]
@triton.jit
def softmax_rows_kernel(
    output_ptr, input_ptr, input_row_stride, output_row_stride, n_cols, BLOCK_SIZE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(input_ptr + row * input_row_stride + cols, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))  # padding became -inf, so exp makes it 0
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(output_ptr + row * output_row_stride + cols, y.to(output_ptr.dtype.element_ty), mask=mask)


# [/kernel:softmax_rows_kernel]


def softmax_rows(x: torch.Tensor, *, num_warps: int | None = None) -> torch.Tensor:
    """Softmax of each row of a 2-D tensor: one program a row, the row in one block."""
    require_rows(x, MAX_ROW_BLOCK)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    block_size = triton.next_power_of_2(x.shape[1])
    if x.numel():
        softmax_rows_kernel[(x.shape[0],)](
            y, x, x.stride(0), y.stride(0), x.shape[1],
            BLOCK_SIZE=block_size, num_warps=num_warps or max(1, min(16, block_size // 512)),
        )  # fmt: skip
    return y


# [kernel:softmax_online_kernel]
@triton.jit
def softmax_online_kernel(
    output_ptr, input_ptr, input_row_stride, output_row_stride, n_cols, BLOCK_SIZE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_row, y_row = input_ptr + row * input_row_stride, output_ptr + row * output_row_stride
    cols = tl.arange(0, BLOCK_SIZE)
    highest = tl.full(
        [BLOCK_SIZE], -float("inf"), tl.float32
    )  # every lane keeps a maximum and a sum of its own
    total = tl.zeros([BLOCK_SIZE], tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        x = tl.load(x_row + start + cols, mask=start + cols < n_cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(highest, x)
        shift = tl.where(new == -float("inf"), 0.0, new)  # a lane that has seen only -inf: -inf - -inf is NaN
        total = total * tl.exp(highest - shift) + tl.exp(x - shift)
        highest = new
    top = tl.max(highest, axis=0)
    total = tl.sum(tl.where(highest == -float("inf"), total, total * tl.exp(highest - top)), axis=0)
    for start in range(0, n_cols, BLOCK_SIZE):
        mask = start + cols < n_cols
        x = tl.load(x_row + start + cols, mask=mask).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_row + start + cols, y.to(output_ptr.dtype.element_ty), mask=mask)


# [/kernel:softmax_online_kernel]


def softmax_online(x: torch.Tensor, *, block_size: int = 4096, num_warps: int = 8) -> torch.Tensor:
    """Softmax of each row of a 2-D tensor of any width: one program a row, two walks over it."""
    require_rows(x)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        softmax_online_kernel[(x.shape[0],)](
            y, x, x.stride(0), y.stride(0), x.shape[1], BLOCK_SIZE=block_size, num_warps=num_warps
        )
    return y


@triton.jit
def again(x, REPACK: tl.constexpr):
    """`x`, as a value that the compiler cannot trace back to its origin.

    It keeps what was computed from `x` earlier from being held in registers until now: of a 16-bit row, 16 bits an element
    are held, and widening and exp are done again.
    """
    if REPACK:
        x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2)
    return x


# [kernel:softmax_split_kernel]
@triton.jit
def softmax_split_kernel(
    output_ptr, input_ptr, input_row_stride, output_row_stride, n_cols, words_ptr,
    PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr, BLOCK_SIZE: tl.constexpr, EVEN: tl.constexpr,
    REPACK: tl.constexpr, PUBLISH_ONLY: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    part = tl.program_id(0) % PARTS
    cols = part * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x_ptrs = input_ptr + row * input_row_stride + cols
    if EVEN:
        raw = tl.load(x_ptrs, eviction_policy="evict_last")
    else:
        raw = tl.load(x_ptrs, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
    # this part's maximum and sum, published as one 64-bit word: data and flag in one store (0 is no possible word)
    highest = tl.max(raw.to(tl.float32), axis=0)
    shift = tl.where(highest == -float("inf"), 0.0, highest)
    numerator = tl.exp(again(raw, REPACK).to(tl.float32) - shift)
    total = tl.sum(numerator, axis=0)
    word = (highest.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (
        total.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    )
    tl.atomic_xchg(words_ptr + row * PARTS + part, word, sem="relaxed")
    if PUBLISH_ONLY:
        return
    # wait for the row's other parts, which run at the same time, and merge
    parts = tl.arange(0, PARTS_BLOCK)
    word_ptrs = words_ptr + row * PARTS + parts
    words = tl.load(word_ptrs, mask=parts < PARTS, other=-1, volatile=True)
    while tl.min((words != 0).to(tl.int32), axis=0) == 0:
        words = tl.load(word_ptrs, mask=parts < PARTS, other=-1, volatile=True)
    maxima = tl.where(parts < PARTS, (words >> 32).to(tl.int32).to(tl.float32, bitcast=True), -float("inf"))
    totals = tl.where(parts < PARTS, words.to(tl.int32).to(tl.float32, bitcast=True), 0.0)
    top = tl.max(maxima, axis=0)
    whole = tl.sum(tl.where(totals == 0.0, 0.0, totals * tl.exp(maxima - top)), axis=0)
    if REPACK:
        y = tl.exp(again(raw, REPACK).to(tl.float32) - top) * (1.0 / whole)
    else:
        y = numerator * (tl.where(total == 0.0, 0.0, tl.exp(highest - top)) / whole)
    y_ptrs = output_ptr + row * output_row_stride + cols
    if EVEN:
        tl.store(y_ptrs, y.to(output_ptr.dtype.element_ty))
    else:
        tl.store(y_ptrs, y.to(output_ptr.dtype.element_ty), mask=cols < n_cols)


# [/kernel:softmax_split_kernel]


def softmax_split(x: torch.Tensor, *, block_size: int = 8192, num_warps: int = 4) -> torch.Tensor:
    """Softmax of each row of a 2-D tensor: a row is shared by ceil(n_cols / block_size) programs that wait for each other.

    Run one such softmax at a time: see `launch_split`.

    Raises:
        ValueError: more programs a row than surely fit the GPU at once.
    """
    require_rows(x)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        launch_split(x, y, block_size, num_warps)
    return y


def launch_split(
    x: torch.Tensor,
    y: torch.Tensor,
    block_size: int,
    num_warps: int,
    repack: bool = False,
    max_registers: int | None = None,
) -> None:
    """Launch the split kernel on 2-D `x` and `y` with unit column stride.

    A row's programs have neighbouring numbers. Where the hardware starts programs in the order of their numbers, a program
    waits only for programs that run or are next to run. CUDA does not promise that order; CUB's scan, which PyTorch's
    cumsum is made of, relies on it too. And a row's programs must fit the GPU at once: `max_parts` bounds them.

    The bound counts on every other kernel to end by itself and give its place back. So run one such softmax at a time: two
    streams that run wide ones may hold each other's places, and then both wait for ever.

    In the interpreter programs run one after the other, so nobody can wait: the kernel is launched twice, and the first
    time it only publishes.
    """
    n_rows, n_cols = x.shape
    parts = triton.cdiv(n_cols, block_size)
    fit = max_parts(x.device, num_warps, max_registers)
    if parts > fit:
        raise ValueError(
            f"A row of {n_cols:,} columns would need {parts:,} programs of {block_size:,} at once, and only {fit:,} of "
            f"{num_warps} warps surely fit; use a larger block_size, fewer warps or softmax_online."
        )
    words = torch.zeros(n_rows * parts, dtype=torch.int64, device=x.device)
    for publish_only in (True, False) if INTERPRETED else (False,):
        softmax_split_kernel[(n_rows * parts,)](
            y, x, x.stride(0), y.stride(0), n_cols, words,
            PARTS=parts, PARTS_BLOCK=triton.next_power_of_2(parts), BLOCK_SIZE=block_size, EVEN=n_cols % block_size == 0,
            REPACK=repack and not INTERPRETED, PUBLISH_ONLY=publish_only, num_warps=num_warps,
            **({"maxnreg": max_registers} if max_registers else {}),
        )  # fmt: skip


@triton.jit
def softmax_tiles_kernel(
    output_ptr, input_ptr, input_row_stride, output_row_stride, n_rows, n_cols,
    ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK_SIZE)[None, :]
    mask = (row < n_rows) & (cols < n_cols)
    x_row, y_row = input_ptr + row * input_row_stride, output_ptr + row * output_row_stride
    x = tl.load(x_row + cols, mask=mask, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
    highest = tl.max(x, axis=1)
    if TAIL:  # the columns past the block, in a block of their own
        tail_cols = BLOCK_SIZE + tl.arange(0, TAIL)[None, :]
        tail_mask = (row < n_rows) & (tail_cols < n_cols)
        tail = tl.load(
            x_row + tail_cols, mask=tail_mask, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        highest = tl.maximum(highest, tl.max(tail, axis=1))
    numerator = tl.exp(x - highest[:, None])
    total = tl.sum(numerator, axis=1)
    if TAIL:
        tail = tl.exp(tail - highest[:, None])
        total += tl.sum(tail, axis=1)
    scale = (1.0 / total)[:, None]
    tl.store(y_row + cols, (numerator * scale).to(output_ptr.dtype.element_ty), mask=mask)
    if TAIL:
        tl.store(y_row + tail_cols, (tail * scale).to(output_ptr.dtype.element_ty), mask=tail_mask)


@dataclass(frozen=True)
class SoftmaxPlan:
    """Which kernel a softmax of `n_rows` × `n_cols` gets, and its launch parameters.

    Attributes:
        kernel: "tiles" (whole rows in registers), "split" (a row shared by programs) or "online" (two walks).
        rows: rows a program takes ("tiles").
        block_size: columns of the block a program holds; a part's width ("split"); a step's width ("online").
        tail: columns of the second block, 0 for none ("tiles").
        num_warps: warps a program has.
        repack: hold 16-bit elements as they came and compute exp twice ("split").
        max_registers: the most registers a thread may use; None leaves it to the compiler.
    """

    kernel: str
    n_rows: int
    n_cols: int
    block_size: int
    num_warps: int
    rows: int = 1
    tail: int = 0
    repack: bool = False
    max_registers: int | None = None

    @property
    def n_programs(self) -> int:
        """Programs launched."""
        if self.kernel == "split":
            return self.n_rows * triton.cdiv(self.n_cols, self.block_size)
        return triton.cdiv(self.n_rows, self.rows)

    def __repr__(self) -> str:
        each = {
            "tiles": f"{self.rows} row{'s' * (self.rows > 1)} a program in a block of {self.block_size:,}"
            + (f" and one of {self.tail:,}" if self.tail else ""),
            "split": f"a row shared by {triton.cdiv(self.n_cols, self.block_size)} programs of {self.block_size:,}",
            "online": f"1 row a program, two walks in steps of {self.block_size:,}",
        }[self.kernel]
        return f"{self.n_rows:,} × {self.n_cols:,}: {each}, {self.num_warps} warp{'s' * (self.num_warps > 1)}, {self.n_programs:,} programs"


def max_parts(device: torch.device | None, num_warps: int, max_registers: int | None = None) -> int:
    """How many programs surely fit the GPU at once, so that as many may share a row and wait for each other.

    Threads and registers decide. How many registers the compiler will take is not known before it has run, so each thread
    counts with the most that it can have: `max_registers`, else 255, and no more than leave room for one program.

    Args:
        device: the GPU; an H100 where there is none.
        num_warps: warps a program has; fewer than 4 count as 4, one for each of a multiprocessor's quarters.
        max_registers: the bound that the launch sets on a thread's registers; None where it sets none.
    """
    n_sms, threads_per_sm = multiprocessors(device)
    threads = 32 * max(num_warps, 4)
    registers = min(max_registers or 255, REGISTERS_PER_SM // threads)
    registers = -(-registers // 8) * 8  # handed out in eights
    return n_sms * max(1, min(threads_per_sm // threads, REGISTERS_PER_SM // (threads * registers)))


def multiprocessors(device: torch.device | None) -> tuple[int, int]:
    """Streaming multiprocessors of `device`, and the threads that one holds; an H100's where there is no GPU."""
    if INTERPRETED or (device is not None and device.type != "cuda") or not torch.cuda.is_available():
        return 132, 2048
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, properties.max_threads_per_multi_processor


def plan_softmax(
    n_rows: int, n_cols: int, dtype: torch.dtype, *, device: torch.device | None = None
) -> SoftmaxPlan:
    """Pick the kernel and its launch parameters for a softmax over rows.

    Args:
        n_rows, n_cols: the shape.
        dtype: of input and output: float32, float16 or bfloat16.
        device: whose streaming multiprocessors count; an H100's 132 where there is no GPU.
    """
    half = dtype.itemsize == 2
    if n_cols <= 16384:
        block = triton.next_power_of_2(max(n_cols, 16))
        if half and 8192 < n_cols <= 12288:  # padding would take registers that 16-bit rows need
            tail = triton.next_power_of_2(n_cols - 8192)
            few = 48 if tail <= 1024 else 64
            return SoftmaxPlan("tiles", n_rows, n_cols, 8192, 8, tail=tail, max_registers=few)
        # 8,192 elements a program, as long as four programs a multiprocessor are left
        rows = max(1, min(8192 // block, 16 if half else 32, n_rows // (4 * multiprocessors(device)[0])))
        rows = 1 << (rows.bit_length() - 1)
        per_warp = 512 if half and rows * block >= 8192 else 256
        return SoftmaxPlan("tiles", n_rows, n_cols, block, max(1, min(32, rows * block // per_warp)), rows)
    # at most 32 parts where that is possible: a word for each lane of a warp
    block = max(2048, min(8192, triton.next_power_of_2(triton.cdiv(n_cols, 32)))) if half else 8192
    repack = half and triton.cdiv(n_cols, block) > 32
    few = None
    while triton.cdiv(n_cols, block) > max_parts(device, block // 2048, few) and block < 16384:
        block *= 2
        if block == 16384:
            few = 128  # the compiler takes about 100 of itself; with 128 two programs of 8 warps surely fit
    if triton.cdiv(n_cols, block) > max_parts(device, block // 2048, few):
        return SoftmaxPlan("online", n_rows, n_cols, block_size=4096, num_warps=8)
    return SoftmaxPlan("split", n_rows, n_cols, block, block // 2048, repack=repack, max_registers=few)


def require_rows(x: torch.Tensor, max_cols: int | None = None) -> None:
    """Raise a ValueError unless `x` is 2-D with neighbouring columns, of a float dtype that softmax takes."""
    if x.dtype not in _DTYPES:
        raise ValueError(
            f"x is {x.dtype}; softmax takes float32, float16 and bfloat16: convert it, as x.float()."
        )
    if x.ndim != 2 or (x.shape[1] > 1 and x.stride(1) != 1):
        raise ValueError(
            f"x has shape {tuple(x.shape)} and strides {x.stride()}, but a kernel that walks rows needs a 2-D tensor with "
            "column stride 1; reshape it or pass a .contiguous() copy."
        )
    if max_cols is not None and x.shape[1] > max_cols:
        raise ValueError(
            f"A row of {x.shape[1]:,} columns does not fit one block of {max_cols:,} elements; use softmax_online or softmax_split."
        )


def softmax_forward(x: torch.Tensor, out: torch.Tensor, plan: SoftmaxPlan | None = None) -> torch.Tensor:
    """Write the softmax of `x`'s rows into `out`, as `plan` says (by default `plan_softmax`'s), and return `out`.

    Args:
        x: (n_rows, n_cols) float32, float16 or bfloat16 with column stride 1; rows any distance apart.
        out: the same shape and dtype, column stride 1.
        plan: kernel and launch parameters.
    """
    if not x.numel():
        return out
    n_rows, n_cols = x.shape
    plan = plan or plan_softmax(n_rows, n_cols, x.dtype, device=x.device)
    limits = {"maxnreg": plan.max_registers} if plan.max_registers else {}
    if plan.kernel == "split":
        launch_split(x, out, plan.block_size, plan.num_warps, plan.repack, plan.max_registers)
    elif plan.kernel == "online":
        softmax_online_kernel[(n_rows,)](
            out, x, x.stride(0), out.stride(0), n_cols, BLOCK_SIZE=plan.block_size, num_warps=plan.num_warps
        )
    else:
        softmax_tiles_kernel[(plan.n_programs,)](
            out, x, x.stride(0), out.stride(0), n_rows, n_cols,
            ROWS=plan.rows, BLOCK_SIZE=plan.block_size, TAIL=plan.tail,
            num_warps=plan.num_warps, **limits,
        )  # fmt: skip
    return out
