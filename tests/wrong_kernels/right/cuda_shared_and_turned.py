"""Through shared memory, turned round there, with a barrier between."""

EXERCISE = "square-cuda"

SQUARE = r"""
__global__ void square_kernel(const float* input, float* output, int64_t n_elements) {
    __shared__ float tile[256];
    const int64_t first = (int64_t)blockIdx.x * 256;
    const int t = threadIdx.x, other = 255 - t;
    tile[other] = first + t < n_elements ? input[first + t] : 0.0f;
    __syncthreads();
    if (first + other < n_elements) output[first + other] = tile[t] * tile[t];
}
"""
