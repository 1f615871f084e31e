// The square of a matrix in CUDA C++, shown and built in notebooks/02_load_inline.ipynb.
//
// The text between [kernel:...] marks is what the lesson's cells show. The kernel alone is device code that NVRTC
// compiles without a GPU; the wrapper needs PyTorch's headers, so NVRTC (which defines __CUDACC_RTC__) skips it.

// [kernel:square_matrix]
__global__ void square_matrix_kernel(const float* input, float* output, int height, int width) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < height && col < width) {
        const long long index = static_cast<long long>(row) * width + col;  // an int wraps past 2^31 elements
        output[index] = input[index] * input[index];
    }
}
// [/kernel:square_matrix]

#ifndef __CUDACC_RTC__
// [kernel:square_matrix_wrapper]
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>

torch::Tensor square_matrix(torch::Tensor input, int64_t block_x, int64_t block_y) {
    TORCH_CHECK(input.is_cuda(), "square_matrix: input must be a CUDA tensor, but it is on ", input.device());
    TORCH_CHECK(input.scalar_type() == torch::kFloat32, "square_matrix: input must be float32, but it is ",
                input.scalar_type());
    TORCH_CHECK(input.dim() == 2, "square_matrix: input must have 2 dimensions, but it has ", input.dim());
    TORCH_CHECK(input.is_contiguous(), "square_matrix: input must be contiguous; call .contiguous() first");

    const c10::cuda::CUDAGuard on_the_inputs_device(input.device());
    auto output = torch::empty_like(input);
    if (input.numel() == 0) return output;  // a grid of zero blocks is an error

    const int height = input.size(0), width = input.size(1);
    const dim3 block(block_x, block_y);
    const dim3 grid((width + block.x - 1) / block.x, (height + block.y - 1) / block.y);
    square_matrix_kernel<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
        input.data_ptr<float>(), output.data_ptr<float>(), height, width);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return output;
}
// [/kernel:square_matrix_wrapper]
#endif
