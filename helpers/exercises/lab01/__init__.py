"""Lab 01, Profiling: its exercises and what judges them.

`exercises` has the exercises, `clocks` the judges of the clocks, `machines` the GPUs that they run on, `samples` and
`traces` the hidden data, `beside` what runs beside the learner's functions; `step` the recorded step of the free
exercise.
"""
