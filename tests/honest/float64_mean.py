"""Accumulates in float64 and rounds once.

problem: mean
"""

from torch import nn


def mean(x):
    return (x.double().sum(1) / x.shape[1]).to(x.dtype)


class ModelNew(nn.Module):
    def forward(self, x):
        return mean(x)


def custom_kernel(data):
    return mean(*data)


def run(x):
    return mean(x)
