"""Lab 09, Wide rows: its exercises and their judges.

`exercises` has the exercises, and `lesson` those inside lesson 09. `rows` makes the hidden cases of rows
that programs share and recognizes wrong results. `adapters` runs next to the learner's functions and
contains no answers: a simulated GPU that runs few programs at once, on which programs really wait for each
other and a deadlock becomes an error. What learners read about a mistake is in hints.toml.
"""
