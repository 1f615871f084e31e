"""Lab 01, Profiling: its exercises and their judges.

`exercises` has the exercises, `clocks` those about clocks, and `machines` the GPUs that these clocks read.
`lesson` has the small exercises inside the lesson. `samples` and `traces` make the hidden data, and
`adapters` runs next to the learner's functions. `step` has the recorded step of the free exercise. What
learners read about a mistake is in hints.toml.
"""
