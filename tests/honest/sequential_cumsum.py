"""Adds column after column in float32, the least accurate of the correct orders.

problem: cumsum
"""

import torch
from torch import nn


def cumsum(x):
    y = torch.empty_like(x)
    total = torch.zeros_like(x[:, 0])
    for i in range(x.shape[1]):
        total = total + x[:, i]
        y[:, i] = total
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return cumsum(x)


def custom_kernel(data):
    return cumsum(*data)


def run(x):
    return cumsum(x)
