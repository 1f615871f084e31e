"""Fused softmax over the last dimension: each element is read once and written once.

Three kernels show three ideas, and a fourth applies the first idea to short rows:

* `softmax_rows`: one program per row, with the whole row in one block of registers.
* `softmax_online`: one program per row. It loops over the blocks of the row with a running maximum and sum,
  and then loops over them again to write the result.
* `softmax_split`: several programs share a row. Each one keeps its part in registers, and they exchange one
  64-bit word each, (maximum, sum). So a row of any width is read only once, and the whole GPU works on it. A
  part consists of chunks of 16 bytes per thread, so no width is padded to a power of two. With a single part,
  this is also the kernel for a row that fits in one program.
* The tile kernel behind `softmax_forward`: `softmax_rows` with several short rows per program.

`plan_softmax` chooses the kernel and its launch parameters from the rows, columns and dtype, and
`softmax_forward` follows that plan. All kernels compute in float32, support any row stride (offsets are
64-bit), and agree with PyTorch for NaN, ±inf and rows of −inf.

Set `TRITON_INTERPRET=1` before you import this module to run the kernels in Triton's interpreter, on CPU
tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from helpers.kernels.chip import REGISTERS_PER_SM, chip_of

INTERPRETED = bool(triton.knobs.runtime.interpret)
MAX_ROW_BLOCK = 1 << 17  # elements: the widest row for softmax_rows; beyond that, the compiler spills
MIN_BYTES = 2 << 10  # per program, so that 32 of them keep an SM's loads busy
TILE_BYTES = 4 << 10  # per row: larger rows are divided into chunks
WHOLE_BYTES = 64 << 10  # per row: several programs share a larger row
PART_CHUNKS = 16  # of 16 bytes per thread: a program of 4 warps holds 32 KB of a shared row
PART_REGISTERS = 96  # per thread in that case, so 5 programs fit on an SM
MANY_BYTES = 128 << 10  # of a 16-bit row: for larger ones, a program only holds 24 KB
MANY_CHUNKS = 12
MANY_REGISTERS = 72  # so 7 programs fit on an SM
SECTOR_WORDS = 4  # 64-bit words per sector of the L2
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
    """Returns the softmax of each row of a 2-D tensor: one program per row, the whole row in one block."""
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
    highest = tl.full([BLOCK_SIZE], -float("inf"), tl.float32)  # every position has its own maximum and sum
    total = tl.zeros([BLOCK_SIZE], tl.float32)
    for start in range(0, n_cols, BLOCK_SIZE):
        x = tl.load(x_row + start + cols, mask=start + cols < n_cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(highest, x)
        shift = tl.where(new == -float("inf"), 0.0, new)  # if it has seen only -inf: -inf - -inf is NaN
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
    """Returns the softmax of each row of a 2-D tensor of any width: one program per row, which reads the row
    twice.
    """
    require_rows(x)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        softmax_online_kernel[(x.shape[0],)](
            y, x, x.stride(0), y.stride(0), x.shape[1], BLOCK_SIZE=block_size, num_warps=num_warps
        )
    return y


@triton.jit
def exp(x):
    """e to the x in two instructions.

    `tl.exp` takes five, because it also computes results below 2^-126, which are 0 here.
    """
    return tl.exp2(x * LOG2_E)


@triton.jit
def again(x, REPACK: tl.constexpr):
    """Returns `x` as a value that the compiler cannot trace back to its origin.

    This keeps the compiler from holding results computed from `x` in registers until now. For a 16-bit row,
    only 16 bits per element stay in registers, and the conversion to float32 and the exponential are
    repeated.
    """
    if REPACK:
        x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2)
    return x


@triton.jit
def exp2_of(x, shift):
    """2 to the (x · log2 e − shift), in two instructions; the caller has already multiplied `shift` by log2
    e.
    """
    return tl.exp2(tl.fma(x, tl.full(x.shape, LOG2_E, tl.float32), tl.zeros(x.shape, tl.float32) - shift))


@triton.jit
def nap(like):
    """Sleep for about a microsecond, because constant polling slows down the programs that have yet to
    publish.
    """
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
    # this shows the compiler that these are multiples of ALIGN, so it loads 16 bytes at once
    input_row_stride = input_row_stride // ALIGN * ALIGN
    output_row_stride, n_cols = output_row_stride // ALIGN * ALIGN, n_cols // ALIGN * ALIGN
    row = (tl.program_id(0) // PARTS).to(tl.int64)
    part = tl.program_id(0) % PARTS
    x_row, y_row = input_ptr + row * input_row_stride, output_ptr + row * output_row_stride
    first = part * (CHUNKS * CHUNK) + tl.arange(0, CHUNK)
    # load this program's part of the row in chunks; all loads are in flight before the first is used
    raw = ()
    for i in tl.static_range(CHUNKS):
        cols = first + i * CHUNK
        if PARTS == 1 and i < CHUNKS - 1:
            raw += (tl.load(x_row + cols, eviction_policy="evict_last"),)
        else:
            raw += (
                tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"),
            )
    # the maximum (times log2 e) and the sum of this part. Each lane has its own until the end, so the warps
    # only synchronize twice, whatever the width
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
        # publish both as one 64-bit word, which is also the flag (the word is never 0)
        word = (highest.to(tl.int32, bitcast=True).to(tl.int64) << 32) | (
            total.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
        )
        tl.atomic_xchg(words_ptr + row * WORDS_STRIDE + part, word, sem="relaxed")
        if PUBLISH_ONLY:
            return
        # wait for the other parts of the row, which run at the same time, and merge their results
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
        if REPACK:  # recompute from the 16 bits, and divide by subtracting exponents
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
    """Returns the softmax of each row of a 2-D tensor. ceil(n_cols / block_size) programs share a row.

    These programs wait for each other, so run only one such softmax at a time: see `launch_split`.

    Raises:
        ValueError: A row needs more programs than are guaranteed to fit on the GPU at once.
    """
    require_rows(x)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        launch_split(x, y, plan_parts(x.shape, x.dtype, block_size, num_warps))
    return y


def launch_split(x: torch.Tensor, y: torch.Tensor, plan: SoftmaxPlan) -> None:
    """Launches the split kernel on 2-D `x` and `y` with column stride 1.

    The programs of a row have consecutive numbers. If the hardware starts programs in the order of their
    numbers, a program only waits for programs that are running or will start next. CUDA doesn't guarantee
    that order, but CUB's scan, which PyTorch uses for the cumsum of a vector, relies on it too. In addition,
    all programs of a row must fit on the GPU at once, so `max_parts` limits their number.

    That limit assumes that every other kernel ends by itself and frees its resources. So run only one such
    softmax at a time: if two streams run wide ones, each can occupy the resources that the other one needs,
    and then both wait forever. A plan with one part never waits.

    In the interpreter, programs run one after the other, so they can't wait for each other. There the kernel
    is launched twice, and the first launch only publishes.

    Raises:
        ValueError: A row needs more programs than are guaranteed to fit on the GPU at once.
    """
    parts = plan.parts
    max_fitting = max_parts(x.device, plan.num_warps, plan.max_registers)
    if parts > max_fitting:
        raise ValueError(
            f"A row of {plan.n_cols:,} columns would need {parts:,} programs of {plan.part_size:,} at once, "
            f"and only {max_fitting:,} "
            f"of {plan.num_warps} warps surely fit; use a larger block_size, fewer warps or softmax_online."
        )
    words = x  # nothing to exchange
    if parts > 1:
        words = torch.zeros(plan.n_rows * plan.words_stride, dtype=torch.int64, device=x.device)
    repack = (
        x.element_size() == 2 and plan.block_size >= 64 * plan.num_warps and not INTERPRETED
    )  # packs pairs of elements
    for publish_only in (True, False) if INTERPRETED and parts > 1 else (False,):
        softmax_split_kernel[(plan.n_programs,)](
            y, x, x.stride(0), y.stride(0), plan.n_cols, words,
            PARTS=parts, PARTS_BLOCK=plan.words_block, WORDS_STRIDE=plan.words_stride, CHUNK=plan.block_size,
            CHUNKS=plan.chunks, ALIGN=alignment(x, y), REPACK=repack, PUBLISH_ONLY=publish_only,
            num_warps=plan.num_warps, maxnreg=plan.max_registers,
        )  # fmt: skip


def alignment(x: torch.Tensor, y: torch.Tensor) -> int:
    """Returns the number of elements in 16 bytes if all rows of `x` and `y` start and end at multiples of 16
    bytes, otherwise 1.

    Triton detects such alignment only if sizes and strides are multiples of 16.
    """
    n = 16 // x.element_size()
    return n if all(size % n == 0 for size in (x.shape[1], x.stride(0), y.stride(0))) else 1


@dataclass(frozen=True)
class SoftmaxPlan:
    """The kernel and the launch parameters for a softmax of `n_rows` × `n_cols`.

    Attributes:
        kernel: "tiles" (several rows per program), "split" (a row in chunks, in one program or shared by
            `parts` programs) or "online" (reads the row twice).
        block_size: The number of columns in the block that contains a row ("tiles"), in a chunk ("split"), or
            per step ("online").
        num_warps: Warps per program.
        rows: Rows per program ("tiles").
        parts: Programs per row ("split").
        chunks: Chunks per part ("split").
        max_registers: The limit of registers per thread; None leaves it to the compiler.
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
        """The number of columns of a row that one program holds."""
        return self.block_size * self.chunks

    @property
    def words_stride(self) -> int:
        """The distance between the words of consecutive rows, in 64-bit words.

        It's a whole number of L2 sectors, so two rows never share a sector.
        """
        return max(SECTOR_WORDS, triton.next_power_of_2(self.parts))

    @property
    def words_block(self) -> int:
        """The number of lanes that read the words of a row.

        It's larger than the number of parts, so that the load has a mask: without a mask, the compiler
        spills. If one warp has too few lanes, it's the number of lanes in all warps, so that no two lanes
        read the same word.
        """
        block = triton.next_power_of_2(self.parts + 1)
        return block if block <= 32 else max(block, 32 * self.num_warps)

    @property
    def n_programs(self) -> int:
        """The number of programs in the launch."""
        return triton.cdiv(self.n_rows, self.rows) * self.parts

    def __repr__(self) -> str:
        chunks = f"{self.chunks} chunk{'s' * (self.chunks > 1)} of {self.block_size:,}"
        layout = {
            "tiles": f"{self.rows} row{'s' * (self.rows > 1)} a program in a block of {self.block_size:,}",
            "split": f"a row shared by {self.parts} programs, {chunks} each"
            if self.parts > 1
            else f"1 row a program in {chunks}",
            "online": f"1 row a program, two walks in steps of {self.block_size:,}",
        }[self.kernel]
        return (
            f"{self.n_rows:,} × {self.n_cols:,}: {layout}, {self.num_warps} "
            f"warp{'s' * (self.num_warps > 1)}, {self.n_programs:,} programs"
        )


def max_parts(device: torch.device | None, num_warps: int, max_registers: int | None = None) -> int:
    """Returns how many programs are guaranteed to fit on the GPU at once.

    That many programs can share a row and wait for each other. The limit follows from threads and registers.
    Before compilation we don't know how many registers the compiler will use, so each thread counts with the
    most that it can have: `max_registers` or else 255, but no more than leave room for one program.

    Args:
        device: The GPU; an H100 if there is none.
        num_warps: Warps per program. Fewer than 4 count as 4, one per partition of a multiprocessor.
        max_registers: The launch's limit of registers per thread; None if there is no limit.
    """
    chip = chip_of(device)
    threads = 32 * max(num_warps, 4)
    registers = min(max_registers or 255, REGISTERS_PER_SM // threads)
    registers = -(-registers // 8) * 8  # registers are allocated in units of eight
    return chip.n_sms * max(1, min(chip.threads_per_sm // threads, REGISTERS_PER_SM // (threads * registers)))


def plan_softmax(
    n_rows: int, n_cols: int, dtype: torch.dtype, *, device: torch.device | None = None
) -> SoftmaxPlan:
    """Chooses the kernel and its launch parameters for a softmax over rows, from the size of a row in bytes.

    To keep the memory busy, enough bytes must be in flight. An SM runs at most 32 programs, so programs of
    less than 2 KB would leave it idle. That's why short rows share a program, with 32 bytes per thread. A
    longer row gets its own program with at least 64 bytes per thread and at most 8 warps, so that several
    programs fit on an SM and one can load while another one computes. Above 64 KB, too few programs would
    fit, so the row is shared by programs of 4 warps that hold 32 KB each. The more parts a row has, the
    longer it waits for the last one, and a 16-bit row needs twice the arithmetic per byte. So above 128 KB,
    the programs of a 16-bit row hold only 24 KB, which lets more of them work while others wait.

    Args:
        n_rows: The number of rows.
        n_cols: The number of columns.
        dtype: The dtype of input and output: float32, float16 or bfloat16.
        device: The GPU to plan for; an H100 with 132 multiprocessors if there is no GPU.
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
    """Returns the plan that shares a row evenly among programs of about `part_size` columns at most.

    Each thread holds 16 bytes per chunk. `max_registers` limits the registers per thread if the row is shared
    and a part is no larger than 32 KB.
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
    """Raises a ValueError unless `x` is 2-D with contiguous columns, and of a dtype that softmax supports."""
    if x.dtype not in _DTYPES:
        raise ValueError(
            f"x is {x.dtype}; softmax takes float32, float16 and bfloat16: convert it, for example with "
            "x.float()."
        )
    if x.ndim != 2 or (x.shape[1] > 1 and x.stride(1) != 1):
        raise ValueError(
            f"x has shape {tuple(x.shape)} and strides {x.stride()}, but a kernel that walks rows needs a "
            "2-D tensor with "
            "column stride 1; reshape it or pass a .contiguous() copy."
        )
    if max_cols is not None and x.shape[1] > max_cols:
        raise ValueError(
            f"A row of {x.shape[1]:,} columns does not fit one block of {max_cols:,} elements; use "
            "softmax_online or softmax_split."
        )


def softmax_forward(x: torch.Tensor, out: torch.Tensor, plan: SoftmaxPlan | None = None) -> torch.Tensor:
    """Writes the softmax of the rows of `x` to `out` and returns `out`.

    Args:
        x: (n_rows, n_cols), float32, float16 or bfloat16, with column stride 1 and any row stride.
        out: A tensor of the same shape and dtype with column stride 1.
        plan: The kernel and launch parameters, by default those of `plan_softmax`.
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
