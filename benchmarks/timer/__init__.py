"""What `benchmarks/timer_truth.py` sets the timer against.

`cases` has the functions that are timed and the truth about them, read from CUPTI apart from the timer's own code;
`traps` has functions that make a careless timer report a time that is not theirs.
"""
