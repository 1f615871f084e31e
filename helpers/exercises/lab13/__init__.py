"""Lab 13, Can you trust this kernel?: its exercises and their judges.

`exercises` has the exercises, and `lesson` those inside lesson 13. What learners read about a mistake is in
hints.toml.
"""
