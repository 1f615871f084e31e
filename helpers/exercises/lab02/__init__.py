"""Lab 02, load_inline: its exercises and what judges them.

`exercises` has the exercises, `launchers` what builds and runs a learner's text, `runs` what such a run says in
words, `traps` what a text tells of a mistake, `wrapper` the tensors that a wrapper must take or refuse, `beside` the
launch that stands in for the kernel's; `slow_kernel` and `centred` the free exercise's kernel, what judges it and
what runs beside it.
"""
