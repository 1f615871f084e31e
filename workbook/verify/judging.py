"""Compare a candidate's results with the reference's: by bounds derived from the arithmetic, and as the
benchmark does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch

from helpers import check
from helpers.check.finding import percent
from helpers.check.matching import bits_of
from helpers.check.operation import Operation, operators_of
from helpers.check.results import Results, as_results, assert_result, expected_of
from helpers.timing.clock import now_s, wait_for_gpu
from workbook.usage import UsageError, first_line
from workbook.verify.accuracy import (
    TF32,
    imprecision,
    is_as_accurate,
    is_finite,
    is_near,
    n_different,
    only_moves,
    within_unknown_sums,
)
from workbook.verify.arguments import leaves, n_bytes, tensors_of, with_tensors
from workbook.verify.problem import BENCHMARK, BEYOND, Case, Problem
from workbook.verify.suspect import SLOW, Answer, Raised
from workbook.verify.verdict import LIMIT, NOTE, WRONG, Finding
from workbook.verify.wide import forced

_OUT_OF_MEMORY = ("CUDA out of memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")
_QUICK_S = 0.25
_MOST_KEPT = 2**30  # bytes
_T = TypeVar("_T")
NO_MEMORY = "Something is not judged: the GPU's memory is full."


class Judge:
    """Knows the reference.

    Attributes:
        compared: the labels of the cases that were compared.
        accepted: whether the benchmark's own tolerance accepted all of its own cases so far; None at first.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._case: Case | None = None
        self._kept: dict[str, Any] = {}  # what the reference computes in that case
        self.compared: list[str] = []
        self.accepted: bool | None = None

    @property
    def may_change(self) -> frozenset[int]:
        """The numbers of the argument tensors that the problem lets a candidate change."""
        return self._problem.may_change

    @property
    def is_in_place(self) -> bool:
        """Whether the problem reads and changes the same argument tensors."""
        return bool(self._problem.may_change - self._problem.unread)

    @property
    def returns_state(self) -> bool:
        """Whether a result of the reference is in memory that its model keeps."""
        return self._problem.returns_state

    def reference_aliases(self, case: Case) -> bool:
        """Whether the reference's own result shares memory with an argument, as a view does."""
        copies = [one.clone() for one in tensors_of(case.args)]
        found = as_results(self._reference(case)(*copies))
        addresses = {one.untyped_storage().data_ptr() for one in copies}
        return bool(found) and any(one.untyped_storage().data_ptr() in addresses for one in found.tensors)

    def reference_repeats(self, case: Case) -> bool:
        """Whether several of the reference's own results share memory."""
        found = [one for one in self.own_results(case) if one.numel()]
        return len({one.untyped_storage().data_ptr() for one in found}) < len(found)

    def reference_folds(self, case: Case) -> bool:
        """Whether several elements of the reference's own result are in the same memory."""
        found = self.own_results(case)
        spans = [
            1 + sum((n - 1) * step for n, step in zip(one.shape, one.stride(), strict=True)) for one in found
        ]
        return any(span < one.numel() for span, one in zip(spans, found, strict=True))

    def can_judge(self, case: Case) -> bool:
        """Whether the reference itself, in the inputs' dtype and in float64, is within the bounds, and finite
        if the inputs are.

        On some inputs (a variance of equal numbers, for example) no kernel can be accurate.
        """
        try:
            own = self._own(case)
            expected = self._expected(case)
            if is_finite(tensors_of(case.args)) and not is_finite((*expected.tensors, *own)):
                return False
            value = own[0] if expected.is_single else own
            assert_result(
                "the reference", value, self._reference(case), tensors_of(case.args),
                expected=expected, operation=self._operation(case),
            )  # fmt: skip
        except (check.Mismatch, UsageError, RuntimeError, TypeError, ValueError, LookupError, AssertionError):
            return False
        return True

    def is_quick(self, case: Case) -> bool:
        """Whether the reference takes so little time that it can be called some dozens of times for one
        comparison.
        """
        start = now_s()
        self.own_results(case)
        if torch.cuda.is_available():
            wait_for_gpu()
        return now_s() - start < _QUICK_S

    def returns_integers(self, case: Case) -> bool:
        """Whether a result holds integers, such as the positions of maxima, which depend on ties."""
        kinds = {one.dtype for one in self.own_results(case)}
        return any(not one.is_floating_point and one != torch.bool for one in kinds)

    def look_at(self, case: Case) -> set[str]:
        """Call the reference once.

        Returns:
            The operators of torch's dispatcher that it calls.

        Raises:
            Exception: whatever the reference raises.
        """
        return operators_of(lambda: self.own_results(case))

    def is_random(self, case: Case) -> bool:
        """Whether the reference draws random numbers on which its results depend, as dropout does."""
        generators = [torch.get_rng_state, *[torch.cuda.get_rng_state] * torch.cuda.is_available()]
        before = [state() for state in generators]
        first = self.own_results(case)
        draws = any(not torch.equal(state(), then) for state, then in zip(generators, before, strict=True))
        return draws and not all(map(torch.equal, first, self.own_results(case)))

    def with_reference(self, reference: Callable[..., Any]) -> Judge:
        """A judge of the same problem with another reference."""
        return Judge(replace(self._problem, reference=reference))

    def own_results(self, case: Case) -> tuple[torch.Tensor, ...]:
        """The reference's results in the inputs' dtype."""
        found = as_results(self._reference(case)(*(one.clone() for one in tensors_of(case.args))))
        if found is None:
            raise TypeError("it returned something else than tensors")
        return found.tensors

    def judge(
        self, case: Case, answer: Answer, *, for_benchmark: bool = False, poisoned: bool = False
    ) -> Finding | None:
        """What is wrong with the results of one call, or None.

        Args:
            for_benchmark: whether the benchmark would see these results, too.
            poisoned: whether allocations were filled with NaN before, so that NaN means never written.
        """
        self.compared.append(case.label)
        results = self._results(case, answer)
        if for_benchmark:
            self.ask_benchmark(case, answer)
        is_wrapped = not answer.is_single and len(results) == 1 and self._problem.format != "flashinfer"
        if is_wrapped and self._expected(case).is_single:
            says = "It returns one tensor in a tuple, list or dict; the reference returns the tensor itself."
            return Finding("wrong-result", LIMIT if case.role == BEYOND else WRONG, says, case.label)
        return self._judged(case, results, poisoned)

    def _results(self, case: Case, answer: Answer) -> tuple[torch.Tensor, ...]:
        """What a call returned; if nothing, the arguments that it may change as it has left them."""
        if answer.results or not self._problem.may_change:
            return answer.results
        flat = tensors_of(case.args)
        after = dict(zip(answer.changed, answer.arguments, strict=False))
        return tuple(after.get(i, flat[i].cpu()) for i in sorted(self._problem.may_change))

    def is_nearly_right(self, case: Case, answer: Answer) -> bool:
        """Whether results in float32 are off by less than rounding anything to TF32 would cause.

        Some ways to compute lose that much on values to which an operation is sensitive, such as a variance
        from the sum of squares if the mean is large.
        """
        expected = self._expected(case).tensors
        return len(expected) == len(answer.results) and all(
            is_near(got, e.to(got.device)) for got, e in zip(answer.results, expected, strict=True)
        )

    def judge_results(self, case: Case, results: Sequence[torch.Tensor]) -> Finding | None:
        """The same for results without the rest of an answer.

        Args:
            results: what the call returned. If a candidate returns nothing and the problem lets it change
                arguments: all argument tensors.
        """
        self.compared.append(case.label)
        flat = tensors_of(case.args)
        if self._problem.may_change and len(results) == len(flat):
            results = [results[i] for i in sorted(self._problem.may_change)]
        return self._judged(case, tuple(results))

    def judge_arguments(self, case: Case, answer: Answer) -> Finding | None:
        """Whether a call that returns its results leaves in its arguments what the reference leaves there.

        What the reference returns, too, needn't be there. The rest may be an output, such as an optimizer's
        moments, or scratch memory. So a candidate that changes none of it has a limit.
        """
        may_change = self._problem.may_change
        if not may_change or not answer.results:
            return None
        flat = tensors_of(case.args)
        copies = [one.clone() for one in flat]
        results = as_results(self._reference(case)(*copies)).tensors
        returned = {one.untyped_storage().data_ptr() for one in results}
        numbers = [
            i for i in sorted(may_change)
            if copies[i].untyped_storage().data_ptr() not in returned
            and not torch.equal(bits_of(copies[i]), bits_of(flat[i]))
        ]  # fmt: skip
        severity = WRONG if set(numbers) & set(answer.changed) else LIMIT
        after = dict(zip(answer.changed, answer.arguments, strict=False))
        for i in numbers:
            of_one = Judge(replace(self._problem, reference=self._left_in(i), may_change=frozenset()))
            if not of_one.can_judge(case):
                continue
            if wrong := of_one.judge_results(case, [after.get(i, flat[i].cpu())]):
                says = f"It doesn't leave in argument {i} what the reference leaves there."
                return Finding("skipped-work", severity, says, wrong.evidence)
        return None

    def _left_in(self, number: int) -> Callable[..., torch.Tensor]:
        """What the reference leaves in one argument tensor, as a function of its arguments."""

        def left(*args: Any) -> torch.Tensor:
            self._problem.reference(*args)
            return tensors_of(args)[number]

        return left

    def _judged(
        self, case: Case, results: tuple[torch.Tensor, ...], poisoned: bool = False
    ) -> Finding | None:
        severity = LIMIT if case.role == BEYOND else WRONG
        expected = self._expected(case)
        device = expected.tensors[0].device
        got = tuple(one.to(device) for one in results)
        own = self._own(case)
        permitted = self._problem.dtypes
        if len(got) == len(own) and (
            other := [
                (g, o) for i, (g, o) in enumerate(zip(got, own, strict=True))
                if g.dtype != o.dtype and g.dtype not in permitted.get(i, ())
            ]
        ):  # fmt: skip
            says = f"It returns {_name(other[0][0])}, but the reference returns {_name(other[0][1])}."
            return Finding("wrong-result", severity, says, case.label)
        value = got[0] if expected.is_single and len(got) == 1 else got
        try:
            assert_result(
                "the candidate", value, self._reference(case), tensors_of(case.args),
                case=case.label, expected=expected, operation=self._operation(case),
                precision=self._problem.precision,
            )  # fmt: skip
        except check.Mismatch as mismatch:
            if within_unknown_sums(case, got, own, expected) or (
                is_as_accurate(got, own, expected.tensors) and not self.can_judge(case)
            ):
                return None
            found = self._finding(mismatch, severity, got, expected)
            return found if poisoned or case.outputs else _without_poison(found, got)
        n_moved = sum(map(n_different, got, own))
        if n_moved and only_moves(tensors_of(case.args), own, expected.tensors):
            says = (
                f"The reference returns numbers of its inputs, and rounds nothing; {n_moved:,} of the "
                "candidate's results are other numbers."
            )
            return Finding("wrong-result", severity, says, case.label)
        return None

    def _finding(
        self,
        mismatch: check.Mismatch,
        severity: str,
        got: Any,
        expected: Results,
    ) -> Finding:
        first, *lines = str(mismatch).splitlines()
        evidence = "\n".join([first.removeprefix("the candidate on "), *lines])
        reason = mismatch.finding or mismatch.reason.rpartition(": ")[2].rstrip(".")
        reason = reason[0].upper() + reason[1:]
        if "never wr" in mismatch.finding:
            return Finding("never-written", severity, f"{reason}.", evidence)
        error = imprecision(got, expected.tensors)
        # The checker names TF32 only where factors are multiplied.
        is_tf32 = "TF32" in str(mismatch) and error > TF32
        if not is_tf32:
            evidence = "\n".join(line for line in evidence.splitlines() if "TF32" not in line)
        if error:
            which = (
                "It rounds factors to TF32"
                if is_tf32
                else "It computes with less precision than its inputs have"
            )
            says = f"{which}: the error's root mean square is {error:.1e} of the result's."
            return Finding("low-precision", severity, says, evidence)
        return Finding("wrong-result", severity, f"{reason}.", evidence)

    def ask_benchmark(self, case: Case, answer: Answer) -> None:
        """Let the benchmark's own tolerance judge the results of one of its cases."""
        tolerance = self._problem.tolerance
        if tolerance is None or case.role != BENCHMARK:
            return
        own, results = self._own(case), self._results(case, answer)
        try:
            accepts = bool(tolerance.accepts(tuple(one.to(own[0].device) for one in results), own, case))
        except Exception:  # the benchmark's comparison raises for other shapes or dtypes
            accepts = False
        self.accepted = accepts and self.accepted is not False

    def _own(self, case: Case) -> tuple[torch.Tensor, ...]:
        return self._computed_once(case, "own", lambda: self.own_results(case), n_bytes)

    def _expected(self, case: Case) -> Results:
        return self._computed_once(
            case, "expected", lambda: self._in_float64(case), lambda one: n_bytes(one.tensors)
        )

    def _operation(self, case: Case) -> Operation:
        size = n_bytes(self._expected(case).tensors)  # its bounds need about as much
        made = partial(Operation, self._reference(case), tuple(tensors_of(case.args)))
        return self._computed_once(case, "operation", made, lambda _: size)

    def _computed_once(
        self, case: Case, what: str, compute: Callable[[], _T], size: Callable[[_T], int]
    ) -> _T:
        """What the reference computes in a case. Of the last case it is kept, unless it needs much memory."""
        if self._case is not case:
            self._case, self._kept = case, {}
        if what in self._kept:
            return self._kept[what]
        found = compute()
        if size(found) <= _MOST_KEPT:
            self._kept[what] = found
        return found

    def _in_float64(self, case: Case) -> Results:
        try:
            with forced(case.args):
                return expected_of(self._problem.name, self._reference(case), tensors_of(case.args))
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError, LookupError, AssertionError) as error:
            says = f"{type(error).__name__}: {first_line(error)}"
            raise UsageError(f"{self._problem.name}: its reference fails in float64 ({says}).") from None

    def _reference(self, case: Case) -> Callable[..., Any]:
        """The reference as a function of the tensors alone."""

        def reference(*tensors: torch.Tensor) -> Any:
            args = with_tensors(case.args, tensors)
            value = self._problem.reference(*args)
            if value is None:
                flat = tensors_of(args)
                value = tuple(flat[i] for i in sorted(self._problem.may_change))
                return value[0] if len(value) == 1 else value
            return value if isinstance(value, torch.Tensor) else tuple(leaves(value))

        return reference


def lacks_memory(says: str) -> bool:
    """Whether an error says that the GPU's memory is full, which other programs use, too."""
    return any(one in says for one in _OUT_OF_MEMORY)


def of_error(error: Raised, case: Case) -> Finding:
    """The finding that a call raised an error."""
    if error.kind == SLOW:
        return Finding("raises", NOTE, f"Something is not judged: {error}.", case.label)
    if lacks_memory(str(error)):
        return Finding("raises", NOTE, NO_MEMORY, case.label)
    severity = LIMIT if case.role == BEYOND else WRONG
    return Finding("raises", severity, f"It fails: {error}.", case.label)


def _without_poison(found: Finding, got: Sequence[torch.Tensor]) -> Finding:
    """The same finding about memory that wasn't filled before, so that what looks like it is a result."""
    if found.check != "never-written":
        return found
    n_nan, n = sum(int(one.double().isnan().sum()) for one in got), sum(one.numel() for one in got)
    says = f"{percent(n_nan, n)} of the result is NaN." if n_nan else "Its result is wrong."
    evidence = "\n".join(line for line in found.evidence.splitlines() if "never wr" not in line)
    return Finding("wrong-result", found.severity, says, evidence)


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
