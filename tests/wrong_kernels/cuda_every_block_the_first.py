"""The block's number does not count: all blocks do the same elements."""

EXERCISE = "square-cuda"
REASON = "only-first-block"

SQUARE = r"""
__global__ void square_kernel(const float* input, float* output, int64_t n_elements) {
    const int64_t i = threadIdx.x;
    if (i < n_elements) output[i] = input[i] * input[i];
}
"""
