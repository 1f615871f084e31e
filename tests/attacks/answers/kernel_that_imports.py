"""Bring a kernel whose text, run as Python by the interpreter, reaches for the process that runs it.

lab: 04_ptx
exercise: wide-loads
says: cannot be run by itself
"""


# %% wide-loads
@triton.jit
def square_wide_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    __import__("gc").get_objects()
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x * x, mask=mask)
