"""Adds halves of the row until one column is left.

problem: mean
"""

import torch
from torch import nn


def mean(x):
    n_cols = x.shape[1]
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        odd = x[:, 2 * half :]
        x = torch.cat([x[:, :half] + x[:, half : 2 * half], odd], dim=1)
    return x[:, 0] / n_cols


class ModelNew(nn.Module):
    def forward(self, x):
        return mean(x)


def custom_kernel(data):
    return mean(*data)


def run(x):
    return mean(x)
