"""CUDA C++ through `load_inline`: one thread per row.

problem: mean
"""

from torch import nn
from torch.utils import cpp_extension

SOURCE = """
#include <torch/extension.h>

__global__ void mean_kernel(const float* x, float* y, int n_rows, int n_cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n_rows) return;
    float total = 0.0f;
    for (int col = 0; col < n_cols; ++col) total += x[row * n_cols + col];
    y[row] = total / n_cols;
}

torch::Tensor row_mean(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    int n_rows = x.size(0);
    mean_kernel<<<(n_rows + 31) / 32, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), n_rows, x.size(1));
    return y;
}
"""
module = cpp_extension.load_inline(
    name="row_mean", cpp_sources="torch::Tensor row_mean(torch::Tensor x);", cuda_sources=SOURCE,
    functions=["row_mean"],
)  # fmt: skip


def mean(x):
    return module.row_mean(x.contiguous())


class ModelNew(nn.Module):
    def forward(self, x):
        return mean(x)


def custom_kernel(data):
    return mean(*data)


def run(x):
    return mean(x)
