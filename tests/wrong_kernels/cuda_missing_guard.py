"""Threads past the end of the tensor write as well."""

EXERCISE = "square-cuda"
REASON = "missing-mask"

SQUARE = r"""
__global__ void square_kernel(const float* input, float* output, int64_t n_elements) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    output[i] = input[i] * input[i];
}
"""
