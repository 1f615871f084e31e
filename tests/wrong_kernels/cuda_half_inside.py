"""The product is taken in half precision."""

EXERCISE = "square-cuda"
REASON = "half-precision"

SQUARE = r"""
#include <cuda_fp16.h>
__global__ void square_kernel(const float* input, float* output, int64_t n_elements) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n_elements) output[i] = __half2float(__float2half(input[i])) * input[i];
}
"""
