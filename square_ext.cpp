
#include <torch/extension.h>

torch::Tensor square_matrix(torch::Tensor input, int64_t block_x, int64_t block_y);  // in square.cu

torch::Tensor square(torch::Tensor input) {
#ifdef SQUARE_ON_GPU
    if (input.is_cuda()) return square_matrix(input, 16, 16);
#endif
    TORCH_CHECK(input.is_cpu(), "square: input must be on the CPU or, in a CUDA build, on a GPU");
    TORCH_CHECK(input.scalar_type() == torch::kFloat32 && input.is_contiguous(), "square: input must be contiguous float32");
    auto output = torch::empty_like(input);
    const float* from = input.data_ptr<float>();
    float* to = output.data_ptr<float>();
    for (int64_t i = 0; i < input.numel(); ++i) to[i] = from[i] * from[i];
    return output;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("square", &square, "the square of a float32 tensor"); }
