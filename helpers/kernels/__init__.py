"""Kernels that more than one lesson, test or benchmark needs.

`ops` has the functions for use, which pick the kernel that fits a tensor and have gradients: `square`, `gelu` and
`softmax`. (Not here: `helpers.kernels.square` and `helpers.kernels.softmax` are modules with kernels.)

`square` has lesson 03's kernels and loads lesson 02's `square.cu`; `gelu.cu` is lesson 02's too. `elementwise` has the
tuned square and GELU, `softmax` and `softmax_grad` softmax over rows and its gradient; their launches follow from what
`chip` says of the GPU. `places` is a chip in miniature for the interpreter: programs that wait for each other run there,
and a deadlock is said. `source` reads the kernels' texts: what stands between `# [kernel:NAME]` and `# [/kernel:NAME]`
(`//` in `.cu` files) is repeated byte for byte by the cell tagged `kernel:NAME` of the lesson that teaches it.

Importing this package imports nothing; a Triton module decides on import whether its kernels are compiled or
interpreted (`TRITON_INTERPRET`).
"""
