"""Lab 01, Profiling: its exercises and what judges them.

`exercises` has the exercises, `clocks` the judges of the clocks, `machines` the GPUs that they run on, `samples` the hidden data.
"""

from helpers.exercises.lab01.exercises import EXERCISES

__all__ = ["EXERCISES"]
