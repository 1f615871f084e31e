"""Lab 06, Fusion: its exercises and what judges them.

`exercises` has the exercises, `softmax` the hidden cases of softmaxes and the diagnosis of wrong ones, `beside` what
runs beside the learner's functions; `claim` the free exercise's claim and tables.
"""
