"""Lab 09, Wide rows: its exercises and what judges them.

`exercises` has the exercises, `rows` the hidden cases of shared rows and the diagnosis of wrong ones, `beside` what runs
beside the learner's functions: a chip in miniature, on which programs wait for each other and a deadlock is said.
"""
