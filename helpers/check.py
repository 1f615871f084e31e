"""Compare a kernel with a reference so that a wrong one cannot pass.

The order matters. The candidate runs first, on its own copies of fresh random inputs, while every allocation made
with torch.empty is filled with NaN: an output element that the kernel never writes stays NaN, and no earlier right
answer can be lying in the memory. Only then is the reference computed, in float64.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# (relative, absolute) for a kernel that rounds a few times on its way. float64 references make these honest.
_TOLERANCE = {
    "float64": (1e-12, 1e-14),
    "float32": (2e-6, 1e-6),
    "float16": (2e-3, 1e-4),
    "bfloat16": (1.6e-2, 1e-3),
}
_SENTINEL = 0x5A  # a byte that fills integer outputs: no kernel here writes 0x5A5A5A5A by chance
_SHOWN = 4


class Mismatch(AssertionError):
    """A kernel does not compute what its reference does; the message says which case, where, and by how much."""


@dataclass(frozen=True)
class Agreement:
    """What `assert_matches` found right. Its text is the same on every machine."""

    kernel: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str

    def __repr__(self) -> str:
        sizes = sorted(self.shapes, key=_numel)
        shapes = (
            f"{len(sizes)} shapes from {sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"shape {sizes[0]}"
        )
        return f"{self.kernel} agrees with its float64 reference: {shapes}, {self.dtype}."


def _numel(shape: Sequence[int]) -> int:
    n = 1
    for size in shape:
        n *= size
    return n


def fill_with_poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill a tensor in place with NaN where its dtype has it, with 0x5A bytes elsewhere, and return it."""
    import torch

    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.fill_(float("nan"))
    if tensor.dtype is torch.bool:
        return tensor.fill_(True)
    return tensor.fill_(int.from_bytes(bytes([_SENTINEL]) * tensor.element_size(), "little", signed=True))


def empty_allocations() -> set:
    """The operators of torch's dispatcher that hand out memory without filling it."""
    import torch

    aten = torch.ops.aten
    return {
        aten.empty.memory_format,
        aten.empty_like.default,
        aten.empty_strided.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
    }


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Fill everything that torch.empty, empty_like, empty_strided and new_empty hand out with NaN (integers: 0x5A bytes).

    It acts in torch's dispatcher, so allocations made in C++ extensions are filled too.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    allocations = empty_allocations()

    class Poison(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return fill_with_poison(result) if func in allocations else result

    with Poison():
        yield


def _poison_free_memory(n_bytes: int, count: int = 8) -> None:
    """Leave NaN in the blocks that CUDA's caching allocator will hand out next.

    For code that allocates past torch's dispatcher, as torch.compile's does.
    """
    import torch

    blocks = [
        torch.empty(max(n_bytes, 1), dtype=torch.uint8, device="cuda").fill_(0xFF) for _ in range(count)
    ]
    del blocks


def shapes_around(block_size: int | None = None) -> list[tuple[int, int]]:
    """The 2-D shapes (n_rows, n_cols) where kernels break: empty, one element, and around powers of two and the block."""
    widths = {1, 2, 31, 32, 33, 127, 128, 129, 781, 1023, 1024, 1025}
    if block_size:
        widths |= {block_size - 1, block_size, block_size + 1, 2 * block_size + 1} - {0, -1}
    if block_size is None or block_size <= 4096:
        widths.add(4096)  # BLOCK_SIZE 1024 on N = 4096 squares a quarter of a row: it must never pass
    rows = (1, 3, 2, 5)
    shapes = [(0, 0), (0, 5), (3, 0)]
    return shapes + [(rows[i % len(rows)], width) for i, width in enumerate(sorted(widths))]


def assert_matches(
    kernel: Callable,
    reference: Callable,
    *,
    shapes: Sequence[tuple[int, ...]] | None = None,
    block_size: int | None = None,
    timed_shape: tuple[int, ...] | None = None,
    dtype: torch.dtype | None = None,
    device: str | None = None,
    make_inputs: Callable | None = None,
    seed: int | None = None,
    tolerance: tuple[float, float] | None = None,
    name: str | None = None,
) -> Agreement:
    """Raise `Mismatch` unless `kernel` computes what `reference` does, at the shapes and values where kernels often fail.

    Args:
        kernel: takes the inputs (one tensor, unless `make_inputs` says otherwise), returns one tensor. A function from
            torch.compile is given as it is: wrapped in another, poisoned allocations make torch run it uncompiled.
        reference: the same in plain torch; it is given the inputs in float64.
        shapes: the shapes to try; by default `shapes_around(block_size)`.
        block_size: the kernel's block, to try sizes just below, at and above it.
        timed_shape: the size that will be timed; it is tried as well.
        dtype: of the inputs; float32 by default.
        device: "cuda" where there is a GPU, else "cpu".
        make_inputs: `(shape, generator, device, dtype) -> tuple of tensors`, for kernels with several inputs.
        seed: of the inputs; by default a new one each time.
        tolerance: (relative, absolute) instead of the dtype's own: float32 2e-6 and 1e-6, bfloat16 1.6e-2 and 1e-3.
        name: what the kernel is called in messages.

    Returns:
        An `Agreement`, whose text is the same on every machine.

    Raises:
        Mismatch: which case, how many elements, the first of them with index, value and expected value.
        ValueError: no shape to try.
    """
    import torch

    from helpers.device import has_gpu

    dtype = dtype or torch.float32
    device = device or ("cuda" if has_gpu() else "cpu")
    name = name or _name(kernel)
    listed = list(shapes) if shapes is not None else shapes_around(block_size)
    if not listed and timed_shape is None:
        raise ValueError(
            "assert_matches() was given no shape to try: leave `shapes` out or name at least one."
        )
    seed = random.randrange(2**31) if seed is None else seed
    generator = torch.Generator(device=device).manual_seed(seed)
    make = make_inputs or _one_normal
    cases = [tuple(s) for s in listed] + ([tuple(timed_shape)] if timed_shape is not None else [])
    for shape in cases:
        inputs = make(shape, generator, device, dtype)
        _check_case(
            name, kernel, reference, inputs, f"shape {shape}, {_dtype_name(dtype)}, seed {seed}", tolerance
        )
    if make_inputs is None and shapes is None and dtype.is_floating_point:
        inputs = (_special(generator, device, dtype),)
        _check_case(
            name, kernel, reference, inputs, f"special values, {_dtype_name(dtype)}, seed {seed}", tolerance
        )
    return Agreement(name, tuple(tuple(s) for s in listed), _dtype_name(dtype))


def _name(kernel: Callable) -> str:
    found = (
        getattr(kernel, "__name__", None) or getattr(kernel, "__qualname__", None) or type(kernel).__name__
    )
    return "the kernel" if found == "<lambda>" else found


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _one_normal(shape, generator, device, dtype) -> tuple[torch.Tensor]:
    import torch

    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(dtype),)
    return (torch.randint(-100, 100, shape, generator=generator, device=device).to(dtype),)


def _special(generator, device, dtype) -> torch.Tensor:
    """A (4, 257) input with NaN, both infinities, both zeros and a subnormal among ordinary values."""
    import torch

    (x,) = _one_normal((4, 257), generator, device, dtype)
    values = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, torch.finfo(dtype).tiny / 2]
    where = torch.randperm(x.numel(), generator=generator, device=device)[: len(values)]
    x.view(-1)[where] = torch.tensor(values, device=device, dtype=dtype)
    return x


def _check_case(name, kernel, reference, inputs, case, tolerance) -> None:
    import torch

    copies = tuple(t.clone() for t in inputs)
    on_gpu = any(t.is_cuda for t in inputs)
    if on_gpu:
        _poison_free_memory(max(t.numel() * t.element_size() for t in inputs))
    # torch.compile's code does not run under a dispatch mode, and allocates past it: the memory itself is poisoned.
    compiled = hasattr(kernel, "_torchdynamo_orig_callable") or isinstance(
        kernel, torch._dynamo.OptimizedModule
    )
    with contextlib.nullcontext() if compiled else poisoned():
        got = kernel(*copies)
    if on_gpu:
        torch.cuda.synchronize()
    if not isinstance(got, torch.Tensor):
        raise Mismatch(f"{name} on {case}: it returned {type(got).__name__}, not a tensor.")
    for i, (copy, original) in enumerate(zip(copies, inputs, strict=True)):
        if not torch.equal(_bits(copy), _bits(original)):
            raise Mismatch(f"{name} on {case}: it changed its input {i}; an out-of-place kernel must not.")
    wide = tuple(t.double() if t.is_floating_point() else t for t in inputs)
    expected = reference(*wide)
    if tuple(got.shape) != tuple(expected.shape):
        raise Mismatch(
            f"{name} on {case}: shape {tuple(got.shape)}, but {tuple(expected.shape)} was expected."
        )
    if expected.is_floating_point() and not got.is_floating_point():
        raise Mismatch(
            f"{name} on {case}: dtype {_dtype_name(got.dtype)}, but a floating-point result was expected."
        )
    assert_close(name, got, expected, case=case, tolerance=tolerance)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bits as integers, so that NaN equals itself."""
    import torch

    sizes = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(sizes[tensor.element_size()])


def tolerance_of(dtype: torch.dtype) -> tuple[float, float]:
    """(relative, absolute) within which a result of this floating-point dtype must lie."""
    return _TOLERANCE[_dtype_name(dtype)]


def wrong_elements(
    got: torch.Tensor, expected: torch.Tensor, tolerance: tuple[float, float] | None = None
) -> torch.Tensor:
    """A mask, True where `got` differs from `expected` (float64, same shape) by more than the tolerance of `got`'s dtype.

    NaN, +Inf and -Inf are compared as masks: each must stand where it should and nowhere else.
    """
    import torch

    if not got.is_floating_point():
        return got != expected.to(got.dtype)
    relative, absolute = tolerance or tolerance_of(got.dtype)
    # What overflows in this dtype is expected to be infinite in it. Chunked, as float64 copies of a timed size are large.
    wrong = torch.empty(got.shape, dtype=torch.bool, device=got.device)
    flat, flat_got, flat_expected = wrong.view(-1), got.reshape(-1), expected.reshape(-1)
    step = 1 << 24
    for start in range(0, got.numel(), step):
        g, e = flat_got[start : start + step], flat_expected[start : start + step]
        target = e.to(got.dtype)
        finite = torch.isfinite(g) & torch.isfinite(target)
        close = (g.double() - e).abs() <= absolute + relative * e.abs()
        same = (g == target) | (torch.isnan(g) & torch.isnan(target))
        flat[start : start + step] = torch.where(finite, ~close, ~same)
    return wrong


def assert_close(
    name: str,
    got: torch.Tensor,
    expected: torch.Tensor,
    *,
    case: str = "these inputs",
    tolerance: tuple[float, float] | None = None,
) -> None:
    """Raise `Mismatch` unless `got` equals `expected` (float64, same shape) within the tolerance of `got`'s dtype.

    NaN, +Inf and -Inf are compared as masks: each must stand where it should and nowhere else.
    """
    wrong = wrong_elements(got, expected, tolerance)
    n_wrong = int(wrong.sum())
    if n_wrong:
        raise Mismatch(_message(name, case, got, expected, wrong, n_wrong))


def _message(name, case, got, expected, wrong, n_wrong: int) -> str:
    import torch

    where = wrong.nonzero()
    lines = [f"{name} on {case}: {n_wrong:,} of {got.numel():,} elements differ."]
    for index in where[:_SHOWN].tolist():
        at = tuple(index)
        want = expected[at].to(got.dtype)  # float64 says digits that the result cannot have
        lines.append(f"  at {at}: got {got[at].item():.7g}, expected {want.item():.7g}")
    if n_wrong > _SHOWN:
        lines.append(f"  … and {n_wrong - _SHOWN:,} more")
    never = bool(torch.isnan(got[wrong]).all()) if got.is_floating_point() else False
    if never and not torch.isnan(expected[wrong]).any():
        lines.append(
            "  Every wrong element is NaN: the output was filled with NaN, and the kernel never wrote them."
        )
    if got.dim() == 2 and n_wrong > 1:
        columns = where[:, 1]
        first = int(columns.min())
        if first > 0 and n_wrong == got.shape[0] * (got.shape[1] - first):
            lines.append(f"  Only the first {first:,} of {got.shape[1]:,} columns are right.")
    return "\n".join(lines)
