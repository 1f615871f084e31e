"""Lab 08, Builds and failures: its exercises and their judges.

`exercises` has the exercises, `broken` the broken kernels, and `runs` runs both the broken and the fixed
ones; the last two contain no answers. What learners read about a mistake is in hints.toml.
"""
