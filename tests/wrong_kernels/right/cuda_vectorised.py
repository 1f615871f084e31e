"""float4 where both bases are aligned, single elements elsewhere."""

EXERCISE = "square-cuda"

SQUARE = r"""
#define PER_THREAD 4
__global__ void square_kernel(const float* input, float* output, int64_t n_elements) {
    const int64_t i = 4 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);
    const bool aligned = ((uintptr_t)input | (uintptr_t)output) % 16 == 0;
    if (aligned && i + 3 < n_elements) {
        const float4 v = *reinterpret_cast<const float4*>(input + i);
        *reinterpret_cast<float4*>(output + i) = make_float4(v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w);
    } else {
        for (int64_t k = i; k < i + 4 && k < n_elements; ++k) output[k] = input[k] * input[k];
    }
}
"""
