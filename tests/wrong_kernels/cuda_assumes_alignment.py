"""float4 from the next lower multiple of 16 bytes: a tensor may begin at any multiple of four."""

EXERCISE = "square-cuda"
REASON = "misaligned"

SQUARE = r"""
#define PER_THREAD 4
__global__ void square_kernel(const float* input, float* output, int64_t n_elements) {
    const int64_t i = 4 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 3 < n_elements) {
        const int beyond = (int)((uintptr_t)input % 16 / 4);
        const float4 v = *reinterpret_cast<const float4*>(input + i - beyond);
        *reinterpret_cast<float4*>(output + i) = make_float4(v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w);
    } else {
        for (int64_t k = i; k < n_elements; ++k) output[k] = input[k] * input[k];
    }
}
"""
