"""Compensated summation: more accurate than the reference, so it differs from it.

problem: mean
"""

import torch
from torch import nn


def mean(x):
    total = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
    lost = torch.zeros_like(total)
    for column in x.unbind(1):
        term = column - lost
        new = total + term
        lost = (new - total) - term
        total = new
    return total / x.shape[1]


class ModelNew(nn.Module):
    def forward(self, x):
        return mean(x)


def custom_kernel(data):
    return mean(*data)


def run(x):
    return mean(x)
