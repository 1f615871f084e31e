"""The parts of `benchmarks/timer_truth.py`, which checks the timer.

`cases` has the functions that are timed and measures the truth about them, independently of the timer's
code. `rivals` has the timers, and `traps` functions for which a careless timer reports a wrong time.
`truth` compares every timer with the truth, `intervals` determines how often the timer's own intervals and
comparisons are correct, `children` runs what needs its own process, and `failures` collects what went
wrong.
"""
