"""Lab 08's three broken kernels, how they are launched, and the words of a diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# What each tool looks for: memcheck to synccheck are compute-sanitizer's.
TOOLS = {
    "memcheck": "accesses outside of allocated memory",
    "racecheck": "threads that access the same shared memory without a barrier between them",
    "initcheck": "reads of global memory that nobody has written",
    "synccheck": "barriers that are used wrongly, except for those that ended threads never reach",
    "host": "what none of the other four finds",
}
CAUSES = {
    "guard": "a thread without an element isn't stopped",
    "index": "a thread with an element computes a wrong position",
    "barrier": "a thread continues before the others are done with shared memory",
    "never set": "an element is read that no thread has written",
    "barrier in a branch": "some threads of a block never reach the barrier",
}


@dataclass(frozen=True)
class Broken:
    """A broken kernel and its launch.

    Attributes:
        name: The kernel is called `<name>_kernel`.
        text: The CUDA C++ source.
        block: Threads per block.
        grid: The launcher's integers -> number of blocks.
    """

    name: str
    text: str
    block: int
    grid: Callable[..., int]


REVERSE_ROWS = Broken(
    "reverse_rows",
    """\
// output[row, col] = input[row, width - 1 - col]: each row reversed, one thread per element.
__global__ void reverse_rows_kernel(const float* input, float* output, int height, int width) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < height * width) {
        const int row = i / width, col = i % width;
        output[row * width + width - col] = input[i];
    }
}
""",
    128,
    lambda height, width: -(-height * width // 128),
)
SMOOTH_CHUNKS = Broken(
    "smooth_chunks",
    """\
// Each element becomes the sum of itself and its neighbors in its chunk of 64. One block per row.
__global__ void smooth_chunks_kernel(const float* input, float* output, int height, int width) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    for (int start = 0; start < width; start += 64) {
        const int i = blockIdx.x * width + start + t, n = min(64, width - start);
        if (t < n) tile[t] = input[i];
        __syncthreads();
        if (t < n) {
            const float left = t > 0 ? tile[t - 1] : 0.0f;
            const float right = t + 1 < n ? tile[t + 1] : 0.0f;
            output[i] = left + tile[t] + right;
        }
    }
}
""",
    64,
    lambda height, width: height,
)
BLOCK_MAXIMA = Broken(
    "block_maxima",
    """\
// output[block] = the largest of the block's 64 elements; the last block may have fewer.
__global__ void block_maxima_kernel(const float* input, float* output, int n) {
    __shared__ float largest[64];
    const int t = threadIdx.x, i = blockIdx.x * 64 + t;
    if (i < n) largest[t] = input[i];
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (t < half) largest[t] = fmaxf(largest[t], largest[t + half]);
        __syncthreads();
    }
    if (t == 0) output[blockIdx.x] = largest[0];
}
""",
    64,
    lambda n: -(-n // 64),
)
KERNELS = {one.name: one for one in (REVERSE_ROWS, SMOOTH_CHUNKS, BLOCK_MAXIMA)}


def listing(name: str) -> str:
    """The source of a broken kernel with line numbers, as the tools count them."""
    lines = KERNELS[name].text.splitlines()
    return "\n".join(f"{number:>2}  {line}" for number, line in enumerate(lines, 1))
