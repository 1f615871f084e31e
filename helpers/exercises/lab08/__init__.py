"""Lab 08, Builds and failures: its exercises and their judges.

`exercises` has the exercises, and `lesson` the small ones inside the lesson. `broken` has the broken kernels,
and `runs` runs both the broken and the fixed ones; these two contain no answers. What learners read
about a mistake is in hints.toml.
"""
