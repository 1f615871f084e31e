"""Run a kernel and its reference on the same fresh inputs, and compare their results."""

from __future__ import annotations

import contextlib
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.check.cases import one_normal, shapes_around, special
from helpers.check.closeness import Mismatch, name_of
from helpers.check.poison import fill_with_poison, poison_free_memory, poisoned
from helpers.check.results import PRECISIONS, Results, as_results, assert_result, expected_of

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Agreement:
    """What `assert_matches` found correct. Its text is the same on every machine."""

    kernel: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str

    def __repr__(self) -> str:
        sizes = sorted(self.shapes, key=math.prod)
        shapes = (
            f"{len(sizes)} shapes from {sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"shape {sizes[0]}"
        )
        return f"{self.kernel} agrees with its float64 reference: {shapes}, {self.dtype}."


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
    precision: str | None = None,
    out: str | int | Sequence[str | int] | None = None,
    name: str | None = None,
) -> Agreement:
    """Raise `Mismatch` unless `kernel` computes what `reference` does, at shapes and values that often
    break kernels.

    A floating-point result may be off by the fixed tolerance of its dtype, or by what the operation itself
    can cause on these inputs (see `helpers.check.bounds`). An integer or bool must equal the reference's
    result in float64, in the inputs' dtype, or with each input changed by less than one rounding, because a
    kernel may round x / s to 2 or to 3.

    Args:
        kernel: takes the inputs (one tensor, unless `make_inputs` returns several) and returns one tensor,
            or a tuple if the reference does. Pass a function from torch.compile directly: if you wrap it in
            another function, the poisoned allocations make PyTorch run it uncompiled.
        reference: the same computation in plain PyTorch. It gets the inputs in float64 (in their own dtype
            if it returns integers and refuses float64).
        shapes: the shapes to test; by default `shapes_around(block_size)`.
        block_size: the kernel's block size; sizes just below, at and above it are tested.
        timed_shape: the size that will be timed; it is tested as well.
        dtype: the dtype of the inputs; float32 by default.
        device: "cuda" if there is a GPU, otherwise "cpu".
        make_inputs: `(shape, generator, device, dtype) -> tuple`, for kernels with several inputs; values
            that are not tensors are passed on unchanged.
        seed: the seed of the inputs; by default a new one each time.
        tolerance: (relative, absolute) instead of the rules above. The dtypes' fixed tolerances are float32
            2e-6 and 1e-6, float16 2e-3 and 1e-4, bfloat16 1.6e-2 and 1e-3, float64 1e-12 and 1e-14,
            float8_e4m3fn 7e-2 and 2e-3.
        precision: "tf32" if float32 products may round their factors to TF32; "ieee" if they must not,
            although the reference does. By default they may if the reference does, on the GPU with
            PyTorch's current settings.
        out: the parameters that the kernel writes its results into, by name (`out="out"`) or by position
            (`out=-1`, `out=(2, 3)`), one for each result of the reference. The kernel gets tensors of the
            reference's shapes in the inputs' dtype, filled with NaN, and its return value is ignored.
        name: what messages call the kernel.

    Returns:
        An `Agreement`, whose text is the same on every machine.

    Raises:
        Mismatch: the message names the case, the number of wrong elements, the first of them with index,
            value and expected value, and how far the first may be off and why.
        ValueError: there is no shape to try, or an argument is invalid.

    Example:
        >>> import torch
        >>> from helpers import check
        >>> check.assert_matches(lambda x: x * x, torch.square, shapes=[(3, 5), (0,)])
        the kernel agrees with its float64 reference: 2 shapes from (0,) to (3, 5), float32.
        >>> try:
        ...     check.assert_matches(lambda x: x + x, torch.square, shapes=[(3, 5)], seed=1)
        ... except check.Mismatch as mismatch:
        ...     print(str(mismatch).splitlines()[0])
        the kernel on shape (3, 5), float32, seed 1: 15 of 15 elements differ.
    """
    import torch

    from helpers.device import has_gpu

    dtype = dtype or torch.float32
    device = device or ("cuda" if has_gpu() else "cpu")
    base_shapes = list(shapes) if shapes is not None else shapes_around(block_size)
    if not base_shapes and timed_shape is None:
        raise ValueError("assert_matches() has no shape to try; omit `shapes` or pass at least one.")
    if precision not in PRECISIONS:
        raise ValueError(f'precision must be "tf32", "ieee" or None, not {precision!r}.')
    seed = random.randrange(2**31) if seed is None else seed
    comparison = _Comparison(
        name or _name(kernel),
        kernel,
        reference,
        seed=seed,
        tolerance=tolerance,
        precision=precision,
        out=() if out is None else (out,) if isinstance(out, str | int) else tuple(out),
    )
    generator = torch.Generator(device=device).manual_seed(seed)
    make = make_inputs or one_normal
    cases = [tuple(s) for s in base_shapes] + ([tuple(timed_shape)] if timed_shape is not None else [])
    for shape in cases:
        generated = make(shape, generator, device, dtype)
        inputs = (generated,) if isinstance(generated, torch.Tensor) else tuple(generated)
        _check_case(comparison, inputs, f"shape {shape}, {name_of(dtype)}, seed {seed}")
    if make_inputs is None and shapes is None and dtype.is_floating_point:
        inputs = (special(generator, device, dtype),)
        _check_case(comparison, inputs, f"special values, {name_of(dtype)}, seed {seed}")
    return Agreement(comparison.name, tuple(tuple(s) for s in base_shapes), name_of(dtype))


@dataclass(frozen=True)
class _Comparison:
    """What is the same for all cases."""

    name: str
    kernel: Callable
    reference: Callable
    seed: int
    tolerance: tuple[float, float] | None
    precision: str | None
    out: tuple[str | int, ...]


def _name(kernel: Callable) -> str:
    found = (
        getattr(kernel, "__name__", None) or getattr(kernel, "__qualname__", None) or type(kernel).__name__
    )
    return "the kernel" if found == "<lambda>" else found


def _check_case(comparison: _Comparison, inputs: tuple[Any, ...], case: str) -> None:
    # Only `out` needs the reference first, for the shapes. Its result stays referenced until the end, so that
    # the kernel cannot get its memory.
    expected = expected_of(comparison.name, comparison.reference, inputs) if comparison.out else None
    got = _run(comparison, inputs, case, expected)
    assert_result(
        comparison.name,
        got,
        comparison.reference,
        inputs,
        case=case,
        tolerance=comparison.tolerance,
        precision=comparison.precision,
        expected=expected,
        seed=comparison.seed,
    )


def _run(comparison: _Comparison, inputs: tuple[Any, ...], case: str, expected: Results | None) -> Any:
    """What the kernel returns on copies of the inputs, or writes into the outputs that it gets."""
    import torch

    kernel, tensors = comparison.kernel, [one for one in inputs if isinstance(one, torch.Tensor)]
    copies = tuple(one.clone() if isinstance(one, torch.Tensor) else one for one in inputs)
    arguments, outputs_by_name, buffers = _with_out(comparison, copies, expected)
    on_gpu = any(t.is_cuda for t in tensors)
    if on_gpu:
        poison_free_memory(max(t.numel() * t.element_size() for t in tensors))
    # torch.compile's code doesn't run under a dispatch mode, so its free memory was poisoned instead.
    dynamo = sys.modules.get("torch._dynamo")  # importing it takes seconds; without it nothing is compiled
    compiled = hasattr(kernel, "_torchdynamo_orig_callable") or (
        dynamo is not None and isinstance(kernel, dynamo.OptimizedModule)
    )
    with contextlib.nullcontext() if compiled else poisoned():
        value = kernel(*arguments, **outputs_by_name)
    if on_gpu:
        torch.cuda.synchronize()
    if expected is not None:
        value = buffers[0] if expected.is_single else buffers
    if as_results(value) is None:
        raise Mismatch(f"{comparison.name} on {case}: it returned {type(value).__name__}, not a tensor.")
    for i, (copy, original) in enumerate(zip(copies, inputs, strict=True)):
        if isinstance(copy, torch.Tensor) and not torch.equal(bits_of(copy), bits_of(original)):
            raise Mismatch(
                f"{comparison.name} on {case}: it changed its input {i}; an out-of-place kernel must not."
            )
    return value


def _with_out(
    comparison: _Comparison, copies: tuple[Any, ...], expected_results: Results | None
) -> tuple[list[Any], dict[str, torch.Tensor], tuple[torch.Tensor, ...]]:
    """The kernel's arguments by position and by name, including poisoned outputs, and these outputs."""
    import torch

    if expected_results is None:
        return list(copies), {}, ()
    expected = expected_results.tensors
    if len(comparison.out) != len(expected):
        raise ValueError(
            f"out names {len(comparison.out)} of {comparison.name}'s parameters, but the reference has "
            f"{len(expected)} results."
        )
    kind_tests = {torch.float64: torch.Tensor.is_floating_point, torch.complex128: torch.Tensor.is_complex}
    buffers = []
    for e in expected:
        same_kind = kind_tests.get(e.dtype, lambda one: False)
        dtype = next(
            (one.dtype for one in copies if isinstance(one, torch.Tensor) and same_kind(one)), e.dtype
        )
        buffers.append(fill_with_poison(torch.empty(e.shape, dtype=dtype, device=e.device)))
    outputs_by_name = {
        at: one for at, one in zip(comparison.out, buffers, strict=True) if isinstance(at, str)
    }
    n_positional = len(copies) + len(buffers) - len(outputs_by_name)
    arguments = list(copies)
    outputs_by_position = {}
    for at, one in zip(comparison.out, buffers, strict=True):
        if isinstance(at, int):
            if not -n_positional <= at < n_positional or at % n_positional in outputs_by_position:
                raise ValueError(
                    f"out={at} is not a free position among the {n_positional} arguments of "
                    f"{comparison.name}."
                )
            outputs_by_position[at % n_positional] = one
    for at in sorted(outputs_by_position):
        arguments.insert(at, outputs_by_position[at])
    return arguments, outputs_by_name, tuple(buffers)


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bits as integers of the same size, so that NaN equals itself."""
    import torch

    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    sizes = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(sizes[tensor.element_size()])
