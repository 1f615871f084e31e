"""Lab 05, Nsight Compute: its exercises and what judges them.

`exercises` has the exercises, `reports` the launches of recorded Nsight Compute reports.
"""

from helpers.exercises.lab05.exercises import EXERCISES

__all__ = ["EXERCISES"]
