"""A thread writes its number of the next tile while others still read this one."""

EXERCISE = "tiled-product"
REASON = "missing-barrier"


TILED_CUDA = r"""
__global__ void tiled_kernel(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float a_tile[16][16], b_tile[16][16];
    const int x = threadIdx.x, y = threadIdx.y;
    const int col = blockIdx.x * 16 + x, row = blockIdx.y * 16 + y;
    float sum = 0.0f;
    for (int first = 0; first < k; first += 16) {
        a_tile[y][x] = row < m && first + x < k ? a[(long long)row * k + first + x] : 0.0f;
        b_tile[y][x] = first + y < k && col < n ? b[(long long)(first + y) * n + col] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += a_tile[y][i] * b_tile[i][x];
    }
    if (row < m && col < n) c[(long long)row * n + col] = sum;
}
"""
