"""Kernels that more than one lesson, test or benchmark needs.

Each is shown in the lesson that teaches it: the text between `# [kernel:NAME]` and `# [/kernel:NAME]` (`//` in `.cu`
files) is the source, and the lesson's cell tagged `kernel:NAME` repeats it byte for byte. Importing this package imports
nothing; a Triton module decides on import whether its kernels are compiled or interpreted (`TRITON_INTERPRET`).

The functions for use, which pick the kernel that fits a tensor and have gradients, are in `helpers.kernels.ops`: `square`,
`gelu` and `softmax`. (Not here: `helpers.kernels.square` and `helpers.kernels.softmax` are the modules with the kernels.)
"""
