"""Writes each step into the same new tensor with `out=` and in-place operators.

problem: linear_gelu
"""

import torch
from torch import nn


@torch.no_grad()
def linear_gelu(x, weight, bias):
    y = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
    torch.addmm(bias, x, weight.t(), out=y)
    factor = torch.mul(y, 0.5**0.5, out=torch.empty_like(y)).erf_().add_(1).mul_(0.5)
    return torch.mul(y, factor, out=y)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features) * in_features**-0.5)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        return linear_gelu(x, self.weight, self.bias)


def custom_kernel(data):
    return linear_gelu(*data)


def run(x, weight, bias):
    return linear_gelu(x, weight, bias)
