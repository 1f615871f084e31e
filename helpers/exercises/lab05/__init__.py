"""Lab 05, Nsight Compute: its exercises and what judges them.

`exercises` has the exercises, `reports` the launches of recorded Nsight Compute reports, `limiters` the rows whose
limiter is asked for; `unknown` the free exercise's report.
"""
