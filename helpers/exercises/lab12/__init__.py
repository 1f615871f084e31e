"""Lab 12, Attention: `lesson` has the exercises inside lesson 12. What learners read about a mistake is in
hints.toml.
"""
