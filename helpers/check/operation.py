"""Measure an operation for its bound: evaluate the reference again, in other dtypes and on other inputs."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from helpers.check.bounds import EXACT, Bound
from helpers.check.closeness import NARROW, STEP, as_rows, name_of, pieces
from helpers.check.dispatch import dispatch_mode

if TYPE_CHECKING:
    import torch

# Relative to each input; small enough to be linear, and far above float64's own roundings.
PERTURBATION = 2.0**-24
# Draws for integers: each changes the order of two equal numbers with a probability of a quarter. In every
# other one, inputs change four times as much: a GPU's fast division is off by up to two roundings.
_INTEGER_DRAWS = 96
_INTEGER_SIZES = (1.0, 4.0)
_N_ALIKE = 2  # of inputs of one shape, the first and the last ones are changed: a model can have dozens
_N_PROBES = 3  # single elements of each input that are changed, until this many have changed a result


def real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as a real one with a last dimension of 2; any other tensor unchanged."""
    import torch

    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def results_of(value: Any) -> tuple[Any, ...]:
    """What a function returned, as a tuple; complex tensors are converted by `real`."""
    import torch

    several = tuple(value) if isinstance(value, tuple | list) else (value,)
    return tuple(real(one) if isinstance(one, torch.Tensor) else one for one in several)


def widened(value: Any) -> Any:
    """An input in double precision; integers and values that are not tensors are unchanged."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


def operators_of(function: Callable[[], object]) -> set[str]:
    """The names of the operators of torch's dispatcher that a call of the function uses."""
    names: set[str] = set()

    class Recorder(dispatch_mode()):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.add(str(func))
            return func(*args, **(kwargs or {}))

    with Recorder():
        function()
    return names


@dataclass(frozen=True)
class Operation:
    """A reference and its inputs; the reference is evaluated again for each property that is measured.

    Attributes:
        reference: the function in plain PyTorch.
        inputs: the inputs in the kernel's dtype.
        seed: the seed of the signs and of the choice of single elements.
        known_bounds: the bounds that `bounds_of` has measured, by the results' dtypes and the precision.
    """

    reference: Callable
    inputs: tuple[Any, ...]
    seed: int = 0
    known_bounds: dict[Any, list[Bound | None]] = field(default_factory=dict, repr=False, compare=False)

    def in_own_dtype(self, exactly: bool = False) -> tuple[Any, ...] | None:
        """The reference's results in the inputs' dtype; None if it doesn't run in that dtype.

        Args:
            exactly: compute without TF32.
        """
        import torch

        copies = tuple(one.clone() if isinstance(one, torch.Tensor) else one for one in self.inputs)
        try:
            with without_tf32() if exactly else contextlib.nullcontext():
                return results_of(self.reference(*copies))
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError):
            return None  # "not implemented for 'Half'", or two dtypes in one product

    def perturbed(self, n_draws: int, sizes: Sequence[float] = (1.0,)) -> Iterator[tuple[Any, ...]]:
        """The float64 reference's results with each input x replaced by x * (1 +- 2**-24), with random
        signs; or by a multiple of that difference, for which the draws take turns.
        """
        if not any(self._floats()):
            return
        for draw in range(n_draws):
            wide = []
            for number, (one, is_float) in enumerate(zip(self.inputs, self._floats(), strict=True)):
                generator = self._generator(one, 1000 * draw + number) if is_float else None
                size = sizes[draw % len(sizes)] * PERTURBATION
                wide.append(_perturbed(one, generator, size) if is_float else widened(one))
            yield results_of(self.reference(*wide))

    def own_errors(self, n_draws: int, exactly: bool) -> Iterator[list[torch.Tensor | None]]:
        """The reference's own error in each result, as `own_error`, on inputs that differ by about one
        rounding of their dtype.
        """
        import torch

        for draw in range(n_draws if any(self._floats()) else 0):
            changed = []
            for number, (one, is_float) in enumerate(zip(self.inputs, self._floats(), strict=True)):
                if is_float:
                    generator = self._generator(one, -1000 * (draw + 1) - number)
                    one = _perturbed(one, generator, torch.finfo(one.dtype).eps).to(one.dtype)
                changed.append(one)
            own = Operation(self.reference, tuple(changed)).in_own_dtype(exactly)
            if own is None:
                return
            wide = results_of(self.reference(*map(widened, changed)))
            yield [own_error(own, i, widened(one)) for i, one in enumerate(wide)]

    def exact_results(self, number: int) -> Iterator[torch.Tensor]:
        """The other values that a result of integers, bools or float8 may have.

        These are the results in the inputs' dtype, and those with each input slightly changed.
        """

        if not any(self._floats()):
            return
        if (own_results := self.in_own_dtype()) is not None:
            yield own_results[number]
        with contextlib.suppress(RuntimeError, TypeError):  # references that refuse float64
            for results in self.perturbed(_INTEGER_DRAWS, _INTEGER_SIZES):
                yield results[number]

    def n_terms(self, expected: Sequence[Any]) -> list[float]:
        """For each result how many elements of one input it depends on, averaged over its elements."""
        import torch

        counts = [1.0] * len(expected)
        for number in self._unlike():
            one = self.inputs[number]
            generator = self._generator(one, -1 - number)
            indices = torch.randint(one.numel(), (4 * _N_PROBES,), generator=generator, device=one.device)
            n_effective = 0
            for index in dict.fromkeys([0, *indices.tolist()]):
                wide = [widened(value) for value in self.inputs]
                wide[number] = changed_input = wide[number].clone(memory_format=torch.contiguous_format)
                changed_input.view(-1)[index] += 1 + changed_input.view(-1)[index].abs().nan_to_num(0.0, 0.0)
                has_effect = False
                for i, (result, e) in enumerate(
                    zip(results_of(self.reference(*wide)), expected, strict=True)
                ):
                    changed = sum(
                        _n_changed(as_rows(result)[at], as_rows(e)[at]) for at in pieces(as_rows(e))
                    )
                    counts[i] = max(counts[i], changed * one.numel() / max(e.numel(), 1))
                    has_effect = has_effect or changed > 0
                n_effective += has_effect  # a change next to a NaN, or hidden by a maximum, doesn't count
                if n_effective == _N_PROBES:
                    break
        return counts

    def is_product(self, expected: Sequence[Any]) -> list[bool]:
        """For each result whether it is proportional to each of several float inputs, as a product is."""
        proportional = [self.n_float_inputs > 1] * len(expected)
        for number, is_float in enumerate(self._floats()):
            if is_float and any(proportional):
                wide = [widened(value) for value in self.inputs]
                wide[number] = 2 * wide[number]
                for i, (result, e) in enumerate(
                    zip(results_of(self.reference(*wide)), expected, strict=True)
                ):
                    rows, e = as_rows(result), as_rows(e)
                    proportional[i] &= not any(_n_changed(rows[at], 2 * e[at]) for at in pieces(e))
        return proportional

    def has_exact_factors(self, dtype: torch.dtype) -> bool:
        """Whether all float inputs have this dtype, and the products of such numbers are exact in float32."""
        floats = [one for one, is_float in zip(self.inputs, self._floats(), strict=True) if is_float]
        return name_of(dtype) in EXACT and all(one.dtype == dtype for one in floats)

    def convolves(self) -> bool:
        """Whether the reference calls a convolution of PyTorch."""
        return any("convolution" in name for name in operators_of(self.in_own_dtype))

    def n_in_tf32(self) -> int:
        """How many convolutions and recurrent layers may use TF32 when the reference calls them; cuDNN does
        so on some inputs and in some layouts.
        """
        import torch

        backends = {"convolution": torch.backends.cudnn.conv, "cudnn_rnn": torch.backends.cudnn.rnn}
        permitted: list[str] = []

        class Recorder(dispatch_mode()):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                permitted.extend(
                    name
                    for name, backend in backends.items()
                    if name in str(func) and backend.fp32_precision == "tf32"
                )
                return func(*args, **(kwargs or {}))

        with Recorder():
            self.in_own_dtype()
        return len(permitted)

    def largest_input(self) -> float:
        """The largest absolute value of the finite elements of the float inputs; 0.0 if there is none."""
        return max(
            (
                float(widened(real(one)).abs().nan_to_num_(0.0, 0.0, 0.0).max())
                for one, is_float in zip(self.inputs, self._floats(), strict=True)
                if is_float
            ),
            default=0.0,
        )

    def _unlike(self) -> list[int]:
        """The numbers of the float inputs; of several with one shape those of the first and last ones."""
        alike: dict[Any, list[int]] = defaultdict(list)
        for number, (one, is_float) in enumerate(zip(self.inputs, self._floats(), strict=True)):
            if is_float:
                alike[one.shape].append(number)
        return sorted({n for each in alike.values() for n in (*each[:_N_ALIKE], *each[-_N_ALIKE:])})

    @property
    def n_float_inputs(self) -> int:
        """How many inputs have floating-point elements."""
        return sum(self._floats())

    def _floats(self) -> list[bool]:
        import torch

        return [
            isinstance(one, torch.Tensor)
            and one.numel() > 0
            and (one.is_floating_point() or one.is_complex())
            for one in self.inputs
        ]

    def _generator(self, like: torch.Tensor, stream: int) -> torch.Generator:
        import torch

        return torch.Generator(device=like.device).manual_seed((self.seed * 65_537 + stream) % 2**31)


def _perturbed(one: torch.Tensor, generator: torch.Generator, size: float) -> torch.Tensor:
    """Multiply each element by 1 + or - size, with random signs, in double precision."""
    import torch

    wide = widened(one).clone(memory_format=torch.contiguous_format)
    rows = as_rows(wide)
    for at in pieces(rows):
        shape = rows[at].shape
        signs = torch.randint(0, 2, shape, generator=generator, device=wide.device, dtype=torch.int8)
        rows[at] *= signs.double().mul_(2 * size).add_(1 - size)
    return wide


def _n_changed(now: torch.Tensor, before: torch.Tensor) -> int:
    now = widened(now)
    differs = now != before
    return int((differs & ~(now.isnan() & before.isnan())).sum())


def difference(result: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
    return (result.double() - e).abs_().nan_to_num_(0.0, 0.0, 0.0)


def spread(rows: torch.Tensor) -> torch.Tensor:
    """Raise each error, (rows, columns), to at least the root mean square of its neighbors.

    A single error can be close to zero by chance.
    """
    import torch

    largest = float(rows.max()) if rows.numel() else 0.0
    if not largest:
        return rows
    spread = torch.empty_like(rows)
    step = max(1, STEP // rows.shape[1])
    for start in range(0, rows.shape[0], step):
        at = slice(start, start + step)
        squares = (rows[at] / largest).square_()
        if rows.shape[1] < NARROW:
            mean = squares.mean(dim=1, keepdim=True)
        else:
            mean = torch.nn.functional.avg_pool1d(
                squares.unsqueeze(1), NARROW, stride=1, padding=NARROW // 2, count_include_pad=False
            ).squeeze(1)
        spread[at] = torch.maximum(rows[at], mean.sqrt_().mul_(largest))
    return spread


def own_error(results: Sequence[Any] | None, number: int, expected: torch.Tensor) -> torch.Tensor | None:
    """|the reference in the inputs' dtype - in float64| as rows, smoothed; None if it doesn't run in it."""
    import torch

    found = results[number] if results is not None and number < len(results) else None
    if not isinstance(found, torch.Tensor) or found.shape != expected.shape:
        return None
    e, rows = as_rows(expected), as_rows(found)
    error = torch.empty(e.shape, dtype=torch.float32, device=e.device)
    for at in pieces(e):
        error[at] = difference(rows[at], e[at])
    return spread(error)


@contextlib.contextmanager
def without_tf32() -> Iterator[None]:
    """Compute PyTorch's float32 products, convolutions and recurrent layers on a GPU without TF32."""
    import torch

    backends = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        for backend, one in zip(backends, before, strict=True):
            backend.fp32_precision = one
