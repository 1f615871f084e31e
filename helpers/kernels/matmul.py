"""Matrix products: c = a @ b, optionally with a bias, GELU and fp8 scales applied before c is written.

`a` is (m, k) and `b` is (k, n), with any sizes (also 0 and 1) and any strides. Every product is accumulated
in float32 and rounded once. There are four kernels:

* `matmul_tiles_kernel` works with pointers, so it accepts every size and stride. Each program computes one
  tile of c. The order of the programs keeps the tiles of a and b that are in use in the L2 cache.
* `matmul_descriptor_kernel` loads tiles through tensor descriptors (TMA, from compute capability 9.0 on).
  There is one program per SM, and it computes one tile of c after another.
* `add_parts_kernel` adds what several programs found for one tile. A product with few tiles is split along k,
  so that there are enough programs to keep the memory busy.
* `copy_kernel` copies a matrix whose rows aren't aligned to one whose rows are, or back.

`plan_matmul` chooses the kernel and its launch from the sizes, the dtype and the GPU's properties. If a
matrix is read often and its rows are not aligned to 16 bytes, it is first copied to aligned rows, because
narrow loads would cost more than the copy.

Set `TRITON_INTERPRET=1` before you import this module to run the kernels in Triton's interpreter, on CPU
tensors.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from helpers.kernels.chip import Chip, chip_of
from helpers.kernels.elementwise import INTERPRETED, gelu_of, on_device_of, require_place

FP8 = torch.float8_e4m3fn
DTYPES = (torch.float32, torch.bfloat16, torch.float16, FP8)
PRECISIONS = ("ieee", "tf32")  # of float32 products
GROUP_M = 8  # rows of tiles whose programs follow each other
ROW_BYTES = 128  # of k per step: as much as one row of a shared-memory swizzle
COPY_READS = 256  # how often a matrix must be read before copying it to aligned rows pays

# Tiles of c (rows, columns) with their warps, the largest first. A larger tile loads fewer bytes per product,
# a smaller one leaves fewer SMs idle.
TILES = ((128, 256, 8), (128, 128, 8), (64, 128, 4), (64, 64, 4))
FMA_TILES = ((128, 64, 8), (64, 64, 8))  # without tensor cores, a and b take registers too
SKINNY_ROWS = (16, 32, 64)  # with few rows, the loads in flight count, not the size of the tile
SKINNY_TILE = (64, 8)  # columns, warps


@triton.jit
def tile_of(program, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Returns the row and the column of a program's tile, in bands that are GROUP_M tiles high."""
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    band = program // (GROUP_M * tiles_n)
    height = min(tiles_m - band * GROUP_M, GROUP_M)
    within = program % (GROUP_M * tiles_n)
    return band * GROUP_M + within % height, within // height


@triton.jit
def finished(c, scale_a_ptr, scale_b_ptr, bias_ptr, rows, cols, m, n, SCALED: tl.constexpr,
             BIAS: tl.constexpr, GELU: tl.constexpr):  # fmt: skip
    """Applies the scales, the bias and GELU to a tile while it is still in registers."""
    if SCALED:
        c *= tl.load(scale_a_ptr + rows, mask=rows < m, other=0.0)[:, None]
        c *= tl.load(scale_b_ptr + cols, mask=cols < n, other=0.0)[None, :]
    if BIAS:
        c += tl.load(bias_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)[None, :]
    if GELU:
        c = gelu_of(c)
    return c


# [kernel:matmul_tiles_kernel]
@triton.jit
def matmul_tiles_kernel(
    c_ptr, a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, bias_ptr, m, n, k, k_per_part,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PRECISION: tl.constexpr, IMPRECISE: tl.constexpr, SCALED: tl.constexpr, BIAS: tl.constexpr,
    GELU: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(1).to(tl.int64)  # of k; only one unless k is split
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    first, end = part * k_per_part, min(k, (part + 1) * k_per_part)
    a_ptrs = a_ptr + rows[:, None].to(tl.int64) * stride_am + (first + ks)[None, :] * stride_ak
    b_ptrs = b_ptr + (first + ks)[:, None] * stride_bk + cols[None, :].to(tl.int64) * stride_bn
    step = tl.full((), BLOCK_K, tl.int64)  # times a stride, it may exceed 32 bits
    c = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(first, end, BLOCK_K):
        left = end - start
        a = tl.load(a_ptrs, mask=(rows < m)[:, None] & (ks < left)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(ks < left)[:, None] & (cols < n)[None, :], other=0.0)
        c = tl.dot(a, b, c, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE)
        a_ptrs += step * stride_ak
        b_ptrs += step * stride_bk
    c = finished(c, scale_a_ptr, scale_b_ptr, bias_ptr, rows, cols, m, n, SCALED, BIAS, GELU)
    c_ptrs = c_ptr + part * stride_cp + rows[:, None].to(tl.int64) * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, c.to(c_ptr.dtype.element_ty), mask=(rows < m)[:, None] & (cols < n)[None, :])


# [/kernel:matmul_tiles_kernel]


# [kernel:matmul_descriptor_kernel]
@triton.jit
def matmul_descriptor_kernel(
    c, a, b, scale_a_ptr, scale_b_ptr, bias_ptr, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PROGRAMS: tl.constexpr, K_FIRST_A: tl.constexpr, K_FIRST_B: tl.constexpr, PRECISION: tl.constexpr,
    IMPRECISE: tl.constexpr, SCALED: tl.constexpr, BIAS: tl.constexpr, GELU: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        tile_m, tile_n = tile_of(tile, m, n, BLOCK_M, BLOCK_N, GROUP_M)
        first_m, first_n = tile_m * BLOCK_M, tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(tl.cdiv(k, BLOCK_K)):
            first_k = step * BLOCK_K
            a_tile = a.load([first_k, first_m]).T if K_FIRST_A else a.load([first_m, first_k])
            b_tile = b.load([first_k, first_n]) if K_FIRST_B else b.load([first_n, first_k]).T
            acc = tl.dot(a_tile, b_tile, acc, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE)
        # In halves, c needs half as much shared memory, so that there is room for one more step of a and b.
        rows = first_m + tl.arange(0, BLOCK_M)
        half: tl.constexpr = BLOCK_N // 2
        left, right = acc.reshape(BLOCK_M, 2, half).permute(0, 2, 1).split()
        for side in tl.static_range(2):
            first = first_n + side * half
            part = left if side == 0 else right
            part = finished(part, scale_a_ptr, scale_b_ptr, bias_ptr, rows, first + tl.arange(0, half),
                            m, n, SCALED, BIAS, GELU)  # fmt: skip
            c.store([first_m, first], part.to(c.dtype))


# [/kernel:matmul_descriptor_kernel]


@triton.jit
def add_parts_kernel(
    c_ptr, parts_ptr, scale_a_ptr, scale_b_ptr, bias_ptr, m, n, stride_part,
    PARTS: tl.constexpr, BLOCK_SIZE: tl.constexpr, SCALED: tl.constexpr, BIAS: tl.constexpr,
    GELU: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) + tl.arange(0, 1)
    cols = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    at = rows[:, None].to(tl.int64) * n + cols[None, :]
    mask = (cols < n)[None, :]
    c = tl.zeros((1, BLOCK_SIZE), tl.float32)
    for part in tl.static_range(PARTS):
        c += tl.load(parts_ptr + tl.full((), part, tl.int64) * stride_part + at, mask=mask, other=0.0)
    c = finished(c, scale_a_ptr, scale_b_ptr, bias_ptr, rows, cols, m, n, SCALED, BIAS, GELU)
    tl.store(c_ptr + at, c.to(c_ptr.dtype.element_ty), mask=mask)


# With aligned strides of `to`, Triton would give each thread eight neighbors, and then load them one by one
# from rows that aren't aligned. That took 80 µs instead of 33 for 34 MB on an H100.
@triton.jit(do_not_specialize_on_alignment=["stride_tm", "stride_tn"])
def copy_kernel(
    to_ptr, from_ptr, m, n, stride_tm, stride_tn, stride_fm, stride_fn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (rows < m) & (cols < n)
    rows, cols = rows.to(tl.int64), cols.to(tl.int64)
    x = tl.load(from_ptr + rows * stride_fm + cols * stride_fn, mask=mask)
    tl.store(to_ptr + rows * stride_tm + cols * stride_tn, x, mask=mask)


@dataclass(frozen=True)
class MatmulPlan:
    """The kernel and the launch parameters for one product.

    Attributes:
        kernel: "tiles" (a program per tile), "descriptors" (a program per SM), or "parts" (several programs
            per tile, each with a part of k).
        block_m, block_n: The size of a tile of c.
        block_k: Columns of a, and rows of b, per step.
        num_warps: Warps per program.
        num_stages: Steps whose loads are in flight.
        parts: Into how many parts k is split.
    """

    kernel: str
    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    parts: int = 1

    def n_tiles(self, m: int, n: int) -> int:
        """The number of tiles of an (m, n) product."""
        return -(-m // self.block_m) * -(-n // self.block_n)


@functools.lru_cache(maxsize=4096)
def plan_matmul(
    m: int, n: int, k: int, dtype: torch.dtype, *, precision: str = "ieee", described: bool = False,
    fast_accumulation: bool = False, chip: Chip | None = None,
) -> MatmulPlan:  # fmt: skip
    """Chooses the kernel and the launch for an (m, k) times (k, n) product.

    A program on an SM computes `tile` products per step while it loads `block_m + block_n` rows of k. Tiles
    run in waves of one program per SM, so the time is about the number of waves times the time of a tile.
    The rule takes the tile with the smallest estimate, and the tensor descriptors where it can. If the tiles
    would leave half of the SMs idle, k is split.

    Args:
        m, n, k: The sizes, 1 or more.
        dtype: The dtype of a and b.
        precision: "tf32" rounds float32 inputs to TF32, for tensor cores; "ieee" doesn't.
        described: Whether a and b can be loaded through tensor descriptors.
        fast_accumulation: Whether fp8 products stay in the tensor cores' own accumulator.
        chip: The GPU; an H100 if there is none.
    """
    chip = chip or Chip()
    tensor_cores = chip.capability >= (8, 0) and (dtype != torch.float32 or precision == "tf32")
    block_k = ROW_BYTES // dtype.itemsize if tensor_cores else 32

    def planned(
        tile: tuple[int, int, int], kernel: str = "tiles", block_k: int = block_k, most: int = 4
    ) -> MatmulPlan:
        block_m, block_n, num_warps = tile
        free = chip.shared_bytes - (1 << 10)  # the rest is the compiler's
        if (
            kernel == "descriptors"
        ):  # half a tile of c passes through shared memory during the next tile's loads
            free -= block_m * block_n // 2 * (2 if dtype == FP8 else dtype.itemsize)
        stages = min(most, free // ((block_m + block_n) * block_k * dtype.itemsize))
        return MatmulPlan(kernel, block_m, block_n, block_k, num_warps, max(1, stages))

    if m <= SKINNY_ROWS[-1]:
        rows = next(size for size in SKINNY_ROWS if m <= size)
        return _split(planned((rows, *SKINNY_TILE), block_k=2 * block_k, most=6), m, n, k, chip)
    tiles = TILES if tensor_cores else FMA_TILES
    if dtype == FP8 and not fast_accumulation:
        tiles = TILES[1:]  # each step has its own sum, so the largest tile would need twice its registers

    def best(kernel: str) -> MatmulPlan:
        """The plan with the smallest estimate, if it has room for three steps, or else for two."""
        plans = sorted((planned(tile, kernel) for tile in tiles), key=estimate)
        return max(plans, key=lambda plan: min(plan.num_stages, 3))  # the first of those with the most

    def estimate(plan: MatmulPlan) -> float:
        waves = -(-plan.n_tiles(m, n) // chip.n_sms)
        return waves * (plan.block_m * plan.block_n + 64 * (plan.block_m + plan.block_n))

    plan = best("tiles")
    split = _split(plan, m, n, k, chip)
    return best("descriptors") if described and tensor_cores and split is plan else split


def _split(plan: MatmulPlan, m: int, n: int, k: int, chip: Chip) -> MatmulPlan:
    """The plan with k split into parts, if its tiles alone would leave half of the SMs idle."""
    tiles, steps = plan.n_tiles(m, n), -(-k // plan.block_k)
    if 2 * tiles > chip.n_sms:
        return plan
    parts = min(4 * chip.n_sms // tiles, steps // 4, 32)
    if parts < 2:
        return plan
    return MatmulPlan(**{**plan.__dict__, "kernel": "parts", "parts": 1 << (parts.bit_length() - 1)})


def describable(x: torch.Tensor) -> bool:
    """Whether a 2-D tensor can be loaded through a tensor descriptor, as it is or transposed."""
    if x.data_ptr() % 16:
        return False
    strides = sorted(x.stride())
    return strides[0] == 1 and strides[1] > 1 and strides[1] * x.element_size() % 16 == 0


def aligned_empty(rows: int, cols: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """An uninitialized matrix whose rows start at multiples of 128 bytes, as long as a row of a tile.

    Tensor descriptors need only 16, but then each row of a tile would touch one sector more.
    """
    width = ROW_BYTES // dtype.itemsize
    return torch.empty(rows, -(-cols // width) * width, dtype=dtype, device=device)[:, :cols]


def copied(to: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Copies one 2-D tensor to another of the same shape.

    PyTorch's own copy takes four times as long as this one if the rows have an odd length.
    """
    m, n = x.shape
    copy_kernel[(triton.cdiv(m, 64), triton.cdiv(n, 64))](to, x, m, n, *to.stride(), *x.stride(), 64, 64)
    return to


def readable(x: torch.Tensor, reads: int, *, k_last: bool = False) -> torch.Tensor:
    """A (rows, k) matrix as the tensor descriptors need it: itself, or a copy with aligned rows.

    Args:
        x: The matrix.
        reads: How often each number is read; few reads don't pay for a copy.
        k_last: Whether k must be the contiguous dimension. The tensor cores of compute capability 9.0 read
            16-bit tiles in both orders, but TF32 only in this one.
    """
    if reads < COPY_READS or (describable(x) and not (k_last and x.stride(1) != 1)):
        return x
    return copied(aligned_empty(*x.shape, x.dtype, x.device), x)


def require_product(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, precision: str = "ieee",
    scale_a: torch.Tensor | None = None, scale_b: torch.Tensor | None = None,
) -> None:  # fmt: skip
    """Raises a ValueError unless these arguments make a product that the kernels can compute."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"a is {tuple(a.shape)} and b is {tuple(b.shape)}; pass (m, k) and (k, n).")
    if a.dtype != b.dtype or a.dtype not in DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise ValueError(f"a is {a.dtype} and b is {b.dtype}; both must have the same dtype, one of {names}.")
    if a.device != b.device:
        raise ValueError(f"a is on {a.device} and b is on {b.device}; move one of them.")
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {precision!r}; pass one of {', '.join(PRECISIONS)}.")
    if precision == "tf32" and a.dtype != torch.float32:
        raise ValueError(f'precision="tf32" is for float32, but a and b are {a.dtype}; leave it out.')
    if (a.dtype == FP8) != (scale_a is not None and scale_b is not None):
        raise ValueError("float8_e4m3fn inputs need scale_a and scale_b, and other dtypes take neither.")
    for name, vector, size in (("bias", bias, b.shape[1]), ("scale_a", scale_a, a.shape[0]),
                               ("scale_b", scale_b, b.shape[1])):  # fmt: skip
        if vector is not None and (vector.shape != (size,) or vector.device != a.device):
            raise ValueError(
                f"{name} is {tuple(vector.shape)} on {vector.device}; pass ({size},) on {a.device}."
            )


def matmul_forward(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, *, gelu: bool = False,
    precision: str = "ieee", scale_a: torch.Tensor | None = None, scale_b: torch.Tensor | None = None,
    fast_accumulation: bool = False, plan: MatmulPlan | None = None,
) -> torch.Tensor:  # fmt: skip
    """Returns a @ b, plus the bias, through GELU if asked, as a contiguous tensor.

    Args:
        a: (m, k), float32, bfloat16, float16 or float8_e4m3fn.
        b: (k, n), of the same dtype.
        bias: (n,), of any float dtype.
        gelu: Whether GELU (tanh form) is applied to the result.
        precision: For float32: "ieee" multiplies float32 numbers, "tf32" rounds them to TF32 first.
        scale_a: (m,) float32, for fp8: row i of a stands for `scale_a[i] * a[i]`.
        scale_b: (n,) float32, for fp8: the same for the columns of b.
        fast_accumulation: For fp8 on compute capability 9.0: let the tensor cores accumulate everything in
            their own, narrower format.
        plan: The launch to use instead of `plan_matmul`'s.

    Returns:
        (m, n): the dtype of a, or bfloat16 for fp8.

    Raises:
        ValueError: The arguments don't fit each other, or the kernels can't run on their device.
    """
    require_product(a, b, bias, precision, scale_a, scale_b)
    require_place(a)
    (m, k), n = a.shape, b.shape[1]
    dtype = torch.bfloat16 if a.dtype == FP8 else a.dtype
    if not m * n:
        return torch.empty(m, n, dtype=dtype, device=a.device)
    if INTERPRETED and a.dtype == torch.bfloat16:  # the interpreter's dot misreads bfloat16
        a, b = a.float(), b.float()
    with on_device_of(a):
        chip = chip_of(a.device)
        tma = chip.capability >= (9, 0) and not INTERPRETED and k > 0
        if tma and min(a.element_size(), 2) * m * n >= COPY_READS**2:
            k_last = precision == "tf32" or a.dtype == FP8
            a, b = readable(a, n, k_last=k_last), readable(b.T, m, k_last=k_last).T
        plan = plan or plan_matmul(
            m, n, max(k, 1), a.dtype, precision=precision,
            described=tma and describable(a) and describable(b), fast_accumulation=fast_accumulation,
            chip=chip,
        )  # fmt: skip
        if plan.kernel == "descriptors":  # also store through a descriptor, so the rows must be aligned
            c = aligned_empty(m, n, dtype, a.device)
        else:
            c = torch.empty(m, n, dtype=dtype, device=a.device)
        vectors = [c if v is None else v.contiguous() for v in (scale_a, scale_b, bias)]
        after = {"SCALED": scale_a is not None, "BIAS": bias is not None, "GELU": gelu}
        imprecise = plan.block_k if a.dtype == FP8 and not fast_accumulation else None
        how = {"PRECISION": precision, "IMPRECISE": imprecise, **after}
        if plan.kernel == "descriptors":
            _launch_descriptors(c, a, b, vectors, plan, chip, how)
        else:
            _launch_tiles(c, a, b, vectors, plan, how)
        if not c.is_contiguous():
            c = copied(torch.empty(m, n, dtype=dtype, device=a.device), c)
    return c


def _launch_tiles(c, a, b, vectors, plan: MatmulPlan, how: dict) -> None:
    """Launches a program per tile and part of k, and adds the parts if there are several."""
    (m, k), n = a.shape, b.shape[1]
    split = plan.parts > 1
    k_per_part = -(-k // plan.parts)
    k_per_part = max(1, -(-k_per_part // plan.block_k)) * plan.block_k
    out = torch.empty(plan.parts, m, n, dtype=torch.float32, device=c.device) if split else c[None]
    after = {name: how[name] for name in ("SCALED", "BIAS", "GELU")}
    matmul_tiles_kernel[(plan.n_tiles(m, n), plan.parts)](
        out, a, b, *vectors, m, n, k, k_per_part, *a.stride(), *b.stride(), *out.stride(),
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, BLOCK_K=plan.block_k, GROUP_M=GROUP_M,
        **how | (dict.fromkeys(after, False) if split else {}),
        num_warps=plan.num_warps, num_stages=plan.num_stages,
    )  # fmt: skip
    if split:
        block = min(1024, triton.next_power_of_2(n))
        add_parts_kernel[(m, triton.cdiv(n, block))](
            c, out, *vectors, m, n, m * n, PARTS=plan.parts, BLOCK_SIZE=block, **after
        )


def _launch_descriptors(c, a, b, vectors, plan: MatmulPlan, chip: Chip, how: dict) -> None:
    """Launches a program per SM, which loads through tensor descriptors."""
    (m, k), n = a.shape, b.shape[1]
    k_first_a, k_first_b = a.stride(1) != 1, b.stride(1) == 1
    a_desc = _descriptor(a.T if k_first_a else a, plan.block_m, plan.block_k, swap=k_first_a)
    b_desc = _descriptor(b if k_first_b else b.T, plan.block_n, plan.block_k, swap=k_first_b)
    programs = min(chip.n_sms, plan.n_tiles(m, n))
    matmul_descriptor_kernel[(programs,)](
        TensorDescriptor.from_tensor(c, [plan.block_m, plan.block_n // 2]), a_desc, b_desc, *vectors, m, n, k,
        BLOCK_M=plan.block_m, BLOCK_N=plan.block_n, BLOCK_K=plan.block_k, GROUP_M=GROUP_M,
        PROGRAMS=programs, K_FIRST_A=k_first_a, K_FIRST_B=k_first_b,
        **how, num_warps=plan.num_warps, num_stages=plan.num_stages,
    )  # fmt: skip


def _descriptor(x: torch.Tensor, block: int, block_k: int, *, swap: bool) -> TensorDescriptor:
    """The descriptor of a matrix with contiguous rows; its tiles are (block, block_k), or swapped."""
    return TensorDescriptor.from_tensor(x, [block_k, block] if swap else [block, block_k])
