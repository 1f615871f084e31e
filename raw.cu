#include <cstdint>
#define LAUNCH(kernel, grid, block, stream) kernel<<<grid, block, 0, stream>>>

__global__ void square_matrix_kernel(const float* input, float* output, int height, int width) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < height && col < width) {
        const long long index = static_cast<long long>(row) * width + col;  // past 2^31 elements an int would wrap
        output[index] = input[index] * input[index];
    }
}

const char* square_raw(int64_t input, int64_t output, int height, int width, int block_x, int block_y, int64_t stream) {
    const dim3 block(block_x, block_y);
    const dim3 grid((width + block.x - 1) / block.x, (height + block.y - 1) / block.y);
    LAUNCH(square_matrix_kernel, grid, block, (cudaStream_t)stream)((const float*)input, (float*)output, height, width);
    return cudaGetErrorString(cudaGetLastError());
}
