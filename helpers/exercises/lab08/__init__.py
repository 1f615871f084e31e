"""Lab 08, Failures: its exercises and what judges them.

`broken` has the kernels as they are given, `runs` runs them and what became of them on the host, `exercises` has the
exercises with the right diagnoses.
"""
