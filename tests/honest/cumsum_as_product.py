"""Multiplies by a triangular matrix of ones, which is built once for each number of columns.

problem: cumsum
"""

import torch
from torch import nn

triangles = {}


def cumsum(x):
    key = (x.shape[1], x.dtype, x.device)
    if key not in triangles:
        triangles[key] = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype, device=x.device).triu()
    return x @ triangles[key]


class ModelNew(nn.Module):
    def forward(self, x):
        return cumsum(x)


def custom_kernel(data):
    return cumsum(*data)


def run(x):
    return cumsum(x)
