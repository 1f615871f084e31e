"""Keeps a workspace between calls, which every call overwrites before it reads it.

problem: linear_gelu
"""

import torch
from torch import nn

workspaces = {}


@torch.no_grad()
def linear_gelu(x, weight, bias):
    key = (x.shape[0], weight.shape[0], x.dtype, x.device)
    if key not in workspaces:
        workspaces[key] = torch.empty(key[:2], dtype=x.dtype, device=x.device)
    y = torch.addmm(bias, x, weight.t(), out=workspaces[key])
    return 0.5 * y * torch.erfc(-y * 0.5**0.5)


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
