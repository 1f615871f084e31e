"""Lab 13, Can you trust this kernel?: its exercises and their judges.

`exercises` has the exercises, and `lesson` those inside lesson 13. `sums` adds rows in honest and in wrong
ways, for a bound to accept or to reject. `kernels` has the honest kernels and the frauds that a check judges.
`benchmarks` has the kernels that a benchmark times on the simulated GPU of `machines`. `roofline` makes
claims, some of them impossible, and `claim` has the data behind the free exercise, a `pull_request`.
`adapters`, `machines` and `pull_request` run next to the learner's functions and contain no answers. What
learners read about a mistake is in hints.toml.
"""
