"""Each thread does eight neighbours, from the last to the first."""

EXERCISE = "square-cuda"

SQUARE = r"""
#define PER_THREAD 8
__global__ void square_kernel(const float* input, float* output, int64_t n_elements) {
    const int64_t first = 8 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);
    for (int k = 7; k >= 0; --k) {
        if (first + k < n_elements) output[first + k] = input[first + k] * input[first + k];
    }
}
"""
