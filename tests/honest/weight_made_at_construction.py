"""Transposes its weight once, in the constructor, as inference code does.

problem: linear_gelu
"""

import torch
from torch import nn


def linear_gelu(x, transposed, bias):
    y = torch.addmm(bias, x, transposed)
    return 0.5 * y * torch.erfc(-y * 0.5**0.5)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features) * in_features**-0.5)
        self.bias = nn.Parameter(torch.randn(out_features))
        self.register_buffer("transposed", self.weight.detach().t().contiguous(), persistent=False)

    def forward(self, x):
        return linear_gelu(x, self.transposed, self.bias)


def custom_kernel(data):
    x, weight, bias = data
    return linear_gelu(x, weight.t(), bias)


def run(x, weight, bias):
    return linear_gelu(x, weight.t(), bias)
