"""The exercises of lab 09, wide rows: merge the parts of a row, share a row among programs, and do so at the
speed of a copy.
"""

from __future__ import annotations

from dataclasses import replace

from helpers.exercises.factories import answer_exercise, kernel_exercise
from helpers.exercises.lab09 import adapters, rows
from helpers.exercises.plans import CasePlan, TrafficPlan

LAB = rows.LAB
OF_A_COPY = 0.9
WIDE = (960, 131_072)  # 503 MB of float32, the most that a graded process can send


_CASES = CasePlan(ndim=2, strides=False, shapes=rows.shapes, more_args=rows.places_for, extra=rows.wide_cases)

MERGE = answer_exercise(
    "merge-row-parts",
    LAB,
    "Merge the parts of a row",
    "merge_parts",
    rows.merge_cases,
    mistakes=rows.MERGE_MISTAKES,
    facts=lambda parts: {},
    tolerance=1e-9,
    adapters={"in_groups": adapters.in_groups},
    minutes=15,
)

SHARE = rows.recognize_deadlocks(
    kernel_exercise(
        "share-a-row",
        LAB,
        "Share a row among programs",
        "log_softmax_shared",
        lambda x, places: x.log_softmax(dim=1),
        cases=replace(_CASES, dtypes=("float32", "float16")),
        must_launch="triton",
        prepare=adapters.on_chip,
        tolerance=rows.TOLERANCE,
        speed_shape=WIDE,
        traffic=TrafficPlan(reads=2, program=rows.PART),
        mistakes=rows.MISTAKES,
        minutes=40,
    )
)

COPY = rows.recognize_deadlocks(
    kernel_exercise(
        "beat-the-copy",
        LAB,
        "A row of 131,072 at a copy's speed",
        "log_softmax_fast",
        lambda x, places: x.log_softmax(dim=1),
        cases=_CASES,
        must_launch="triton",
        prepare=adapters.on_chip,
        tolerance=rows.TOLERANCE,
        speed_shape=WIDE,
        speed_at_least=OF_A_COPY,
        traffic=TrafficPlan(reads=1, program=rows.PART, once_more=rows.too_small),
        mistakes=rows.MISTAKES,
        minutes=35,
    )
)

EXERCISES = (MERGE, SHARE, COPY)
