"""Run a kernel and its reference on the same fresh inputs, and compare what they give."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.check import closeness
from helpers.check.bounds import in_tf32, strict
from helpers.check.cases import one_normal, shapes_around, special
from helpers.check.closeness import Mismatch, name_of
from helpers.check.operation import Operation, bounds_of, results_of, widened
from helpers.check.poison import fill_with_poison, poison_free_memory, poisoned

if TYPE_CHECKING:
    import torch

_PRECISIONS = (None, "ieee", "tf32")


@dataclass(frozen=True)
class Agreement:
    """What `assert_matches` found right. Its text is the same on every machine."""

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
    """Raise `Mismatch` unless `kernel` computes what `reference` does, at the shapes and values where kernels often fail.

    A floating-point result may be off by the fixed tolerance of its dtype or by what the operation itself can reach on
    these inputs, which `helpers.check.bounds` explains. An integer or bool must be the reference's own, in float64, in
    the inputs' dtype, or with each input changed by less than one rounding, since a kernel may round x / s to 2 or 3.

    Args:
        kernel: takes the inputs (one tensor, unless `make_inputs` says otherwise), returns one tensor, or a tuple where
            the reference does. A function from torch.compile is given as it is: wrapped in another, poisoned
            allocations make torch run it uncompiled.
        reference: the same in plain torch; it is given the inputs in float64 (in their own dtype where it gives integers
            and refuses float64).
        shapes: the shapes to try; by default `shapes_around(block_size)`.
        block_size: the kernel's block, to try sizes just below, at and above it.
        timed_shape: the size that will be timed; it is tried as well.
        dtype: of the inputs; float32 by default.
        device: "cuda" where there is a GPU, else "cpu".
        make_inputs: `(shape, generator, device, dtype) -> tuple`, for kernels with several inputs; what is no tensor is
            handed on as it is.
        seed: of the inputs; by default a new one each time.
        tolerance: (relative, absolute) instead of all that; the dtypes' own are float32 2e-6 and 1e-6, float16 2e-3 and
            1e-4, bfloat16 1.6e-2 and 1e-3, float64 1e-12 and 1e-14.
        precision: "tf32" where float32 products may round their factors to TF32; "ieee" where they must not, although
            the reference does. By default they may where the reference, on the GPU with torch's present settings, does.
        out: the parameters that the kernel writes its results into, by name (`out="out"`) or by position (`out=-1`,
            `out=(2, 3)`), one for each result of the reference: it is handed tensors of the reference's shapes in the
            inputs' dtype, full of NaN, and what it returns is not looked at.
        name: what the kernel is called in messages.

    Returns:
        An `Agreement`, whose text is the same on every machine.

    Raises:
        Mismatch: which case, how many elements, the first of them with index, value and expected value, and how far
            the first may be off and why.
        ValueError: no shape to try, or an argument that means nothing.
    """
    import torch

    from helpers.device import has_gpu

    dtype = dtype or torch.float32
    device = device or ("cuda" if has_gpu() else "cpu")
    listed = list(shapes) if shapes is not None else shapes_around(block_size)
    if not listed and timed_shape is None:
        raise ValueError(
            "assert_matches() was given no shape to try: leave `shapes` out or name at least one."
        )
    if precision not in _PRECISIONS:
        raise ValueError(f'precision is "tf32", "ieee" or left out, not {precision!r}.')
    seed = random.randrange(2**31) if seed is None else seed
    asked = _Asked(
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
    cases = [tuple(s) for s in listed] + ([tuple(timed_shape)] if timed_shape is not None else [])
    for shape in cases:
        made = make(shape, generator, device, dtype)
        inputs = (made,) if isinstance(made, torch.Tensor) else tuple(made)
        _check_case(asked, inputs, f"shape {shape}, {name_of(dtype)}, seed {seed}")
    if make_inputs is None and shapes is None and dtype.is_floating_point:
        inputs = (special(generator, device, dtype),)
        _check_case(asked, inputs, f"special values, {name_of(dtype)}, seed {seed}")
    return Agreement(asked.name, tuple(tuple(s) for s in listed), name_of(dtype))


@dataclass(frozen=True)
class _Asked:
    """What stays the same from case to case."""

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


def _check_case(asked: _Asked, inputs: tuple[Any, ...], case: str) -> None:
    # Only `out` needs the reference first, for the shapes; what it gives is held until the end, so that the memory of
    # it cannot be handed to the kernel.
    first = _expected(asked, inputs) if asked.out else None
    got, is_one = _run(asked, inputs, case, first)
    expected, one_expected = first or _expected(asked, inputs)
    what = f"{asked.name} on {case}"
    if is_one != one_expected or len(got) != len(expected):
        raise Mismatch(
            f"{what}: it returned {_count(got, is_one)}, but {_count(expected, one_expected)} was expected."
        )
    cases = [case] if len(got) == 1 else [f"{case}, result {i}" for i in range(len(got))]
    for g, e, where in zip(got, expected, cases, strict=True):
        if tuple(g.shape) != tuple(e.shape):
            raise Mismatch(
                f"{asked.name} on {where}: shape {tuple(g.shape)}, but {tuple(e.shape)} was expected."
            )
        if e.is_floating_point() and not g.is_floating_point():
            raise Mismatch(
                f"{asked.name} on {where}: dtype {name_of(g.dtype)}, but a floating-point result was expected."
            )
    _compare(asked, Operation(asked.reference, inputs, asked.seed), got, expected, cases)


def _count(results: Sequence[Any], is_one: bool) -> str:
    return "one tensor" if is_one else f"{len(results)} results"


def _run(
    asked: _Asked, inputs: tuple[Any, ...], case: str, first: tuple[tuple[torch.Tensor, ...], bool] | None
) -> tuple[tuple[torch.Tensor, ...], bool]:
    """The kernel's results on copies of the inputs, and whether it is one tensor rather than a tuple of them."""
    import torch

    kernel, tensors = asked.kernel, [one for one in inputs if isinstance(one, torch.Tensor)]
    copies = tuple(one.clone() if isinstance(one, torch.Tensor) else one for one in inputs)
    arguments, named, buffers = _with_out(asked, copies, first)
    on_gpu = any(t.is_cuda for t in tensors)
    if on_gpu:
        poison_free_memory(max(t.numel() * t.element_size() for t in tensors))
    # torch.compile's code does not run under a dispatch mode, and allocates past it: the memory itself is poisoned.
    compiled = hasattr(kernel, "_torchdynamo_orig_callable") or isinstance(
        kernel, torch._dynamo.OptimizedModule
    )
    with contextlib.nullcontext() if compiled else poisoned():
        value = kernel(*arguments, **named)
    if on_gpu:
        torch.cuda.synchronize()
    value = value if not asked.out else buffers[0] if first and first[1] else buffers
    is_one = isinstance(value, torch.Tensor)
    if not is_one and not (
        isinstance(value, tuple | list) and value and all(isinstance(one, torch.Tensor) for one in value)
    ):
        raise Mismatch(f"{asked.name} on {case}: it returned {type(value).__name__}, not a tensor.")
    for i, (copy, original) in enumerate(zip(copies, inputs, strict=True)):
        if isinstance(copy, torch.Tensor) and not torch.equal(_bits(copy), _bits(original)):
            raise Mismatch(
                f"{asked.name} on {case}: it changed its input {i}; an out-of-place kernel must not."
            )
    return results_of(value), is_one


def _with_out(
    asked: _Asked, copies: tuple[Any, ...], first: tuple[tuple[torch.Tensor, ...], bool] | None
) -> tuple[list[Any], dict[str, torch.Tensor], tuple[torch.Tensor, ...]]:
    """The kernel's arguments by position and by name, poisoned outputs among them, and these outputs."""
    import torch

    if first is None:
        return list(copies), {}, ()
    expected, _ = first
    if len(asked.out) != len(expected):
        raise ValueError(
            f"out names {len(asked.out)} of {asked.name}'s parameters, but the reference has {len(expected)} results."
        )
    of_inputs = [one for one in copies if isinstance(one, torch.Tensor) and one.is_floating_point()]
    buffers = []
    for e in expected:
        dtype = of_inputs[0].dtype if of_inputs and e.is_floating_point() else e.dtype
        buffers.append(fill_with_poison(torch.empty(e.shape, dtype=dtype, device=e.device)))
    named = {at: one for at, one in zip(asked.out, buffers, strict=True) if isinstance(at, str)}
    n_placed = len(copies) + len(buffers) - len(named)
    arguments = list(copies)
    placed = {}
    for at, one in zip(asked.out, buffers, strict=True):
        if isinstance(at, int):
            if not -n_placed <= at < n_placed or at % n_placed in placed:
                raise ValueError(
                    f"out={at} is no free position among the {n_placed} arguments of {asked.name}."
                )
            placed[at % n_placed] = one
    for at in sorted(placed):
        arguments.insert(at, placed[at])
    return arguments, named, tuple(buffers)


def _expected(asked: _Asked, inputs: tuple[Any, ...]) -> tuple[tuple[torch.Tensor, ...], bool]:
    """What the reference gives, in float64, and whether it is one tensor rather than a tuple of them."""
    import torch

    try:
        value = asked.reference(*(widened(one) for one in inputs))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError):
        # bits of a float, or an operator that has no float64: only an exact result can do without it
        copies = (one.clone() if isinstance(one, torch.Tensor) else one for one in inputs)
        with contextlib.suppress(RuntimeError, TypeError):
            value = asked.reference(*copies)
            if not any(one.is_floating_point() for one in results_of(value)):
                return results_of(value), isinstance(value, torch.Tensor)
        raise
    results = results_of(value)
    if not results or not all(isinstance(one, torch.Tensor) for one in results):
        raise ValueError(
            f"the reference of {asked.name} gave {type(value).__name__}: it has to give a tensor, or a tuple of tensors."
        )
    results = tuple(one.double() if one.is_floating_point() else one for one in results)
    return results, isinstance(value, torch.Tensor)


def _compare(
    asked: _Asked,
    operation: Operation,
    got: Sequence[torch.Tensor],
    expected: Sequence[torch.Tensor],
    cases: Sequence[str],
) -> None:
    """Raise `Mismatch` for the first result that is further off than it may be."""
    import torch

    wrong = [_at_once(g, e, asked.tolerance) for g, e in zip(got, expected, strict=True)]
    failed = [i for i, one in enumerate(wrong) if one.any()]
    bounds: Sequence[Any] = [None] * len(wrong)
    lines = [""] * len(wrong)
    if asked.tolerance is None and any(not _never_close(got[i], expected[i], wrong[i]) for i in failed):
        try:
            bounds = bounds_of(operation, expected, [g.dtype for g in got], asked.precision)
        except torch.OutOfMemoryError:
            lines = ["What the operation itself can reach was not computed: the memory is too small."] * len(
                wrong
            )
    for i in failed:
        g, e, bound = got[i], expected[i], bounds[i]
        if not g.is_floating_point():
            for other in operation.exact_results(i):
                wrong[i] &= g != other.to(g.dtype)
        elif bound is not None:
            wrong[i] = closeness.outside(g, e, bound.allowed)
            lines[i] = _why(asked, bound, g, e, wrong[i])
        if n_wrong := int(wrong[i].sum()):
            raise Mismatch(closeness.message(asked.name, cases[i], g, e, wrong[i], n_wrong, lines[i]))


def _at_once(
    got: torch.Tensor, expected: torch.Tensor, tolerance: tuple[float, float] | None
) -> torch.Tensor:
    """The mask of what differs by more than the fixed tolerance, which needs nothing but the two results."""
    if not got.is_floating_point() or tolerance is not None:
        return closeness.wrong_elements(got, expected, tolerance)
    return closeness.outside(got, expected, strict(got.dtype, closeness.size_of_rows(expected)))


def _never_close(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> bool:
    """Whether no bound could make the wrong elements right: each is NaN or infinite, or should be; or an integer."""
    return not got.is_floating_point() or _first_finite(got, expected, wrong) is None


def _first_finite(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> tuple[int, ...] | None:
    """The first wrong element that is a number and should be one."""
    import torch

    rows, g, e = (closeness.as_rows(one) for one in (wrong, got, expected))
    for at in closeness.pieces(rows):
        found = (rows[at] & torch.isfinite(g[at]) & torch.isfinite(e[at].to(g.dtype))).nonzero()
        if len(found):
            row, column = found[0].tolist()
            flat = (row + (at[0].start or 0)) * rows.shape[1] + column + (at[1].start or 0)
            return tuple(int(one) for one in torch.unravel_index(torch.tensor(flat), got.shape))
    return None


def _why(asked: _Asked, bound: Any, got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> str:
    """The message's last line: how far the first wrong number may be off, and why."""

    index = _first_finite(got, expected, wrong)
    if index is None:
        return ""
    line = bound.says(index, expected)
    may_be_tf32 = asked.precision is None and bound.rounding.name == "float32" and bound.n_terms > 1
    if may_be_tf32 and not closeness.outside(got, expected, in_tf32(bound).allowed).any():
        line += ' With factors rounded to TF32 it would be right: say precision="tf32" if that is meant.'
    return line


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bits as integers, so that NaN equals itself."""
    import torch

    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    sizes = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(sizes[tensor.element_size()])
