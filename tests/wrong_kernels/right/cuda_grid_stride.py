"""A quarter of the blocks, in a grid-stride loop."""

EXERCISE = "square-cuda"

SQUARE = r"""
#define BLOCKS(n) ((n + 3) / 4)
__global__ void square_kernel(const float* input, float* output, int64_t n_elements) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n_elements; i += step) {
        output[i] = input[i] * input[i];
    }
}
"""
