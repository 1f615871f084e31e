"""Kernels that several lessons, tests or benchmarks use.

`ops` has the functions to call in your own code: `square`, `gelu`, `softmax`, `matmul` and `attention`. They
choose the kernel that fits a tensor, and they have gradients. (They are not exported from this package,
because `helpers.kernels.square` and `helpers.kernels.softmax` are the modules that contain the kernels.)

`square` has the kernels of lesson 03 and loads `square.cu` from lesson 02; `gelu.cu` also belongs to lesson
02. `elementwise` has the tuned square and GELU, `softmax` has softmax over rows, and `softmax_grad` has its
gradient. `matmul` has matrix products. `attention` has the forward pass of attention, `attention_decode` that
of few queries, and `attention_grad` the gradients. `attention_plan` chooses their launches, and
`attention_tiles` has what they share. `chip` describes the GPU, and the launch rules of these modules depend
on it.
`cooperative_simulator` simulates a small GPU for Triton's interpreter: programs that wait for each other can
run there, and it reports a deadlock. `source` reads the source of the kernels: the text between
`# [kernel:NAME]` and `# [/kernel:NAME]` (`//` in `.cu` files) is identical to the cell tagged `kernel:NAME`
in the lesson that teaches the kernel.

Importing this package imports no other module. This matters because a Triton module decides at import time
whether its kernels are compiled or interpreted (`TRITON_INTERPRET`).
"""
