"""Lab 07, Timers: its exercises and their judges.

`exercises` has the exercises, `machines` the simulated GPUs that learners time, without answers, and `judge`
finds out why a time is wrong. `lesson` has the small exercises inside the lesson. What learners read about a
mistake is in hints.toml.
"""
