"""Softmax over the last dimension, fused: each element is read once and written once.

Three kernels show three ideas, and a fourth is the first one for short rows:

* `softmax_rows`: one program a row, the whole row in one block of registers;
* `softmax_online`: one program a row, the row walked in blocks with a running maximum and sum, then walked again;
* `softmax_split`: a row shared by several programs that keep their parts in registers and exchange one 64-bit word
  each, (maximum, sum), so that a row of any width is read once and the whole chip works on it. A part is held in chunks of
  16 bytes a thread, so no width is padded to a power of two; with one part it is the kernel for a row that one program holds;
* the tile kernel behind `softmax_forward`: `softmax_rows` with several short rows a program.

`plan_softmax` picks kernel and launch parameters from rows, columns and dtype by a rule; `softmax_forward` follows it. All
compute in float32, take any distance between rows (offsets are 64-bit), and give what torch gives for NaN, ±inf and rows
of −inf.

Set `TRITON_INTERPRET=1` before this module is imported to run the kernels in Triton's interpreter, on CPU tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from helpers.kernels.chip import REGISTERS_PER_SM, chip_of

INTERPRETED = bool(triton.knobs.runtime.interpret)
MAX_ROW_BLOCK = 1 << 17  # elements: the widest row that softmax_rows takes; above it the compiler only spills
MIN_BYTES = 2 << 10  # of a program, so that 32 of them keep an SM's loads busy
TILE_BYTES = 4 << 10  # of a row: above it, a row is held in chunks
WHOLE_BYTES = 64 << 10  # of a row: above it, it is shared
PART_CHUNKS = 16  # of 16 bytes a thread: what a program of 4 warps holds of a shared row, 32 KB
PART_REGISTERS = 96  # of a thread then: 5 programs fit an SM
MANY_BYTES = 128 << 10  # of a 16-bit row: above it, a program holds less of it, 24 KB
MANY_CHUNKS = 12
MANY_REGISTERS = 72  # 7 programs fit an SM
SECTOR_WORDS = 4  # 64-bit words in a sector of the L2
LOG2_E = tl.constexpr(1.4426950408889634)
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
def exp(x):
    """e to the x in two instructions. `tl.exp` takes five, to keep results below 2^-126, which are 0 here."""
    return tl.exp2(x * LOG2_E)


@triton.jit
def again(x, REPACK: tl.constexpr):
    """`x`, as a value that the compiler cannot trace back to its origin.

    It keeps what was computed from `x` earlier from being held in registers until now: of a 16-bit row, 16 bits an element
    are held, and widening and exp are done again.
    """
    if REPACK:
        x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2)
    return x


@triton.jit
def exp2_of(x, shift):
    """2 to the (x · log2 e − shift), in two instructions; `shift` has been multiplied by log2 e before."""
    return tl.exp2(tl.fma(x, tl.full(x.shape, LOG2_E, tl.float32), tl.zeros(x.shape, tl.float32) - shift))


@triton.jit
def nap(like):
    """Sleep for about a microsecond: who looks all the time is in the way of those who are still to publish."""
    ns = tl.full(like.shape, 1000, tl.int32)
    tl.inline_asm_elementwise(
        "nanosleep.u32 $1; mov.u32 $0, $1;", "=r,r", [ns], dtype=tl.int32, is_pure=False, pack=1
    )


# [kernel:softmax_split_kernel]
@triton.jit
def softmax_split_kernel(
    output_ptr, input_ptr, input_row_stride, output_row_stride, n_cols, words_ptr,
    PARTS: tl.constexpr, PARTS_BLOCK: tl.constexpr, WORDS_STRIDE: tl.constexpr, CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr, ALIGN: tl.constexpr, REPACK: tl.constexpr, PUBLISH_ONLY: tl.constexpr,
):  # fmt: skip
    # now the compiler knows that these are multiples, and loads 16 bytes at once
    input_row_stride = input_row_stride // ALIGN * ALIGN
    output_row_stride, n_cols = output_row_stride // ALIGN * ALIGN, n_cols // ALIGN * ALIGN
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    part = tl.program_id(0) % PARTS
    x_row, y_row = input_ptr + row * input_row_stride, output_ptr + row * output_row_stride
    first = part * (CHUNKS * CHUNK) + tl.arange(0, CHUNK)
    raw = ()  # this program's part of the row, in chunks: all of them are on their way before the first is used
    for i in tl.static_range(CHUNKS):
        cols = first + i * CHUNK
        if PARTS == 1 and i < CHUNKS - 1:
            raw += (tl.load(x_row + cols, eviction_policy="evict_last"),)
        else:
            raw += (
                tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"),
            )
    # this part's maximum, times log2 e, and sum: each lane has its own until the end, so warps meet twice, whatever the width
    lanes = raw[0].to(tl.float32)
    for i in tl.static_range(1, CHUNKS):
        lanes = tl.maximum(lanes, raw[i].to(tl.float32))
    highest = tl.max(lanes, axis=0) * LOG2_E
    shift = tl.where(highest == -float("inf"), 0.0, highest) if PARTS > 1 else highest
    lanes = tl.zeros([CHUNK], tl.float32)
    numerators = ()
    for i in tl.static_range(CHUNKS):
        numerators += (exp2_of(again(raw[i], REPACK).to(tl.float32), shift),)
        lanes += numerators[i]
    total = tl.sum(lanes, axis=0)
    top, whole = highest, total
    if PARTS > 1:
        # published as one 64-bit word: data and flag in one store (0 is no possible word)
        word = (highest.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (
            total.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
        )
        tl.atomic_xchg(words_ptr + row * WORDS_STRIDE + part, word, sem="relaxed")
        if PUBLISH_ONLY:
            return
        # wait for the row's other parts, which run at the same time, and merge
        parts = tl.arange(0, PARTS_BLOCK)
        word_ptrs = words_ptr + row * WORDS_STRIDE + parts
        words = tl.load(word_ptrs, mask=parts < PARTS, other=-1, volatile=True)
        while tl.min((words != 0).to(tl.int32), axis=0) == 0:
            nap(parts)
            words = tl.load(word_ptrs, mask=parts < PARTS, other=-1, volatile=True)
        maxima = tl.where(
            parts < PARTS, (words >> 32).to(tl.int32).to(tl.float32, bitcast=True), -float("inf")
        )
        totals = tl.where(parts < PARTS, words.to(tl.int32).to(tl.float32, bitcast=True), 0.0)
        top = tl.max(maxima, axis=0)
        whole = tl.sum(tl.where(totals == 0.0, 0.0, totals * tl.exp2(maxima - top)), axis=0)
    scale, exponent = 1.0 / whole, tl.log2(whole)
    if PARTS > 1:
        scale *= tl.where(total == 0.0, 0.0, tl.exp2(highest - top))
    for i in tl.static_range(CHUNKS):
        cols = first + i * CHUNK
        y = numerators[i] * scale
        if REPACK:  # once more from the 16 bits, and divided in the exponent
            y = exp2_of(again(raw[i], REPACK).to(tl.float32), top + exponent)
        y = y.to(output_ptr.dtype.element_ty)
        if PARTS == 1 and i < CHUNKS - 1:
            tl.store(y_row + cols, y)
        else:
            tl.store(y_row + cols, y, mask=cols < n_cols)


# [/kernel:softmax_split_kernel]


@triton.jit
def softmax_tiles_kernel(
    output_ptr, input_ptr, input_row_stride, output_row_stride, n_rows, n_cols,
    ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    input_row_stride = input_row_stride // ALIGN * ALIGN
    output_row_stride, n_cols = output_row_stride // ALIGN * ALIGN, n_cols // ALIGN * ALIGN
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK_SIZE)[None, :]
    mask = (row < n_rows) & (cols < n_cols)
    x_ptrs = input_ptr + row * input_row_stride + cols
    x = tl.load(x_ptrs, mask=mask, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
    numerator = exp(x - tl.max(x, axis=1)[:, None])
    y = numerator * (1.0 / tl.sum(numerator, axis=1))[:, None]
    tl.store(output_ptr + row * output_row_stride + cols, y.to(output_ptr.dtype.element_ty), mask=mask)


def softmax_split(x: torch.Tensor, *, block_size: int = 8192, num_warps: int = 4) -> torch.Tensor:
    """Softmax of each row of a 2-D tensor: a row is shared by ceil(n_cols / block_size) programs that wait for each other.

    Run one such softmax at a time: see `launch_split`.

    Raises:
        ValueError: more programs a row than surely fit the GPU at once.
    """
    require_rows(x)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        launch_split(x, y, plan_parts(x.shape, x.dtype, block_size, num_warps))
    return y


def launch_split(x: torch.Tensor, y: torch.Tensor, plan: SoftmaxPlan) -> None:
    """Launch the split kernel on 2-D `x` and `y` with unit column stride.

    A row's programs have neighbouring numbers. Where the hardware starts programs in the order of their numbers, a program
    waits only for programs that run or are next to run. CUDA does not promise that order; CUB's scan, which PyTorch's
    cumsum of a vector is made of, relies on it too. And a row's programs must fit the GPU at once: `max_parts` bounds them.

    The bound counts on every other kernel to end by itself and give its place back. So run one such softmax at a time: two
    streams that run wide ones may hold each other's places, and then both wait for ever. A plan with one part waits for
    nobody.

    In the interpreter programs run one after the other, so nobody can wait: the kernel is launched twice, and the first
    time it only publishes.

    Raises:
        ValueError: more programs a row than surely fit the GPU at once.
    """
    parts = plan.parts
    fit = max_parts(x.device, plan.num_warps, plan.max_registers)
    if parts > fit:
        raise ValueError(
            f"A row of {plan.n_cols:,} columns would need {parts:,} programs of {plan.part_size:,} at once, and only {fit:,} "
            f"of {plan.num_warps} warps surely fit; use a larger block_size, fewer warps or softmax_online."
        )
    words = x  # nothing to exchange
    if parts > 1:
        words = torch.zeros(plan.n_rows * plan.words_stride, dtype=torch.int64, device=x.device)
    repack = x.element_size() == 2 and plan.block_size >= 64 * plan.num_warps and not INTERPRETED  # by pairs
    for publish_only in (True, False) if INTERPRETED and parts > 1 else (False,):
        softmax_split_kernel[(plan.n_programs,)](
            y, x, x.stride(0), y.stride(0), plan.n_cols, words,
            PARTS=parts, PARTS_BLOCK=plan.words_block, WORDS_STRIDE=plan.words_stride, CHUNK=plan.block_size,
            CHUNKS=plan.chunks, ALIGN=alignment(x, y), REPACK=repack, PUBLISH_ONLY=publish_only,
            num_warps=plan.num_warps, maxnreg=plan.max_registers,
        )  # fmt: skip


def alignment(x: torch.Tensor, y: torch.Tensor) -> int:
    """Elements that 16 bytes hold, where all rows of `x` and `y` begin and end at such a distance; 1 otherwise.

    Triton finds out by itself only where sizes and strides are multiples of 16.
    """
    n = 16 // x.element_size()
    return n if all(size % n == 0 for size in (x.shape[1], x.stride(0), y.stride(0))) else 1


@dataclass(frozen=True)
class SoftmaxPlan:
    """Which kernel a softmax of `n_rows` × `n_cols` gets, and its launch parameters.

    Attributes:
        kernel: "tiles" (several rows a program), "split" (a row in chunks, shared by `parts` programs or whole in one) or
            "online" (two walks).
        block_size: columns of the block that holds a row ("tiles"), of a chunk ("split"), of a step ("online").
        num_warps: warps a program has.
        rows: rows a program takes ("tiles").
        parts: programs that share a row ("split").
        chunks: chunks of a part ("split").
        max_registers: the most registers a thread may use; None leaves it to the compiler.
    """

    kernel: str
    n_rows: int
    n_cols: int
    block_size: int
    num_warps: int
    rows: int = 1
    parts: int = 1
    chunks: int = 1
    max_registers: int | None = None

    @property
    def part_size(self) -> int:
        """Columns that a program holds of a row."""
        return self.block_size * self.chunks

    @property
    def words_stride(self) -> int:
        """64-bit words from a row's first to the next row's: no sector of the L2 has words of two rows."""
        return max(SECTOR_WORDS, triton.next_power_of_2(self.parts))

    @property
    def words_block(self) -> int:
        """Lanes that look at a row's words.

        One more than the parts at least, so that the load has a mask: without one the compiler spills. Where a warp has too
        few, the lanes of all warps, so that no two look at the same word.
        """
        block = triton.next_power_of_2(self.parts + 1)
        return block if block <= 32 else max(block, 32 * self.num_warps)

    @property
    def n_programs(self) -> int:
        """Programs launched."""
        return triton.cdiv(self.n_rows, self.rows) * self.parts

    def __repr__(self) -> str:
        chunks = f"{self.chunks} chunk{'s' * (self.chunks > 1)} of {self.block_size:,}"
        each = {
            "tiles": f"{self.rows} row{'s' * (self.rows > 1)} a program in a block of {self.block_size:,}",
            "split": f"a row shared by {self.parts} programs, {chunks} each"
            if self.parts > 1
            else f"1 row a program in {chunks}",
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
    chip = chip_of(device)
    threads = 32 * max(num_warps, 4)
    registers = min(max_registers or 255, REGISTERS_PER_SM // threads)
    registers = -(-registers // 8) * 8  # handed out in eights
    return chip.n_sms * max(1, min(chip.threads_per_sm // threads, REGISTERS_PER_SM // (threads * registers)))


def plan_softmax(
    n_rows: int, n_cols: int, dtype: torch.dtype, *, device: torch.device | None = None
) -> SoftmaxPlan:
    """Pick the kernel and its launch parameters for a softmax over rows, by a rule in bytes.

    A memory is busy while enough bytes are on their way. An SM takes 32 programs at most, so a program of less than 2 KB
    leaves it idle: short rows share a program, 32 bytes a thread. A longer row gets a program of its own, 64 bytes a thread
    or more and up to 8 warps, so that several fit an SM and one loads while another computes. Above 64 KB too few would
    fit: the row is shared by programs of 4 warps that hold 32 KB each. A row of many parts waits longer for its last one,
    and a 16-bit row has twice the arithmetic for the same bytes: above 128 KB its programs hold 24 KB, so that more of them
    work while others wait.

    Args:
        n_rows, n_cols: the shape.
        dtype: of input and output: float32, float16 or bfloat16.
        device: whose streaming multiprocessors count; an H100's 132 where there is no GPU.
    """
    shape, row_bytes = (n_rows, n_cols), n_cols * dtype.itemsize
    block = triton.next_power_of_2(max(n_cols, 16))
    block_bytes = block * dtype.itemsize
    if block_bytes <= TILE_BYTES:
        rows = max(1, min(MIN_BYTES // block_bytes, n_rows // chip_of(device).n_sms))
        rows = 1 << (rows.bit_length() - 1)
        return SoftmaxPlan("tiles", *shape, block, max(1, rows * block_bytes // (32 * 32)), rows)
    if row_bytes <= WHOLE_BYTES:
        num_warps = min(8, 1 << (row_bytes // (32 * 64)).bit_length() - 1)
        return plan_parts(shape, dtype, n_cols, num_warps)
    many = dtype.itemsize == 2 and row_bytes > MANY_BYTES
    chunks, registers = (MANY_CHUNKS, MANY_REGISTERS) if many else (PART_CHUNKS, PART_REGISTERS)
    plan = plan_parts(shape, dtype, chunks * 16 * 128 // dtype.itemsize, 4, registers)
    if plan.parts > max_parts(device, plan.num_warps, plan.max_registers):
        return SoftmaxPlan("online", *shape, block_size=4096, num_warps=8)
    return plan


def plan_parts(
    shape: tuple[int, int],
    dtype: torch.dtype,
    part_size: int,
    num_warps: int,
    max_registers: int = PART_REGISTERS,
) -> SoftmaxPlan:
    """The plan that shares a row evenly among programs of at most about `part_size` columns, 16 bytes a thread a chunk.

    `max_registers` bounds a thread's registers where the row is shared and a part is no larger than 32 KB.
    """
    n_rows, n_cols = shape
    chunk = min(16 // dtype.itemsize * 32 * num_warps, triton.next_power_of_2(part_size))
    chunks = triton.cdiv(triton.cdiv(n_cols, triton.cdiv(n_cols, part_size)), chunk)
    parts = triton.cdiv(n_cols, chunks * chunk)
    return SoftmaxPlan(
        "split", n_rows, n_cols, chunk, num_warps, parts=parts, chunks=chunks,
        max_registers=max_registers if parts > 1 and chunks <= PART_CHUNKS else None,
    )  # fmt: skip


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
    if plan.kernel == "split":
        launch_split(x, out, plan)
    elif plan.kernel == "online":
        softmax_online_kernel[(n_rows,)](
            out, x, x.stride(0), out.stride(0), n_cols, BLOCK_SIZE=plan.block_size, num_warps=plan.num_warps
        )
    else:
        softmax_tiles_kernel[(plan.n_programs,)](
            out, x, x.stride(0), out.stride(0), n_rows, n_cols,
            ROWS=plan.rows, BLOCK_SIZE=plan.block_size, ALIGN=alignment(x, out), num_warps=plan.num_warps,
        )  # fmt: skip
    return out
