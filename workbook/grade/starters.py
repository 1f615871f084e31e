"""What the labs gave to the learners, so that it isn't taken for their work."""

from __future__ import annotations

import functools
import json

from helpers.lab import STARTERS
from workbook.grade.notebook import Submission, bound


@functools.cache
def cells() -> dict[str, tuple[str, ...]]:
    """The starter cells of each exercise."""
    given = json.loads(STARTERS.read_text("utf-8"))
    return {exercise: tuple(one.get("cells", {}).values()) for exercise, one in given.items()}


def untouched(submission: Submission, exercise: str) -> bool:
    """Whether an exercise is as its starter has it, and no other cell above its check defines its names."""
    given = [_stripped(source) for source in cells().get(exercise, ())]
    if not given or _stripped(submission.code[exercise]) != "\n\n".join(given):
        return False
    names = set().union(*map(bound, given))
    above = submission.cells[: submission.checks[exercise]]
    return not any(names & bound(one.source) for one in above if _stripped(one.source) not in given)


def _stripped(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())
