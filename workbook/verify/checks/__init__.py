"""The checks: each makes some calls and yields what it finds.

`correctness` compares single calls, `repetition` calls the candidate again and again, and `conduct` looks at
what it does besides computing.
"""

from workbook.verify.checks.conduct import library, watched
from workbook.verify.checks.correctness import (
    executed,
    late_results,
    layouts,
    parameters,
    results,
    values,
    values_of_sizes,
)
from workbook.verify.checks.repetition import again, alternated, known, memoized, repeated, stale

__all__ = [
    "again",
    "alternated",
    "executed",
    "known",
    "late_results",
    "layouts",
    "library",
    "memoized",
    "parameters",
    "repeated",
    "results",
    "stale",
    "values",
    "values_of_sizes",
    "watched",
]
