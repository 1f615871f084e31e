// GELU, tanh form: y = x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), three times: in float; the same text without
// an `f`, which the compiler has to compute in double; and with pow(x, 3.0) for the cube, as it is often typed.
//
// Shown, compared and timed in notebooks/02_load_inline.ipynb. Formula: Hendrycks and Gimpel 2016, arXiv:1606.08415.

// [kernel:gelu]
__global__ void gelu_float_kernel(const float* input, float* output, long long n) {
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) {
        const float x = input[i];
        output[i] = 0.5f * x * (1.0f + tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
    }
}

__global__ void gelu_double_kernel(const float* input, float* output, long long n) {
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) {
        const float x = input[i];
        output[i] = 0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
    }
}

__global__ void gelu_pow_kernel(const float* input, float* output, long long n) {
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) {
        const float x = input[i];
        const double cube = pow(static_cast<double>(x), 3.0);  // load_kernel needs the cast, nvcc doesn't
        output[i] = 0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * cube)));
    }
}
// [/kernel:gelu]
