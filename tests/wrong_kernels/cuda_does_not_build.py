"""A semicolon is missing."""

EXERCISE = "square-cuda"
REASON = "does-not-build"

SQUARE = r"""
__global__ void square_kernel(const float* input, float* output, int64_t n_elements) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n_elements) output[i] = input[i] * input[i]
}
"""
