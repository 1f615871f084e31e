"""Verdicts on calls that raised: untouched starters, failed builds, accesses outside tensors."""

from __future__ import annotations

import re

from helpers.exercises.hints import HINTS
from helpers.exercises.model import Case, Hidden, Outcome, Verdict

_TO_DO = re.compile(r"NotImplementedError\(\s*[\"'](.*?)[\"']\s*\)", re.DOTALL)
_ERROR_LINE = re.compile(r"#error(?: directive)?:?\s+\"?([^\"\n]*)\"?")
_CAUSES = {
    "race": "race",
    "barrier": "barrier",
    "warp": "barrier",
    "uninitialised": "uninitialised-shared",
    "misaligned": "misaligned",
    "unwritten": "uninitialised-output",
}


def judge_error(exercise: str, name: str, case: Case, outcome: Outcome) -> Verdict:
    """The verdict on an outcome with an error."""
    text = to_do(outcome)
    if text is not None:
        sentence = f"{exercise} is not written yet: {text}" if text else f"{exercise} is not written yet."
        return Verdict(exercise, False, sentence, case.label, "to-do")
    mistake, message = _kind(name, case, outcome)
    where = f" (line {outcome.line})" if outcome.line else ""
    first, _, rest = message.partition("\n")
    if first == "The build failed:" and rest:
        first, _, rest = rest.partition("\n")
        first = f"the build failed: {first}"
    on = "" if mistake in ("not-callable", "does-not-build") else f", {case.label}"
    sentence = f"{exercise}{on}: {first.removesuffix('.')}{where}"
    sentence = sentence if sentence.endswith((".", ":")) else f"{sentence}."
    return Verdict(exercise, False, sentence, case.label, mistake, HINTS.get(mistake, ""), details=rest)


def to_do(outcome: Outcome) -> str | None:
    """The text of a starter's NotImplementedError or `#error`; None if the error is something else."""
    if outcome.error_type == "NotImplementedError":
        return outcome.error.partition(": ")[2].strip()
    if outcome.error_type == "BuildError":
        found = _ERROR_LINE.search(outcome.error)
        return found[1].strip() if found else None
    if "Compilation" in outcome.error_type or "Unsupported" in outcome.error_type:
        # Triton's compiler doesn't support `raise`; its message contains the source line.
        found = _TO_DO.search(outcome.error)
        return found[1] if found else None
    return None


def _kind(name: str, case: Case, outcome: Outcome) -> tuple[str, str]:
    if outcome.error_type == "NotCallable":
        return "not-callable", outcome.error
    if outcome.error_type == "BuildError":
        return "does-not-build", outcome.error.partition(": ")[2]
    if "Compilation" in outcome.error_type:  # Triton's: the source comes first and the reason last
        *source, reason = outcome.error.strip().splitlines()
        message = "\n".join([f"{name} raised {outcome.error_type}: {reason.strip()}", *source])
        return of_error(case, outcome), message
    return of_error(case, outcome), f"{name} raised {outcome.error}"


def of_error(case: Case, outcome: Outcome) -> str:
    """The kind of mistake behind an exception, from its message and its case."""
    import torch

    kind = case.expected.kind if isinstance(case.expected, Hidden) else "extra"
    x = next((one for one in case.args if isinstance(one, torch.Tensor)), None)
    message, cause = outcome.error.lower(), outcome.facts.get("cause")
    strided = x is not None and not x.is_contiguous()
    if cause in _CAUSES:
        return _CAUSES[cause]
    if "active driver" in message:
        return "no-gpu"
    if cause in ("out of bounds", "no tensor") or outcome.error_type == "OutsideEveryTensor":
        return "int32-overflow" if kind == "far" else "wrong-stride" if strided else "missing-mask"
    if "illegal memory access" in message:
        return "int32-overflow" if kind == "far" else "illegal-access"
    if "misaligned address" in message:
        return "misaligned"
    if "maximum tensor numel" in message:
        return "block-too-large"
    if outcome.error_type == "OverflowError" and (
        "math range" in message or "result out of range" in message
    ):
        return "exp-overflows"
    if "power of 2" in message or "power of two" in message:
        return "power-of-two-only"
    if kind == "empty" or (x is not None and not x.numel()):
        return "empty-fails"
    if kind in ("view", "far") or strided:
        return "contiguous-only"
    if kind == "dtype":
        return "dtype-fails"
    if kind == "size" and x is not None and x.numel() == 1:
        return "single-element"
    return "raises"
