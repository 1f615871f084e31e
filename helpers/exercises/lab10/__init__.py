"""Lab 10, Another GPU: its exercises and their judges.

`exercises` has the exercises, and `lesson` those inside lesson 10. `gpu_pairs` makes pairs of sweeps,
recorded and simulated, of which the learner sees one. `claims` makes claims of a speedup, each with the
objections to it. `tables` has what the lab's notebook shows, and contains no answers. What learners read
about a mistake is in hints.toml.
"""
