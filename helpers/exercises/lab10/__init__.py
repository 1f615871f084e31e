"""Lab 10, another GPU: its exercises and what judges them.

`exercises` has the exercises; `sweeps` makes pairs of sweeps, recorded and simulated, of which a learner sees one; `claims`
makes claims of a speed-up and knows what is wrong with each. `tables` is what the lab's notebook shows, and knows no answer.
"""
