// Kernels that are right: the host and a GPU must compute the same from them. corpus.py has their inputs and references.
// Each launcher takes four addresses, two sizes and a stream, and returns CUDA's word on the launch.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <climits>

#define LAUNCHER(name) const char* name(int64_t a, int64_t b, int64_t c, int64_t d, int n, int m, int64_t stream)
#define STREAM ((cudaStream_t)stream)
#define SAID cudaGetErrorString(cudaGetLastError())

// elementwise

__global__ void add_kernel(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + y[i];
}
LAUNCHER(add) {
    add_kernel<<<(n + 255) / 256, 256, 0, STREAM>>>((const float*)a, (const float*)b, (float*)c, n);
    return SAID;
}

__global__ void axpy_kernel(const float* __restrict__ x, float* __restrict__ y, float alpha, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] += alpha * x[i];
}
LAUNCHER(axpy) {  // a grid-stride loop; in place
    axpy_kernel<<<4, 128, 0, STREAM>>>((const float*)a, (float*)b, 1.5f, n);
    return SAID;
}

__global__ void clamp_kernel(const int* in, int* out, int low, int high, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = min(max(in[i], low), high);
}
LAUNCHER(clamp) {
    clamp_kernel<<<dim3((n + 63) / 64), dim3(64), 0, STREAM>>>((const int*)a, (int*)b, -50, 50, n);
    return SAID;
}

__device__ __forceinline__ float gelu_of(float x) { return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); }
__global__ void gelu_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) *(y + i) = gelu_of(*(x + i));
}
LAUNCHER(gelu) {
    gelu_kernel<<<(n + 127) / 128, 128, 0, STREAM>>>((const float*)a, (float*)b, n);
    return SAID;
}

__global__ void fast_math_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = fabsf(x[i]) + 0.5f;
        y[i] = __expf(-v) + __logf(v) + __fdividef(1.0f, v) + rsqrtf(v) + __sinf(v) * __cosf(v) + __powf(v, 1.5f);
    }
}
LAUNCHER(fast_math) {
    fast_math_kernel<<<(n + 255) / 256, 256, 0, STREAM>>>((const float*)a, (float*)b, n);
    return SAID;
}

// 2-D and 3-D

__global__ void square_matrix_kernel(const float* input, float* output, int height, int width) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < height && col < width) {
        const long long index = static_cast<long long>(row) * width + col;
        output[index] = input[index] * input[index];
    }
}
LAUNCHER(square_matrix) {
    const dim3 block(32, 8), grid((m + block.x - 1) / block.x, (n + block.y - 1) / block.y);
    square_matrix_kernel<<<grid, block, 0, STREAM>>>((const float*)a, (float*)b, n, m);
    return SAID;
}

__global__ void stencil_kernel(const float* in, float* out, int size) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= size || y >= size || z >= size) return;
    auto at = [&](int i, int j, int k) { return in[(min(max(k, 0), size - 1) * size + min(max(j, 0), size - 1)) * size + min(max(i, 0), size - 1)]; };
    out[(z * size + y) * size + x] =
        (at(x - 1, y, z) + at(x + 1, y, z) + at(x, y - 1, z) + at(x, y + 1, z) + at(x, y, z - 1) + at(x, y, z + 1)) / 6.0f;
}
LAUNCHER(stencil) {
    dim3 block(8, 4, 4), grid((n + 7) / 8, (n + 3) / 4, (n + 3) / 4);
    stencil_kernel<<<grid, block, 0, STREAM>>>((const float*)a, (float*)b, n);
    return SAID;
}

// shared memory

constexpr int TILE = 32;

__global__ void transpose_kernel(const float* in, float* out, int height, int width) {
    __shared__ float tile[TILE][TILE + 1];
    int col = blockIdx.x * TILE + threadIdx.x;
    for (int k = threadIdx.y; k < TILE; k += blockDim.y) {
        int row = blockIdx.y * TILE + k;
        if (row < height && col < width) tile[k][threadIdx.x] = in[row * width + col];
    }
    __syncthreads();
    int out_col = blockIdx.y * TILE + threadIdx.x;
    for (int k = threadIdx.y; k < TILE; k += blockDim.y) {
        int out_row = blockIdx.x * TILE + k;
        if (out_row < width && out_col < height) out[out_row * height + out_col] = tile[threadIdx.x][k];
    }
}
LAUNCHER(transpose) {
    transpose_kernel<<<dim3((m + TILE - 1) / TILE, (n + TILE - 1) / TILE), dim3(TILE, 8), 0, STREAM>>>((const float*)a, (float*)b, n, m);
    return SAID;
}

__global__ void block_sum_kernel(const int* x, int* out, int n) {
    __shared__ int partial[256];
    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    partial[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int half_block = blockDim.x / 2; half_block > 0; half_block >>= 1) {
        if (t < half_block) partial[t] += partial[t + half_block];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = partial[0];
}
LAUNCHER(block_sum) {
    block_sum_kernel<<<(n + 255) / 256, 256, 0, STREAM>>>((const int*)a, (int*)b, n);
    return SAID;
}

__global__ void block_max_kernel(const int* x, int* out, int n) {
    extern __shared__ int largest[];
    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    largest[t] = i < n ? x[i] : INT_MIN;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (t < k) largest[t] = max(largest[t], largest[t + k]);
        __syncthreads();
    }
    if (t == 0) atomicMax(out, largest[0]);
}
LAUNCHER(block_max) {  // dynamic shared memory
    block_max_kernel<<<(n + 127) / 128, 128, 128 * sizeof(int), STREAM>>>((const int*)a, (int*)b, n);
    return SAID;
}

__global__ void scan_kernel(const int* in, int* out, int n) {
    extern __shared__ int both[];
    int *from = both, *to = both + blockDim.x;
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    from[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        to[t] = t >= step ? from[t] + from[t - step] : from[t];
        int* other = from;
        from = to;
        to = other;
        __syncthreads();
    }
    if (i < n) out[i] = from[t];
}
LAUNCHER(scan) {  // an inclusive sum in each block of 64
    scan_kernel<<<(n + 63) / 64, 64, 2 * 64 * sizeof(int), STREAM>>>((const int*)a, (int*)b, n);
    return SAID;
}

__global__ void matmul_kernel(const float* a, const float* b, float* c, int n, int k) {
    __shared__ float left[16][16], right[16][16];
    const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int first = 0; first < k; first += 16) {
        left[threadIdx.y][threadIdx.x] = row < n && first + threadIdx.x < k ? a[row * k + first + threadIdx.x] : 0.0f;
        right[threadIdx.y][threadIdx.x] = col < n && first + threadIdx.y < k ? b[(first + threadIdx.y) * n + col] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < n && col < n) c[row * n + col] = sum;
}
LAUNCHER(matmul) {  // (n, m) times (m, n)
    matmul_kernel<<<dim3((n + 15) / 16, (n + 15) / 16), dim3(16, 16), 0, STREAM>>>((const float*)a, (const float*)b, (float*)c, n, m);
    return SAID;
}

__global__ void softmax_kernel(const float* x, float* y, int width) {
    __shared__ float scratch[128];
    __shared__ float shift, total;
    const float* row = x + (long long)blockIdx.x * width;
    float* out = y + (long long)blockIdx.x * width;
    const int t = threadIdx.x;
    float best = -INFINITY;
    for (int i = t; i < width; i += blockDim.x) best = fmaxf(best, row[i]);
    scratch[t] = best;
    __syncthreads();
    if (t == 0) {
        shift = scratch[0];
        for (int i = 1; i < blockDim.x; ++i) shift = fmaxf(shift, scratch[i]);
    }
    __syncthreads();
    float sum = 0.0f;
    for (int i = t; i < width; i += blockDim.x) sum += expf(row[i] - shift);
    scratch[t] = sum;
    __syncthreads();
    if (t == 0) {
        float all = 0.0f;
        for (int i = 0; i < blockDim.x; ++i) all += scratch[i];
        total = all;
    }
    __syncthreads();
    for (int i = t; i < width; i += blockDim.x) out[i] = expf(row[i] - shift) / total;
}
LAUNCHER(softmax) {
    softmax_kernel<<<n, 128, 0, STREAM>>>((const float*)a, (float*)b, m);
    return SAID;
}

// warps

__inline__ __device__ float warp_sum(float v) {
    for (int by = 16; by > 0; by >>= 1) v += __shfl_down_sync(0xffffffff, v, by);
    return v;
}
__global__ void shuffle_sum_kernel(const float* x, float* out, int n) {
    __shared__ float of_warp[32];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    float v = warp_sum(i < n ? x[i] : 0.0f);
    if (lane == 0) of_warp[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = warp_sum(lane < blockDim.x / warpSize ? of_warp[lane] : 0.0f);
        if (lane == 0) out[blockIdx.x] = v;
    }
}
LAUNCHER(shuffle_sum) {
    shuffle_sum_kernel<<<(n + 255) / 256, 256, 0, STREAM>>>((const float*)a, (float*)b, n);
    return SAID;
}

__global__ void layernorm_kernel(const float* x, const float* weight, float* y, int width) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;  // a warp a row
    const float* in = x + row * width;
    float sum = 0.0f, squares = 0.0f;
    for (int i = threadIdx.x; i < width; i += 32) {
        sum += in[i];
        squares += in[i] * in[i];
    }
    for (int with = 16; with; with /= 2) {
        sum += __shfl_xor_sync(~0u, sum, with);
        squares += __shfl_xor_sync(~0u, squares, with);
    }
    const float mean = sum / width, scale = rsqrtf(squares / width - mean * mean + 1e-5f);
    for (int i = threadIdx.x; i < width; i += 32) y[row * width + i] = (in[i] - mean) * scale * __ldg(&weight[i]);
}
LAUNCHER(layernorm) {  // n is a multiple of 4
    layernorm_kernel<<<n / 4, dim3(32, 4), 0, STREAM>>>((const float*)a, (const float*)b, (float*)c, m);
    return SAID;
}

__global__ void votes_kernel(const int* x, unsigned* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const bool odd = i < n && (x[i] & 1);
    const unsigned ballot = __ballot_sync(0xffffffffu, odd);
    unsigned word = __popc(ballot) | (__any_sync(0xffffffffu, i < n && x[i] > 90) ? 1u << 8 : 0) | (__all_sync(0xffffffffu, i < n) ? 1u << 9 : 0);
    word |= __match_any_sync(0xffffffffu, i < n ? x[i] % 4 : 7) << 10;
    if (i < n) out[i] = word ^ ballot;
}
LAUNCHER(votes) {
    votes_kernel<<<(n + 95) / 96, 96, 0, STREAM>>>((const int*)a, (unsigned*)b, n);
    return SAID;
}

__global__ void warp_scan_kernel(const int* x, int* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 7;
    int v = i < n ? x[i] : 0;
    for (int by = 1; by < 8; by *= 2) {
        const int left = __shfl_up_sync(0xffffffff, v, by, 8);
        if (lane >= by) v += left;
    }
    const int last = __shfl_sync(0xffffffff, v, 7, 8);
    if (i < n) out[i] = v * 1000 + last;
}
LAUNCHER(warp_scan) {  // in groups of eight lanes
    warp_scan_kernel<<<(n + 63) / 64, 64, 0, STREAM>>>((const int*)a, (int*)b, n);
    return SAID;
}

__global__ void warp_synchronous_kernel(const int* x, int* out, int n) {
    __shared__ int s[32];
    const int lane = threadIdx.x, i = blockIdx.x * 32 + lane;
    s[lane] = i < n ? x[i] : 0;
    __syncwarp();
    for (int k = 16; k > 0; k /= 2) {
        const int other = lane < k ? s[lane + k] : 0;
        __syncwarp();
        if (lane < k) s[lane] += other;
        __syncwarp();
    }
    if (lane == 0) out[blockIdx.x] = s[0];
}
LAUNCHER(warp_synchronous) {
    warp_synchronous_kernel<<<(n + 31) / 32, 32, 0, STREAM>>>((const int*)a, (int*)b, n);
    return SAID;
}

// atomics

__global__ void histogram_kernel(const int* x, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[x[i] & 31], 1);
}
LAUNCHER(histogram) {
    histogram_kernel<<<(n + 255) / 256, 256, 0, STREAM>>>((const int*)a, (int*)b, n);
    return SAID;
}

__global__ void histogram_shared_kernel(const int* x, int* bins, int n) {
    __shared__ int mine[32];
    if (threadIdx.x < 32) mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&mine[x[i] & 31], 1);
    __syncthreads();
    if (threadIdx.x < 32) atomicAdd(bins + threadIdx.x, mine[threadIdx.x]);
}
LAUNCHER(histogram_shared) {
    histogram_shared_kernel<<<3, 256, 0, STREAM>>>((const int*)a, (int*)b, n);
    return SAID;
}

__global__ void many_atomics_kernel(const int* x, int* out, unsigned* wrapped, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicMin(&out[0], x[i]);
    atomicMax(&out[1], x[i]);
    atomicAnd(&out[2], ~(1 << (x[i] & 7)));
    atomicOr(&out[3], 1 << (x[i] & 15));
    atomicXor(&out[4], x[i]);
    atomicSub(&out[5], x[i]);
    atomicInc(&wrapped[0], 9u);
    int old = out[6], seen;
    do {
        seen = old;
        old = atomicCAS(&out[6], seen, seen + 2);
    } while (old != seen);
}
LAUNCHER(many_atomics) {
    many_atomics_kernel<<<(n + 255) / 256, 256, 0, STREAM>>>((const int*)a, (int*)b, (unsigned*)c, n);
    return SAID;
}

__global__ void dot_kernel(const double* x, const double* y, double* out, int n) {
    __shared__ double partial[128];
    double sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) sum += x[i] * y[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned k = 64; k; k >>= 1) {
        if (threadIdx.x < k) partial[threadIdx.x] += partial[threadIdx.x + k];
        __syncthreads();
    }
    if (!threadIdx.x) atomicAdd(out, partial[0]);
}
LAUNCHER(dot) {
    dot_kernel<<<5, 128, 0, STREAM>>>((const double*)a, (const double*)b, (double*)c, n);
    return SAID;
}

// templates, types, vectors

template <typename T, int STEP>
__device__ T weighted(const T* p, int i, T weight) { return p[i * STEP] * weight; }

template <typename T, int STEP>
__global__ void every_kernel(const T* x, T* out, T weight, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = weighted<T, STEP>(x, i, weight);
}
LAUNCHER(every) {
    every_kernel<double, 3><<<(n + 31) / 32, 32, 0, STREAM>>>((const double*)a, (double*)b, 0.5, n);
    return SAID;
}

struct Twice {
    __device__ int operator()(int v) const { return 2 * v; }
};
struct PlusOne {
    __device__ int operator()(int v) const { return v + 1; }
};
template <class F, class G>
__global__ void compose_kernel(const int* x, int* out, int n, F f, G g) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = f(g(x[i]));
}
LAUNCHER(compose) {
    compose_kernel<<<(n + 127) / 128, 128, 0, STREAM>>>((const int*)a, (int*)b, n, Twice(), PlusOne());
    return SAID;
}

__global__ void square4_kernel(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) {
        const float4 v = reinterpret_cast<const float4*>(x)[i];
        reinterpret_cast<float4*>(y)[i] = make_float4(v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w);
    }
}
LAUNCHER(square4) {
    square4_kernel<<<(n / 4 + 63) / 64, 64, 0, STREAM>>>((const float*)a, (float*)b, n);
    return SAID;
}

__global__ void complex_kernel(const float2* x, const float2* y, float2* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i].x = x[i].x * y[i].x - x[i].y * y[i].y;
        out[i].y = x[i].x * y[i].y + x[i].y * y[i].x;
    }
}
LAUNCHER(complex_product) {
    complex_kernel<<<(n + 63) / 64, 64, 0, STREAM>>>((const float2*)a, (const float2*)b, (float2*)c, n);
    return SAID;
}

__global__ void half_kernel(const __half* x, __half* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2half(__half2float(x[i]) * 1.25f + 0.1f);
}
LAUNCHER(half_affine) {
    half_kernel<<<(n + 63) / 64, 64, 0, STREAM>>>((const __half*)a, (__half*)b, n);
    return SAID;
}

__global__ void bfloat_kernel(const __nv_bfloat16* x, __nv_bfloat16* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2bfloat16(__bfloat162float(x[i]) * 3.0f);
}
LAUNCHER(bfloat_triple) {
    bfloat_kernel<<<(n + 63) / 64, 64, 0, STREAM>>>((const __nv_bfloat16*)a, (__nv_bfloat16*)b, n);
    return SAID;
}

__global__ void bits_kernel(const int* x, unsigned* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const unsigned v = (unsigned)x[i] * 2654435761u;
        out[i] = __brev(v) ^ __popc(v) ^ (__clz((int)v) << 8) ^ (__ffs((int)v) << 16) ^ __byte_perm(v, ~v, 0x5140) ^ __umulhi(v, v) ^ __float_as_uint(1.0f + (v & 1023));
    }
}
LAUNCHER(bits) {
    bits_kernel<<<(n + 63) / 64, 64, 0, STREAM>>>((const int*)a, (unsigned*)b, n);
    return SAID;
}

__constant__ float filter[5];
__global__ void convolve_kernel(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float window[5], sum = 0.0f;
    for (int k = 0; k < 5; ++k) window[k] = i + k - 2 >= 0 && i + k - 2 < n ? x[i + k - 2] : 0.0f;
    for (int k = 0; k < 5; ++k) sum += filter[k] * window[k];
    y[i] = sum;
}
LAUNCHER(convolve) {
    const float weights[5] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};
    cudaMemcpyToSymbol(filter, weights, sizeof weights);
    convolve_kernel<<<(n + 63) / 64, 64, 0, STREAM>>>((const float*)a, (float*)b, n);
    return SAID;
}

__global__ void random_kernel(const int* seeds, unsigned long long* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long s = 0x9E3779B97F4A7C15ull * (unsigned)(seeds[i] + 1);
    for (int k = 0; k < 10; k++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
    }
    out[i] = s;
}
LAUNCHER(random_bits) {
    auto kernel = random_kernel;  // through a pointer
    kernel<<<(n + 63) / 64, 64, 0, STREAM>>>((const int*)a, (unsigned long long*)b, n);
    return SAID;
}
