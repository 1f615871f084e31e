"""The guard keeps the last element out."""

EXERCISE = "square-cuda"
REASON = "off-by-one"

SQUARE = r"""
__global__ void square_kernel(const float* input, float* output, int64_t n_elements) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n_elements - 1) output[i] = input[i] * input[i];
}
"""
