"""Keeps the transposed weight of a model and makes it anew when the weight has changed.

problem: linear_gelu
"""

import torch
from torch import nn


def linear_gelu(x, weight, bias):
    y = x @ weight.t() + bias
    return 0.5 * y * torch.erfc(-y * 0.5**0.5)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features) * in_features**-0.5)
        self.bias = nn.Parameter(torch.randn(out_features))
        self.made_from = None

    def forward(self, x):
        state = (self.weight.data_ptr(), self.weight._version, self.weight.device)
        if self.made_from != state:
            self.transposed = self.weight.t().contiguous()
            self.made_from = state
        return linear_gelu(x, self.transposed.t(), self.bias)


def custom_kernel(data):
    return linear_gelu(*data)


def run(x, weight, bias):
    return linear_gelu(x, weight, bias)
