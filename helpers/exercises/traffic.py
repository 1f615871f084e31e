"""Traffic without a GPU: the bytes that interpreted Triton kernels load and store, relative to those that
must move.
"""

from __future__ import annotations

import torch

from helpers.exercises.hints import HINTS
from helpers.exercises.model import Case, Exercise, Outcome, Verdict

_SLACK = 0.05  # of the input or the result: maxima, sums and words
_SMALLEST = 1 << 14  # elements: a smaller input's words, sums or maxima weigh as much as its rows


def judge_traffic(exercise: Exercise, case: Case, outcome: Outcome) -> tuple[Verdict | None, str]:
    """A failing verdict or None, and what was counted: "x read 1.00 times, the result written 1.00 times".

    Args:
        exercise, case, outcome: a call whose result is right. The text is empty if nothing was counted.
    """
    plan, facts, result = exercise.traffic, outcome.facts, outcome.value
    x = next((one for one in case.args if isinstance(one, torch.Tensor)), None)
    if plan is None or x is None or "read_bytes" not in facts or not isinstance(result, torch.Tensor):
        return None, ""
    if x.numel() < _SMALLEST:
        return None, ""
    may_read = plan.reads + (plan.once_more is not None and plan.once_more(case))
    reads = facts["read_bytes"] / (x.numel() * x.element_size())
    writes = facts["written_bytes"] / (result.numel() * result.element_size())
    slack = f"plus {_SLACK:.0%} for maxima and sums"
    if facts["most_read"] > plan.program:
        mistake, what = "row-not-shared", f"one program read {facts['most_read']:,} elements of the input"
        what += f"; at most {plan.program:,} are allowed"
    elif reads > may_read + _SLACK:
        mistake = "reads-too-often"
        what = f"the kernels read {reads:.2f} times the input's bytes, more than the allowed {may_read:g}"
        what += f" {slack}"
    elif writes > 1 + _SLACK:
        mistake = "writes-too-often"
        what = f"the kernels write {writes:.2f} times the result's bytes, more than the allowed 1 {slack}"
    else:
        return None, f"the input read {reads:.2f} times, the result written {writes:.2f} times"
    sentence = f"{exercise.id}, {case.label}: the values are right, but {what}."
    return Verdict(exercise.id, False, sentence, case.label, mistake, HINTS[mistake]), ""
