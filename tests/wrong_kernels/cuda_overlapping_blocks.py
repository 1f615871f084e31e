"""The index grows by 128 a block of 256 threads: half of the work is done twice, the rest never."""

EXERCISE = "square-cuda"
REASON = "only-first-block"

SQUARE = r"""
__global__ void square_kernel(const float* input, float* output, int64_t n_elements) {
    const int64_t i = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (i < n_elements) output[i] = input[i] * input[i];
}
"""
