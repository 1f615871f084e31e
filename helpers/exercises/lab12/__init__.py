"""Lab 12, Attention: its exercises and their judges.

`exercises` has the exercises, and `lesson` those inside lesson 12. `heads` makes the hidden queries, keys and
values, `results` and `masks` recognize wrong results, and `loads` counts what a kernel may load. `claim` has
the data behind the free exercise, a table of `workloads` that the notebook shows and that contains no
answers. What learners read about a mistake is in hints.toml.
"""
