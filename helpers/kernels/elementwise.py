"""Square and GELU (tanh form) of every element of a tensor, and their gradients, in one pass over memory.

The functions take float32, bfloat16 and float16 tensors of any shape, stride and size. They compute in
float32 and round once. The order in which they visit the elements depends on the layout:

* If a tensor has no gaps and no overlaps (contiguous, transposed, channels_last …), they follow the order of
  its memory, and the output gets the same strides.
* Any other view (slices, every second column, expanded) is indexed by its strides, after merging adjacent
  dimensions wherever one stride covers both. The output has no gaps and keeps the order of the dimensions.
* A view that still has more than four dimensions after merging is first copied to the output, which costs
  one more pass.

`plan_elementwise` chooses the launch for a size. The tanh form of GELU is from Hendrycks and Gimpel 2016,
arXiv:1606.08415. The public functions are in `helpers.kernels.ops`.

Set `TRITON_INTERPRET=1` before you import this module to run the kernels in Triton's interpreter, on CPU
tensors.
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

LOAD_BYTES = 16  # the widest load of one thread
NUM_WARPS = 4  # per program: 2 KB per load, and 16 such programs fill an SM
_STRIDED_BLOCK, _STRIDED_WARPS = 1024, 4
_NO_SWITCH = contextlib.nullcontext()
_compiled: dict[tuple, Any] = {}  # everything that determines a kernel's code -> the compiled kernel


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
    n_wide = n_elements // 16 * 16  # 16 elements share a mask, so loads stay wide for any n_elements
    x = tl.load(x_ptr + offsets, mask=offsets < n_wide, eviction_policy=L2_HINT)
    if (
        start + BLOCK_SIZE > n_wide
    ):  # in the last program: up to 15 remaining elements, loaded while the load of x is in flight
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
    # With s = 1 / (1 + exp(-2u)): (x s)' = s + x s (1 - s) 2u'. If s is 0 or 1, the second term is 0, even
    # where x or u' overflows, so we use 0 there instead of 0 times infinity.
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
    """Square or GELU of x, (·, n1, n2, n_inner) with any strides; y stores the elements contiguously."""
    n_inner_blocks = tl.cdiv(n_inner, BLOCK_INNER)
    program = tl.program_id(0)
    if WIDE:  # 64-bit division is slow, so it is only used if n_elements requires it
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
    """How `n_elements` elements are divided among programs."""

    n_elements: int
    dtype: torch.dtype
    block_size: int
    num_warps: int = NUM_WARPS
    l2_hint: str = ""

    @functools.cached_property
    def n_programs(self) -> int:
        """The number of programs in the grid; the last one may be partly empty."""
        return -(-self.n_elements // self.block_size)

    def __repr__(self) -> str:
        elements_per_thread = self.block_size // (32 * self.num_warps)
        return (
            f"{self.n_elements:,} elements of {str(self.dtype).removeprefix('torch.')}: {self.n_programs:,} "
            f"program{'s' if self.n_programs != 1 else ''} of {self.block_size:,} elements, {self.num_warps} "
            f"warp{'s' if self.num_warps != 1 else ''} each; {elements_per_thread} elements "
            f"({elements_per_thread * self.dtype.itemsize} bytes) a thread"
            + (f", loaded with {self.l2_hint}" if self.l2_hint else "")
        )


@functools.lru_cache(maxsize=1024)
def plan_elementwise(
    n_elements: int, dtype: torch.dtype, device: torch.device | None = None
) -> ElementwisePlan:
    """Chooses the launch for `n_elements` contiguous elements.

    A thread loads 16 bytes. If all programs can be resident at once with 32 or 64 bytes per thread, so that
    none has to wait for another to finish, a thread loads that many. If the tensor is much larger than the L2
    cache, the loads have the hint "evict_last", so that the cache evicts written data before data that was
    just read. This gains 0.3 to 1 %, even in a series of launches (benchmarks/hints.py). For a tensor that
    nearly fits in the cache, it loses at least as much.

    Args:
        n_elements: The number of elements in the tensor.
        dtype: float32, bfloat16 or float16.
        device: The GPU to plan for. By default, the current GPU, or an H100 if there is none.

    Raises:
        ValueError: The kernels don't support the dtype.
    """
    require_dtype(dtype)
    chip, n_bytes = chip_of(device), n_elements * dtype.itemsize
    candidates = [a for a in (16, 32, 64) if n_bytes <= chip.n_sms * chip.threads_per_sm * a]
    bytes_per_thread = (candidates or [LOAD_BYTES])[0]
    return ElementwisePlan(
        n_elements,
        dtype,
        block_size=bytes_per_thread // dtype.itemsize * 32 * NUM_WARPS,
        l2_hint="evict_last" if n_bytes > 4 * chip.l2_bytes else "",
    )


def require_dtype(dtype: torch.dtype) -> None:
    """Raises a ValueError unless the kernels support `dtype`."""
    if dtype not in DTYPES:
        raise ValueError(
            f"x is {dtype}, but these kernels take float32, bfloat16 and float16; convert it, or use "
            "torch's function."
        )


def require_place(x: torch.Tensor) -> None:
    """Raises a ValueError unless the kernels can run on the device of `x`."""
    if not (x.is_cuda or (INTERPRETED and x.device.type == "cpu")):
        raise ValueError(
            f"x is on {x.device}, but these kernels run on an NVIDIA GPU: move x there, or set "
            "TRITON_INTERPRET=1 before "
            "Python starts to run them on CPU tensors in Triton's interpreter."
        )


def merge_dimensions(x: torch.Tensor, y: torch.Tensor) -> tuple[list[int], list[int]]:
    """Returns sizes and strides that visit `x` in the order of `y`'s memory, in as few dimensions as
    possible.

    `y` has the shape of `x` and no gaps. Dimensions of size 1 are dropped, and adjacent dimensions are merged
    where one stride covers both.
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
    """Makes x's GPU the current one if it isn't already, because Triton launches on the current GPU."""
    is_current = not x.is_cuda or x.get_device() == torch.cuda.current_device()
    return _NO_SWITCH if is_current else torch.cuda.device(x.get_device())


def _launch(kernel, n_elements: int, *tensors: torch.Tensor) -> None:
    """Launches a kernel on tensors without gaps that have the same strides. It writes to the first one.

    On every launch, Triton inspects all arguments to find the matching compiled kernel, which takes longer
    than the launch itself. Here the choice depends on only a few values, so we look the compiled kernel up in
    a dict and launch it directly.
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
    """Launches over up to four dimensions. Missing ones get size 1, which Triton optimizes away."""
    *sizes, n_inner = sizes
    *strides, inner_stride = strides
    n_outer = math.prod(sizes)
    missing = 3 - len(sizes)
    _, n1, n2 = [*sizes, *[1] * missing]
    inner = min(triton.next_power_of_2(n_inner), _STRIDED_BLOCK)
    outer = _STRIDED_BLOCK // inner
    grid = (triton.cdiv(n_inner, inner) * triton.cdiv(n_outer, outer),)
    strided_kernel[grid](
        y,
        x,
        n_outer,
        n_inner,
        n1,
        n2,
        *strides,
        *[0] * missing,
        inner_stride,
        GELU=gelu,
        WIDE=n_outer * n_inner >= 1 << 30,
        BLOCK_OUTER=outer,
        BLOCK_INNER=inner,
        num_warps=_STRIDED_WARPS,
    )


def _forward(kernel, x: torch.Tensor) -> torch.Tensor:
    require_dtype(x.dtype)
    require_place(x)
    y = torch.empty_like(x)  # the strides of x if x has no gaps, otherwise the same order of dimensions
    n_elements = x.numel()
    if n_elements == 0:
        return y
    with on_device_of(x):
        if y.stride() == x.stride():
            _launch(kernel, n_elements, y, x)
            return y
        sizes, strides = merge_dimensions(x, y)
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
            aligned = [t if t.stride() == dx.stride() else torch.empty_like(dx).copy_(t) for t in (g, x)]
            _launch(kernel, n_elements, dx, *aligned)
    return dx


def square_forward(x: torch.Tensor) -> torch.Tensor:
    """Returns x squared, for a float32, bfloat16 or float16 tensor of any shape and strides on a GPU (on the
    CPU if Triton interprets the kernels).
    """
    return _forward(square_elements_kernel, x)


def gelu_forward(x: torch.Tensor) -> torch.Tensor:
    """Returns GELU of x in its tanh form, as `torch.nn.functional.gelu(x, approximate="tanh")` does.

    The argument is that of `square_forward`.
    """
    return _forward(gelu_kernel, x)


def square_backward(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Returns 2 x g, the gradient for x. Arguments with other strides than the result are copied first."""
    return _backward(square_backward_kernel, g, x)


def gelu_backward(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Returns g times the derivative of GELU at x. Arguments whose strides differ from the result's are
    copied first.
    """
    return _backward(gelu_backward_kernel, g, x)
