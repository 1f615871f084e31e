"""A grid-stride loop that strides over a block instead of the grid, and starts in the wrong place."""

EXERCISE = "square-cuda"
REASON = "fast-but-partial"

SQUARE = r"""
#define BLOCKS(n) ((n + 3) / 4)
__global__ void square_kernel(const float* input, float* output, int64_t n_elements) {
    for (int64_t i = (int64_t)blockIdx.x * 2 * blockDim.x + threadIdx.x; i < n_elements;
        i += 2 * gridDim.x * blockDim.x) {
        output[i] = input[i] * input[i];
    }
}
"""
