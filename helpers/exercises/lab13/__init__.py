"""Lab 13, Can you trust this kernel?: its exercises and their judges.

`lesson` has the exercises inside lesson 13. What learners read about a mistake is in hints.toml.
"""
