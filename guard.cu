
__global__ void square_matrix_kernel(const float* input, float* output, int height, int width) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    {
        const long long index = static_cast<long long>(row) * width + col;  // past 2^31 elements an int would wrap
        output[index] = input[index] * input[index];
    }
}

int main() {
    float *input, *output;
    cudaMalloc(&input, 30 * 50 * sizeof(float));
    cudaMalloc(&output, 30 * 50 * sizeof(float));
    square_matrix_kernel<<<dim3(4, 2), dim3(16, 16)>>>(input, output, 30, 50);
    return cudaDeviceSynchronize();
}
