"""What `benchmarks/timer_truth.py` sets the timer against, and its parts.

`cases` has the functions that are timed and the truth about them, read from CUPTI apart from the timer's own code;
`rivals` the timers; `traps` functions that make a careless timer report a time that is not theirs. `truth` sets every timer
beside the truth, `intervals` asks how often the timer's own intervals and comparisons are right, `children` runs what needs
a process of its own, `failures` says what went wrong.
"""
