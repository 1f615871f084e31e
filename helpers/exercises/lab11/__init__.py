"""Lab 11, Matrix multiplication: `exercises` has the lab's exercises, and `lesson` those inside lesson 11.

What learners read about a mistake is in hints.toml.
"""
