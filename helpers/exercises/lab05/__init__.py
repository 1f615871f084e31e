"""Lab 05, Nsight Compute: its exercises and their judges.

`exercises` has the exercises, `reports` the launches of recorded Nsight Compute reports, and `limiters` the
rows whose limiter learners name. `lesson` has the small exercises inside the lesson. `unknown` has the free
exercise's report. What learners read about a mistake is in hints.toml.
"""
