"""Judge one call of a kernel: errors, type of the result, inputs, guard bands, values, launches; the plainest
mistake first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace

import torch

from helpers import check
from helpers.exercises import diagnose, errors, evidence, guard
from helpers.exercises.hints import HINTS
from helpers.exercises.mistakes import Table
from helpers.exercises.model import AGAIN, SPEED, Case, Hidden, Outcome, Verdict
from helpers.exercises.portable import same_bits, type_with_article

_MOST_LISTED = 4


@dataclass(frozen=True)
class KernelJudge:
    """Compares a kernel's result with its reference in float64, which is only computed now."""

    exercise: str
    name: str
    reference: Callable
    mistakes: Table
    must_launch: str = ""
    tolerance: tuple[float, float] | Mapping[str, tuple[float, float]] | None = None

    def __call__(self, case: Case, outcome: Outcome) -> Verdict | None:
        hidden = case.expected if isinstance(case.expected, Hidden) else Hidden("extra", value=case.expected)
        if outcome.error:
            return self._error(case, outcome)
        args, before = effective(case)
        expected = hidden.value if hidden.value is not None else self.expected(args)
        return (
            self._result(case, outcome, args, expected)
            or self._inputs(case, outcome, args)
            or self._values(case, outcome, args, before, hidden, expected)
            or self._memory_and_launches(case, outcome)
        )

    def _error(self, case: Case, outcome: Outcome) -> Verdict:
        verdict = errors.judge_error(self.exercise, self.name, case, outcome)
        found = self.mistakes.first_match(SimpleNamespace(got=outcome))
        if found is None or verdict.mistake == "to-do":
            return verdict
        return replace(verdict, mistake=found.key, hint=found.hint)

    def expected(self, args: tuple) -> torch.Tensor:
        """The reference's result for plain arguments, floating-point tensors in float64."""
        return self.reference(*(evidence.in_float64(one) for one in args))

    def tolerance_for(self, dtype: torch.dtype) -> tuple[float, float] | None:
        if isinstance(self.tolerance, Mapping):
            return self.tolerance.get(str(dtype).removeprefix("torch."))
        return self.tolerance

    def _wrong(self, case: Case, what: str, mistake: str, hint: str = "", details: str = "") -> Verdict:
        sentence = f"{self.exercise}, {case.label}: {what}."
        hint = hint or HINTS.get(mistake, "")
        return Verdict(self.exercise, False, sentence, case.label, mistake, hint, details=details)

    def _result(self, case: Case, outcome: Outcome, args: tuple, expected: torch.Tensor) -> Verdict | None:
        got = outcome.value
        if not isinstance(got, torch.Tensor):
            what = "nothing" if got is None else f"{type_with_article(got)} instead of a tensor"
            return self._wrong(case, f"{self.name} returned {what}", "no-tensor")
        first = next((one for one in args if isinstance(one, torch.Tensor)), expected)
        if got.shape != expected.shape:
            transposed = got.dim() > 1 and tuple(got.shape) == tuple(reversed(expected.shape))
            what = f"the result has shape {tuple(got.shape)}, but it should be {tuple(expected.shape)}"
            return self._wrong(case, what, "transposed" if transposed else "wrong-shape")
        if got.dtype != first.dtype:
            given, right = (str(dtype).removeprefix("torch.") for dtype in (got.dtype, first.dtype))
            what = f"the result is {given}, but it should be {right}"
            return self._wrong(case, what, "wrong-dtype")
        if outcome.facts.get("device", first.device.type) != first.device.type:
            what = f"the result is on {outcome.facts['device']}, but the input is on {first.device.type}"
            return self._wrong(case, what, "wrong-device")
        return None

    def _inputs(self, case: Case, outcome: Outcome, args: tuple) -> Verdict | None:
        for number, (after, given) in enumerate(zip(outcome.args_after, args, strict=False)):
            if isinstance(given, torch.Tensor) and not same_bits(after.to(given.device), given):
                which = f"input {number}" if len(args) > 1 else "its input"
                same = " and returned it" if outcome.facts.get("same_memory") else ""
                return self._wrong(case, f"{self.name} changed {which}{same}", "in-place")
        return None

    def _values(self, case, outcome: Outcome, args, before, hidden: Hidden, expected) -> Verdict | None:
        got = outcome.value.to(expected.device)
        tolerance = self.tolerance_for(got.dtype)
        wrong = check.wrong_elements(got, expected, tolerance)
        n_wrong = int(wrong.sum())
        facts = outcome.facts
        outside = facts.get("guard_writes", 0)
        if not n_wrong and not outside and not facts.get("guard_reads") and not facts.get("gap_writes"):
            return None
        seen = evidence.Evidence(
            case=case,
            kind=hidden.kind,
            args=args,
            before=before,
            got=got,
            expected=expected,
            wrong=wrong,
            facts=facts,
            reference=self.expected,
            tolerance=tolerance,
        )
        mistake, what, hint = diagnose.of_values(seen, self.mistakes)
        if not n_wrong:
            return self._wrong(case, what, mistake, hint)
        share = "all" if n_wrong == got.numel() else f"{n_wrong:,} of {got.numel():,}"
        one = (
            "its only element is"
            if got.numel() == 1
            else f"{share} elements {'is' if n_wrong == 1 else 'are'}"
        )
        return self._wrong(
            case,
            f"{one} wrong{'; ' + what if what else ''}",
            mistake,
            hint,
            first_wrong(got, expected, wrong),
        )

    def _memory_and_launches(self, case: Case, outcome: Outcome) -> Verdict | None:
        if outcome.facts.get("earlier_changed"):
            what = f"the result of the previous call changed when {self.name} was called again"
            return self._wrong(case, what, "shared-output")
        launched = outcome.facts.get("launched")
        if self.must_launch and launched == [] and outcome.value.numel():
            kernel = {"triton": "Triton kernel", "cuda": "CUDA kernel"}[self.must_launch]
            sentence = (
                f"{self.name} launched no {kernel}: its result is right, but something else computed it."
            )
            return Verdict(self.exercise, False, sentence, case.label, "no-launch", HINTS["no-launch"])
        if outcome.facts.get("computed") and outcome.value.numel():
            operations = ", ".join(outcome.facts["computed"][:_MOST_LISTED])
            what = f"the result is right, but {self.name} calls torch's {operations}"
            what += ", although all computation is the kernel's work"
            return self._wrong(case, what, "torch-computes")
        return None


def effective(case: Case) -> tuple[tuple, tuple]:
    """The arguments that a case's expected result is for, and those of earlier calls."""
    before = case.expected.before if isinstance(case.expected, Hidden) else ()
    args = tuple(one[guard.FAR] if isinstance(one, dict) and guard.FAR in one else one for one in case.args)
    if case.call == AGAIN:
        half = len(args) // 2
        pairs = zip(args[:half], args[half:], strict=True)
        args = tuple(new if isinstance(new, torch.Tensor) else old for old, new in pairs)
    elif case.call == SPEED:
        args = ()
    return args, before


def first_wrong(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> str:
    """The first wrong elements, one per line: index, value, and expected value in the result's dtype."""
    indices = wrong.nonzero()
    lines = []
    for index in indices[:_MOST_LISTED].tolist():
        at = tuple(index)
        lines.append(f"  at {at}: got {_number(got[at])}, expected {_number(expected[at].to(got.dtype))}")
    if len(indices) > _MOST_LISTED:
        lines.append(f"  … and {len(indices) - _MOST_LISTED:,} more")
    return "\n".join(lines)


def _number(value: torch.Tensor) -> str:
    return f"{value.item():.7g}" if value.is_floating_point() else str(value.item())
