// Kernels that are wrong, each in one way. The line that is to blame ends in "// BROKEN"; corpus.py says what is expected.
// Each launcher takes the addresses of two tensors of n floats. With BROKEN_MAIN defined this is a program that runs the
// case it is given, for compute-sanitizer.

#include <cassert>
#include <cstdint>

#define LAUNCHER(name) const char* name(int64_t x, int64_t y, int n)
#define IN ((const float*)x)
#define OUT ((float*)y)
#define SAID cudaGetErrorString(cudaGetLastError())

__global__ void missing_guard_kernel(const float* in, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 2.0f * threadIdx.x;  // BROKEN
}
LAUNCHER(missing_guard) {
    missing_guard_kernel<<<(n + 255) / 256, 256>>>(IN, OUT);
    return SAID;
}

__global__ void off_by_one_kernel(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) {
        float v = in[i];  // BROKEN
        out[i < n ? i : 0] = v;
    }
}
LAUNCHER(off_by_one) {
    off_by_one_kernel<<<(n + 255) / 256, 256>>>(IN, OUT, n);
    return SAID;
}

__global__ void left_neighbour_kernel(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i] - in[i - 1];  // BROKEN
}
LAUNCHER(left_neighbour) {
    left_neighbour_kernel<<<(n + 127) / 128, 128>>>(IN, OUT, n);
    return SAID;
}

__global__ void swapped_sizes_kernel(const float* in, float* out, int height, int width) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < height && col < width) {
        float v = in[row * width + col];
        out[row * (width + 8) + col] = v;  // BROKEN
    }
}
LAUNCHER(swapped_sizes) {
    swapped_sizes_kernel<<<dim3(1, n / 320), dim3(32, 10)>>>(IN, OUT, n / 32, 32);
    return SAID;
}

__global__ void misaligned_kernel(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 8) {
        float4 v = *reinterpret_cast<const float4*>(in + 1 + 4 * i);  // BROKEN
        out[i] = v.x + v.y + v.z + v.w;
    }
}
LAUNCHER(misaligned) {
    misaligned_kernel<<<1, 32>>>(IN, OUT, n);
    return SAID;
}

__global__ void null_pointer_kernel(const float* in, const float* bias, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i] + bias[0];  // BROKEN
}
LAUNCHER(null_pointer) {
    null_pointer_kernel<<<(n + 127) / 128, 128>>>(IN, (const float*)0, OUT, n);
    return SAID;
}

__global__ void barrier_in_branch_kernel(const float* in, float* out, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = in[t];
    if (t < 48) {
        __syncthreads();  // BROKEN
        out[t] = s[t];
    }
}
LAUNCHER(barrier_in_branch) {
    barrier_in_branch_kernel<<<1, 64>>>(IN, OUT, n);
    return SAID;
}

__global__ void early_return_kernel(const float* in, float* out, int n) {
    __shared__ float s[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    s[threadIdx.x] = in[i];
    __syncthreads();  // BROKEN
    out[i] = s[threadIdx.x];
}
LAUNCHER(early_return) {
    early_return_kernel<<<(n + 127) / 128, 128>>>(IN, OUT, n);
    return SAID;
}

__global__ void reversed_kernel(const float* in, float* out) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = in[t];  // BROKEN
    out[t] = s[127 - t];
}
LAUNCHER(missing_barrier) {
    reversed_kernel<<<1, 128>>>(IN, OUT);
    return SAID;
}

__global__ void sum_kernel(const float* in, float* out) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = in[t];
    __syncthreads();
    for (int k = 64; k > 0; k /= 2) {
        if (t < k) s[t] += s[t + k];  // BROKEN
    }
    if (t == 0) out[0] = s[0];
}
LAUNCHER(barrier_not_in_loop) {
    sum_kernel<<<1, 128>>>(IN, OUT);
    return SAID;
}

__global__ void tile_kernel(const float* in, float* out, int n) {
    __shared__ float tile[64];
    for (int first = 0; first < n; first += 64) {
        int i = first + threadIdx.x;
        tile[threadIdx.x] = i < n ? in[i] : 0.0f;  // BROKEN
        __syncthreads();
        if (i < n) out[i] = tile[(threadIdx.x + 1) % 64];
    }
}
LAUNCHER(tile_overwritten) {
    tile_kernel<<<1, 64>>>(IN, OUT, n);
    return SAID;
}

__global__ void last_wins_kernel(const float* in, float* out) {
    __shared__ float last;
    last = in[threadIdx.x];  // BROKEN
    __syncthreads();
    if (threadIdx.x == 0) out[0] = last;
}
LAUNCHER(last_wins) {
    last_wins_kernel<<<1, 64>>>(IN, OUT);
    return SAID;
}

__global__ void half_loaded_kernel(const float* in, float* out) {
    __shared__ float s[128];
    int t = threadIdx.x;
    if (t < 100) s[t] = in[t];
    __syncthreads();
    out[t] = s[t];  // BROKEN
}
LAUNCHER(half_loaded) {
    half_loaded_kernel<<<1, 128>>>(IN, OUT);
    return SAID;
}

__global__ void bins_not_zeroed_kernel(const float* in, float* out) {
    __shared__ int bins[16];
    atomicAdd(&bins[(int)in[threadIdx.x] & 15], 1);  // BROKEN
    __syncthreads();
    if (threadIdx.x < 16) out[threadIdx.x] = bins[threadIdx.x];
}
LAUNCHER(bins_not_zeroed) {
    bins_not_zeroed_kernel<<<1, 128>>>(IN, OUT);
    return SAID;
}

__global__ void shared_overrun_kernel(const float* in, float* out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t + 1] = in[t];  // BROKEN
    __syncthreads();
    if (t > 0) out[t] = s[t];
}
LAUNCHER(shared_overrun) {
    shared_overrun_kernel<<<1, 64>>>(IN, OUT);
    return SAID;
}

__global__ void shared_not_asked_kernel(const float* in, float* out) {
    extern __shared__ float s[];
    int t = threadIdx.x;
    s[t] = in[t];  // BROKEN
    __syncthreads();
    out[t] = s[t];
}
LAUNCHER(shared_not_asked) {
    shared_not_asked_kernel<<<1, 64, 32 * sizeof(float)>>>(IN, OUT);
    return SAID;
}

__global__ void mask_kernel(const float* in, float* out) {
    int t = threadIdx.x;
    float v = in[t];
    if (t < 16)
        v += __shfl_xor_sync(0x00ff, v, 1);  // BROKEN
    out[t] = v;
}
LAUNCHER(wrong_mask) {
    mask_kernel<<<1, 32>>>(IN, OUT);
    return SAID;
}

__global__ void assert_kernel(const float* in, float* out, int n) {
    int i = threadIdx.x;
    assert(in[i] < 0.0f);  // BROKEN
    out[i] = sqrtf(-in[i]);
}
LAUNCHER(failing_assert) {
    assert_kernel<<<1, 64>>>(IN, OUT, n);
    return SAID;
}

__global__ void tail_kernel(const float* in, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];  // BROKEN
}
LAUNCHER(tail_forgotten) {
    tail_kernel<<<n / 256, 256>>>(IN, OUT);
    return SAID;
}

#ifdef BROKEN_MAIN
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CASE(name) \
    if (!strcmp(which, #name)) said = name((int64_t)in, (int64_t)out, n);

int main(int, char** arguments) {
    const char *which = arguments[1], *said = "no such case";
    const int n = atoi(arguments[2]);
    float *in, *out, *host = (float*)malloc(n * sizeof(float));
    for (int i = 0; i < n; ++i) host[i] = i;
    cudaMalloc(&in, n * sizeof(float));
    cudaMalloc(&out, n * sizeof(float));
    if (strcmp(which, "tail_forgotten")) cudaMemset(out, 0, n * sizeof(float));  // copying `out` back is no fault of the others
    cudaMemcpy(in, host, n * sizeof(float), cudaMemcpyHostToDevice);
    CASE(missing_guard) CASE(off_by_one) CASE(left_neighbour) CASE(swapped_sizes) CASE(misaligned) CASE(null_pointer)
    CASE(barrier_in_branch) CASE(early_return) CASE(missing_barrier) CASE(barrier_not_in_loop) CASE(tile_overwritten)
    CASE(last_wins) CASE(half_loaded) CASE(bins_not_zeroed) CASE(shared_overrun) CASE(shared_not_asked) CASE(wrong_mask)
    CASE(failing_assert) CASE(tail_forgotten)
    const cudaError_t after = cudaDeviceSynchronize();
    cudaMemcpy(host, out, n * sizeof(float), cudaMemcpyDeviceToHost);
    printf("launch: %s; synchronize: %s\n", said, cudaGetErrorString(after));
    return 0;
}
#endif
