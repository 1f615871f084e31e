"""Lab 06, Fusion: its exercises and their judges.

`exercises` has the exercises. `lesson` has the small exercises inside the lesson. `softmax` makes the hidden
cases of the softmaxes and recognizes wrong ones, and `claim` has the data behind the free exercise.
`adapters` runs next to the learner's functions and contains no answers. What learners read about a mistake is
in hints.toml.
"""
