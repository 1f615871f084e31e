"""Start the processes of a notebook under examination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbook.grade import stubs
from workbook.sandbox import bubblewrap
from workbook.sandbox.cgroup import Cgroup
from workbook.sandbox.process import Limits, Process


def start(
    told: Sequence[Mapping[str, Any]],
    exercises: str,
    limits: Limits,
    until: float,
    cgroup: Cgroup | None,
    lab: str = "",
) -> Process:
    """Start a process that serves `workbook.grade.worker`.

    Args:
        told: What a learner's process is told of the exercises that it is asked about (`stubs.stubs_of`).
        exercises: A Python file with further exercises, or "".
        limits, until, cgroup: As in `Process`.
        lab: For a clean process, which runs no cell of a learner: the lab whose exercises it knows whole. ""
            for a learner's process.

    Raises:
        WorkerDied: It did not come up.
    """
    settings = {"told": list(told), "lab": lab, "exercises": exercises}
    readable = [
        *filter(None, [exercises]),
        *(bubblewrap.HELPERS.iterdir() if lab else stubs.without_answers()),
    ]
    return Process("workbook.grade.worker", settings, readable, limits, until, cgroup)
