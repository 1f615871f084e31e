"""Lab 10, Another GPU: its exercises and what judges them.

`exercises` has the exercises. `gpu_pairs` makes pairs of sweeps, recorded and simulated, of which the learner
sees one. `claims` makes claims of a speed-up and knows what is wrong with each. `tables` has what the lab's
notebook shows, and knows no answers. What learners read about a mistake is in hints.toml.
"""
