"""Lab 03, Triton: its exercises and what judges them.

`exercises` has the exercises, `kernels` the right and wrong ones that a learner's check must tell apart; `sliders`
judges the free exercise, with `positions` beside the learner's write-up.
"""
