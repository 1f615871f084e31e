"""Lab 02, load_inline: its exercises and their judges.

`exercises` has the exercises, and `lesson` the small ones inside the lesson. `launchers` builds a learner's
kernel and runs it, and `run_reports` has the mistakes that a run shows. `wrapper` has the tensors that a
wrapper must accept or refuse, and `adapters` the launch that stands in for the kernel's. `slow_kernel` and
`centred` are the free exercise's judge and kernel. What learners read about a mistake is in hints.toml.
"""
