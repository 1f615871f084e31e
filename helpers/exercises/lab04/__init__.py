"""Lab 04, PTX: its exercises and what judges them.

`exercises` has the exercises, `generated` torch.compile's kernel for any shape, `shapes` which shapes are asked for,
`kernels` those whose loads are counted, `sass` pairs of listings, `wide` what runs and compiles the kernel of wide
loads; `blog` the free exercise's claim and table.
"""
