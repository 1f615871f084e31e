"""Lesson 11, Matrix multiplication: `lesson` has the exercises inside it. What learners read about a mistake
is in hints.toml.
"""
