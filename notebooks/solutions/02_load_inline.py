import torch

from helpers.cuda import load_kernel
from helpers.lab import check

# %% cube-elements
CUBE = r"""
__global__ void cube_kernel(const float* x, float* y, int n) {
    // BEGIN SOLUTION: compute one element
    // STARTER: // which element is mine, and do I have one?
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] * x[i];
    // END SOLUTION
}
"""


def cube(x):
    """Return x * x * x for a contiguous float32 tensor x with at least one element."""
    y = torch.empty_like(x)
    # BEGIN SOLUTION: compile CUBE with load_kernel, and launch it in blocks of 256 threads
    n = x.numel()
    cube_kernel = load_kernel(CUBE, "cube_kernel")
    cube_kernel(x, y, n, grid=(n + 255) // 256, block=256)
    # END SOLUTION
    return y


check("cube-elements", cube)


# %% mirror-columns
MIRROR = r"""
__global__ void mirror_kernel(const float* x, float* y, int height, int width) {
    // BEGIN SOLUTION: y[row][col] = x[row][width - 1 - col]
    // STARTER: // y[row][col] = x[row][width - 1 - col], in blocks of 16 x 16
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < height && col < width) {
        long long start = static_cast<long long>(row) * width;  // of the row
        y[start + col] = x[start + width - 1 - col];
    }
    // END SOLUTION
}
"""


def mirror(x):
    """Return x.flip(1) for a contiguous float32 matrix x with at least one element."""
    y = torch.empty_like(x)
    # BEGIN SOLUTION: launch it with grid=(across, down), block=(16, 16)
    height, width = x.shape
    mirror_kernel = load_kernel(MIRROR, "mirror_kernel")
    blocks = ((width + 15) // 16, (height + 15) // 16)
    mirror_kernel(x, y, height, width, grid=blocks, block=(16, 16))
    # END SOLUTION
    return y


check("mirror-columns", mirror)


# %% loads-per-thread
def loads_per_thread(gb_per_s: int, latency_ns: int, n_threads: int) -> int:
    """Return how many 4-byte loads each thread must have under way to read gb_per_s.

    Rounded up: at 1,000 GB/s and 500 ns, 100,000 threads need 1.25 loads each, so the answer is 2.
    """
    # BEGIN SOLUTION: how many bytes must be under way? 1 GB/s is 1 byte per ns
    n_bytes = gb_per_s * latency_ns
    return -(-n_bytes // (4 * n_threads))
    # END SOLUTION


check("loads-per-thread", loads_per_thread)


# %% rotate-blocks
ROTATE = r"""
__global__ void rotate_kernel(const float* x, float* y, int n) {
    __shared__ float tile[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    // BEGIN SOLUTION: fill the tile, with 0 past the end of x; then write the element to the right
    // STARTER: // fill the tile, with 0 past the end of x; then write the element to the right
    tile[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = tile[(t + 1) % 256];
    // END SOLUTION
}
"""


def rotate(x):
    """Rotate each block of 256 elements of x one place to the left. Past the end of x there are zeros."""
    y = torch.empty_like(x)
    # BEGIN SOLUTION: compile and launch it in blocks of 256 threads
    n = x.numel()
    rotate_kernel = load_kernel(ROTATE, "rotate_kernel")
    rotate_kernel(x, y, n, grid=(n + 255) // 256, block=256)
    # END SOLUTION
    return y


check("rotate-blocks", rotate)
