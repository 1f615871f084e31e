"""Limit the own memory, so that there is no room for the case that finds 32-bit offsets.

lab: 03_triton
exercise: square-any-shape
says: there is no room, and there is
"""

# %% square-any-shape
import resource

with open("/proc/self/statm") as file:
    now = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 30), now + (1 << 30)))


@triton.jit
def square_kernel(y_ptr, x_ptr, n, n_cols, s0, s1, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at // n_cols * s0 + at % n_cols * s1, mask=at < n)
    tl.store(y_ptr + at, x * x, mask=at < n)


def square_any(x):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    flat = x if x.dim() == 2 else x.reshape(1, -1)
    if x.numel():
        n = x.numel()
        square_kernel[(-(-n // 256),)](y, flat, n, flat.shape[1], flat.stride(0), flat.stride(1), BLOCK=256)
    return y
