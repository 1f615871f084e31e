"""Lab 05, Nsight Compute: its exercises and what judges them.

`exercises` has the exercises, `reports` the launches of recorded Nsight Compute reports, and `limiters` the
rows whose limiter is asked for. `unknown` has the free exercise's report. What learners read about a mistake
is in hints.toml.
"""
