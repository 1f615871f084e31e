"""Square and GELU (tanh form) of every element of a tensor, and their gradients: one pass over memory.

The functions take float32, bfloat16 and float16 tensors of any shape, stride and size, compute in float32 and round
once. How a tensor is walked:

* where it has no gaps and no overlaps (contiguous, transposed, channels_last …), in the order of its memory, and the
  output gets the same strides;
* any other view (slices, every second column, expanded), by its strides, after neighbouring dimensions that can be
  walked as one have been merged; the output has no gaps and keeps the order of the dimensions;
* a view that still has more than four dimensions after that is copied into the output first, which costs one more pass.

`plan_elementwise` picks the launch for a size. GELU's tanh form: Hendrycks and Gimpel 2016, arXiv:1606.08415.
`helpers.kernels.ops` has the public functions.

Set `TRITON_INTERPRET=1` before this module is imported to run the kernels in Triton's interpreter, on CPU tensors.
"""

from __future__ import annotations

import contextlib
import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from helpers.kernels.chip import chip_of

DTYPES = (torch.float32, torch.bfloat16, torch.float16)

LOAD_BYTES = 16  # the widest load of a thread
NUM_WARPS = 4  # of a program: 2 KB a load, and 16 such programs fill an SM
_STRIDED_BLOCK, _STRIDED_WARPS = 1024, 4
_HERE = contextlib.nullcontext()
_compiled: dict[tuple, Any] = {}  # what decides about a kernel's code: the compiled kernel


# [kernel:gelu_kernel]
@triton.jit
def gelu_of(x):
    # x/2 * (1 + tanh(u)) = x / (1 + exp(-2u)) with u = sqrt(2/pi) * (x + 0.044715 x**3); exp(-2u) = 2**t
    t = x * (-2.302208198 - 0.1029432396 * x * x)
    return x / (1.0 + tl.exp2(t))


@triton.jit(do_not_specialize=["n_elements"])
def gelu_kernel(y_ptr, x_ptr, n_elements, BLOCK_SIZE: tl.constexpr, L2_HINT: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    offsets = start + tl.arange(0, BLOCK_SIZE)
    n_wide = n_elements // 16 * 16  # 16 neighbours share their mask: loads stay wide, whatever n_elements is
    x = tl.load(x_ptr + offsets, mask=offsets < n_wide, eviction_policy=L2_HINT)
    if (
        start + BLOCK_SIZE > n_wide
    ):  # the last program: up to 15 elements are left, loaded while x is on its way
        rest = n_wide + tl.arange(0, 16)
        x_rest = tl.load(x_ptr + rest, mask=rest < n_elements)
        tl.store(y_ptr + rest, gelu_of(x_rest.to(tl.float32)), mask=rest < n_elements)
    tl.store(y_ptr + offsets, gelu_of(x.to(tl.float32)), mask=offsets < n_wide)


# [/kernel:gelu_kernel]


@triton.jit(do_not_specialize=["n_elements"])
def square_elements_kernel(y_ptr, x_ptr, n_elements, BLOCK_SIZE: tl.constexpr, L2_HINT: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    offsets = start + tl.arange(0, BLOCK_SIZE)
    n_wide = n_elements // 16 * 16
    x = tl.load(x_ptr + offsets, mask=offsets < n_wide, eviction_policy=L2_HINT).to(tl.float32)
    if start + BLOCK_SIZE > n_wide:
        rest = n_wide + tl.arange(0, 16)
        x_rest = tl.load(x_ptr + rest, mask=rest < n_elements).to(tl.float32)
        tl.store(y_ptr + rest, x_rest * x_rest, mask=rest < n_elements)
    tl.store(y_ptr + offsets, x * x, mask=offsets < n_wide)


@triton.jit
def gelu_slope_of(x):
    # With s = 1 / (1 + exp(-2u)): (x s)' = s + x s (1 - s) 2u'. Where s is 0 or 1 the second term is 0, also where
    # x or u' overflows: it is taken as 0 there instead of 0 times infinity.
    t = x * (-2.302208198 - 0.1029432396 * x * x)
    s = 1.0 / (1.0 + tl.exp2(t))
    bend = s * (1.0 - s)
    return s + tl.where(bend > 0.0, x * bend * (1.5957691216 + 0.2140644488 * x * x), 0.0 * bend)


@triton.jit(do_not_specialize=["n_elements"])
def gelu_backward_kernel(dx_ptr, g_ptr, x_ptr, n_elements, BLOCK_SIZE: tl.constexpr, L2_HINT: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    offsets = start + tl.arange(0, BLOCK_SIZE)
    n_wide = n_elements // 16 * 16
    x = tl.load(x_ptr + offsets, mask=offsets < n_wide, eviction_policy=L2_HINT).to(tl.float32)
    g = tl.load(g_ptr + offsets, mask=offsets < n_wide, eviction_policy=L2_HINT).to(tl.float32)
    tl.store(dx_ptr + offsets, g * gelu_slope_of(x), mask=offsets < n_wide)
    if start + BLOCK_SIZE > n_wide:
        rest = n_wide + tl.arange(0, 16)
        x_rest = tl.load(x_ptr + rest, mask=rest < n_elements).to(tl.float32)
        g_rest = tl.load(g_ptr + rest, mask=rest < n_elements).to(tl.float32)
        tl.store(dx_ptr + rest, g_rest * gelu_slope_of(x_rest), mask=rest < n_elements)


@triton.jit(do_not_specialize=["n_elements"])
def square_backward_kernel(dx_ptr, g_ptr, x_ptr, n_elements, BLOCK_SIZE: tl.constexpr, L2_HINT: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK_SIZE
    offsets = start + tl.arange(0, BLOCK_SIZE)
    n_wide = n_elements // 16 * 16
    x = tl.load(x_ptr + offsets, mask=offsets < n_wide, eviction_policy=L2_HINT).to(tl.float32)
    g = tl.load(g_ptr + offsets, mask=offsets < n_wide, eviction_policy=L2_HINT).to(tl.float32)
    tl.store(dx_ptr + offsets, 2.0 * x * g, mask=offsets < n_wide)
    if start + BLOCK_SIZE > n_wide:
        rest = n_wide + tl.arange(0, 16)
        x_rest = tl.load(x_ptr + rest, mask=rest < n_elements).to(tl.float32)
        g_rest = tl.load(g_ptr + rest, mask=rest < n_elements).to(tl.float32)
        tl.store(dx_ptr + rest, 2.0 * x_rest * g_rest, mask=rest < n_elements)


@triton.jit
def strided_kernel(
    y_ptr, x_ptr, n_outer, n_inner, n1, n2, stride0, stride1, stride2, inner_stride,
    GELU: tl.constexpr, WIDE: tl.constexpr, BLOCK_OUTER: tl.constexpr, BLOCK_INNER: tl.constexpr,
):  # fmt: skip
    """Square, or GELU: x is (·, n1, n2, n_inner) with any strides, y is its elements one after another."""
    n_inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    program = tl.program_id(0)
    if WIDE:  # 64-bit division is slow: only where the count of elements needs it
        program = program.to(tl.int64)
    outer = program // n_inner_blocks * BLOCK_OUTER + tl.arange(0, BLOCK_OUTER)
    inner = program % n_inner_blocks * BLOCK_INNER + tl.arange(0, BLOCK_INNER)
    mask = (outer < n_outer)[:, None] & (inner < n_inner)[None, :]
    rows = (outer // n2 // n1).to(tl.int64) * stride0
    rows += (outer // n2 % n1).to(tl.int64) * stride1 + (outer % n2).to(tl.int64) * stride2
    cols = inner.to(tl.int64) * inner_stride
    x = tl.load(x_ptr + rows[:, None] + cols[None, :], mask=mask).to(tl.float32)
    y = gelu_of(x) if GELU else x * x
    tl.store(y_ptr + (outer.to(tl.int64) * n_inner)[:, None] + inner[None, :], y, mask=mask)


INTERPRETED = not isinstance(gelu_kernel, triton.JITFunction)


@dataclass(frozen=True)
class ElementwisePlan:
    """How a tensor of `n_elements` is cut into programs."""

    n_elements: int
    dtype: torch.dtype
    block_size: int
    num_warps: int = NUM_WARPS
    l2_hint: str = ""

    @functools.cached_property
    def n_programs(self) -> int:
        """Programs in the grid; the last may be partly empty."""
        return -(-self.n_elements // self.block_size)

    def __repr__(self) -> str:
        a_thread = self.block_size // (32 * self.num_warps)
        return (
            f"{self.n_elements:,} elements of {str(self.dtype).removeprefix('torch.')}: {self.n_programs:,} "
            f"program{'s' if self.n_programs != 1 else ''} of {self.block_size:,} elements, {self.num_warps} "
            f"warp{'s' if self.num_warps != 1 else ''} each; {a_thread} elements "
            f"({a_thread * self.dtype.itemsize} bytes) a thread"
            + (f", loaded with {self.l2_hint}" if self.l2_hint else "")
        )


@functools.lru_cache(maxsize=1024)
def plan_elementwise(
    n_elements: int, dtype: torch.dtype, device: torch.device | None = None
) -> ElementwisePlan:
    """The launch for a walk over `n_elements` neighbouring elements, by a rule.

    A thread loads 16 bytes. Where 32 or 64 let every program run at once, so that none has to wait for a place, it loads
    these. A tensor that is much larger than the L2 cache is loaded with the hint "evict_last": what was just read makes
    room later than what was written, which gains 0.3 to 1 %, also in a row of launches (benchmarks/hints.py); on a
    tensor that nearly fits it loses as much and more.

    Args:
        n_elements: of the tensor.
        dtype: float32, bfloat16 or float16.
        device: whose streaming multiprocessors and L2 count; the current GPU, or an H100 where there is none.

    Raises:
        ValueError: a dtype that the kernels do not take.
    """
    require_dtype(dtype)
    chip, n_bytes = chip_of(device), n_elements * dtype.itemsize
    at_once = [a for a in (16, 32, 64) if n_bytes <= chip.n_sms * chip.threads_per_sm * a]
    bytes_a_thread = (at_once or [LOAD_BYTES])[0]
    return ElementwisePlan(
        n_elements,
        dtype,
        block_size=bytes_a_thread // dtype.itemsize * 32 * NUM_WARPS,
        l2_hint="evict_last" if n_bytes > 4 * chip.l2_bytes else "",
    )


def require_dtype(dtype: torch.dtype) -> None:
    """Raise a ValueError unless the kernels take `dtype`."""
    if dtype not in DTYPES:
        raise ValueError(
            f"x is {dtype}, but these kernels take float32, bfloat16 and float16; convert it, or use torch's function."
        )


def require_place(x: torch.Tensor) -> None:
    """Raise a ValueError unless the kernels can run where `x` is."""
    if not (x.is_cuda or (INTERPRETED and x.device.type == "cpu")):
        raise ValueError(
            f"x is on {x.device}, but these kernels run on an NVIDIA GPU: move x there, or set TRITON_INTERPRET=1 before "
            "Python starts to run them on CPU tensors in Triton's interpreter."
        )


def walked_as(x: torch.Tensor, y: torch.Tensor) -> tuple[list[int], list[int]]:
    """The sizes and the strides in `x` of the fewest dimensions that walk `x` in the order of `y`'s memory.

    `y` has `x`'s shape and no gaps. Dimensions of one element are left out; neighbours that are one walk are merged.
    """
    order = sorted((d for d in range(x.ndim) if x.shape[d] != 1), key=lambda d: (-y.stride(d), d))
    sizes: list[int] = []
    strides: list[int] = []
    for d in order:
        if sizes and strides[-1] == x.stride(d) * x.shape[d]:
            sizes[-1], strides[-1] = sizes[-1] * x.shape[d], x.stride(d)
        else:
            sizes.append(x.shape[d])
            strides.append(x.stride(d))
    return sizes or [1], strides or [1]


def on_device_of(x: torch.Tensor) -> contextlib.AbstractContextManager:
    """Make x's GPU the current one, where it is not: Triton launches on the current one."""
    here = not x.is_cuda or x.get_device() == torch.cuda.current_device()
    return _HERE if here else torch.cuda.device(x.get_device())


def _launch(kernel, n_elements: int, *tensors: torch.Tensor) -> None:
    """Launch a kernel over tensors without gaps that have the same strides; the first is written.

    Triton looks at every argument of every launch to find the code that fits, which takes longer than the launch. What
    that depends on here is little: it is looked up in a dict, and the compiled kernel is launched directly.
    """
    dtype = tensors[0].dtype
    plan = plan_elementwise(n_elements, dtype, tensors[0].device)
    if INTERPRETED:
        kernel[(plan.n_programs,)](*tensors, n_elements, BLOCK_SIZE=plan.block_size, L2_HINT=plan.l2_hint)
        return
    aligned = [t.data_ptr() % 16 == 0 for t in tensors]
    key = (
        kernel,
        dtype,
        plan.block_size,
        plan.num_warps,
        plan.l2_hint,
        n_elements >> 31 > 0,
        tensors[0].get_device(),
        *aligned,
    )
    compiled = _compiled.get(key)
    if compiled is None:
        _compiled[key] = kernel[(plan.n_programs,)](
            *tensors,
            n_elements,
            BLOCK_SIZE=plan.block_size,
            L2_HINT=plan.l2_hint,
            num_warps=plan.num_warps,
        )
    else:
        compiled[(plan.n_programs, 1, 1)](*tensors, n_elements, plan.block_size, plan.l2_hint)


def _launch_strided(
    gelu: bool, y: torch.Tensor, x: torch.Tensor, sizes: list[int], strides: list[int]
) -> None:
    """Launch over up to four dimensions. Those that are missing get size 1, which Triton compiles away."""
    *sizes, n_inner = sizes
    *strides, inner_stride = strides
    n_outer = math.prod(sizes)
    missing = 3 - len(sizes)
    _, n1, n2 = [*sizes, *[1] * missing]
    inner = min(triton.next_power_of_2(n_inner), _STRIDED_BLOCK)
    outer = _STRIDED_BLOCK // inner
    grid = (triton.cdiv(n_inner, inner) * triton.cdiv(n_outer, outer),)
    strided_kernel[grid](
        y, x, n_outer, n_inner, n1, n2, *strides, *[0] * missing, inner_stride,
        GELU=gelu, WIDE=n_outer * n_inner >= 1 << 30, BLOCK_OUTER=outer, BLOCK_INNER=inner, num_warps=_STRIDED_WARPS,
    )  # fmt: skip


def _forward(kernel, x: torch.Tensor) -> torch.Tensor:
    require_dtype(x.dtype)
    require_place(x)
    y = torch.empty_like(x)  # x's own strides where x has no gaps, otherwise the same order of dimensions
    n_elements = x.numel()
    if n_elements == 0:
        return y
    with on_device_of(x):
        if y.stride() == x.stride():
            _launch(kernel, n_elements, y, x)
            return y
        sizes, strides = walked_as(x, y)
        if len(sizes) == 1 and strides == [1]:
            _launch(kernel, n_elements, y, x)
        elif len(sizes) <= 4:
            _launch_strided(kernel is gelu_kernel, y, x, sizes, strides)
        else:
            _launch(kernel, n_elements, y, y.copy_(x))
    return y


def _backward(kernel, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    require_dtype(x.dtype)
    require_place(x)
    dx = torch.empty_like(x)
    n_elements = x.numel()
    if n_elements:
        with on_device_of(x):
            same = [t if t.stride() == dx.stride() else torch.empty_like(dx).copy_(t) for t in (g, x)]
            _launch(kernel, n_elements, dx, *same)
    return dx


def square_forward(x: torch.Tensor) -> torch.Tensor:
    """x squared: float32, bfloat16 or float16, any shape and strides, on a GPU (or interpreted, on the CPU)."""
    return _forward(square_elements_kernel, x)


def gelu_forward(x: torch.Tensor) -> torch.Tensor:
    """GELU of x, tanh form, as `torch.nn.functional.gelu(x, approximate="tanh")`: arguments as `square_forward`."""
    return _forward(gelu_kernel, x)


def square_backward(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """2 x g, the gradient for x; what has other strides than the result is copied first."""
    return _backward(square_backward_kernel, g, x)


def gelu_backward(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """g times GELU's derivative at x; what has other strides than the result is copied first."""
    return _backward(gelu_backward_kernel, g, x)
