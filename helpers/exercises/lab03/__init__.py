"""Lab 03, Triton: its exercises and their judges.

`exercises` has the exercises, and `kernels` the right and wrong kernels that a learner's check must
distinguish. `lesson` has the small exercises inside the lesson. `sliders` judges the free exercise, and
`positions` runs next to the learner's write-up. What learners read about a mistake is in hints.toml.
"""
