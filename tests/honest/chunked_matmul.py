"""Multiplies chunks of the inner dimension and adds them up into a tensor of its own.

problem: matmul
"""

import torch
from torch import nn


def matmul(a, b):
    c = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    for left, right in zip(a.split(100, dim=1), b.split(100), strict=True):
        torch.addmm(c, left, right, out=c)
    return c


class ModelNew(nn.Module):
    def forward(self, a, b):
        return matmul(a, b)


def custom_kernel(data):
    return matmul(*data)


def run(a, b):
    return matmul(a, b)
