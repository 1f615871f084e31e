"""Lab 07, Timers: its exercises and what judges them.

`exercises` has the exercises and the true times, `judge` says what is wrong with a figure, `machines` has the GPUs that
the learner's timers read.
"""
