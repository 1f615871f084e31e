"""Launch a Triton kernel that does nothing, and let torch compute.

lab: 03_triton
exercise: square-any-shape
says: calls torch's mul
"""


# %% square-any-shape
@triton.jit
def nothing_kernel(y_ptr):
    pass


def square_any(x):
    y = (x * x).contiguous()
    if y.numel():
        nothing_kernel[(1,)](y)
    return y
