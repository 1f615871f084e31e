"""Shared memory is read without waiting for the thread that writes it."""

EXERCISE = "square-cuda"
REASON = "race"
ALSO_ON_A_GPU = ("fast-but-partial", "wrong-values")  # where the late warps read is chance there

SQUARE = r"""
__global__ void square_kernel(const float* input, float* output, int64_t n_elements) {
    __shared__ float tile[256];
    const int64_t first = (int64_t)blockIdx.x * 256;
    const int t = threadIdx.x, other = 255 - t;
    float late = 0.0f;
    if (t >= 128) {
        for (int k = 0; k < 64; ++k) late = sinf(late + 1.0f);  // half of the warps come late
    }
    tile[other] = (first + t < n_elements ? input[first + t] : 0.0f) + 0.0f * late;
    if (first + other < n_elements) output[first + other] = tile[t] * tile[t];
}
"""
