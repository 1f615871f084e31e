"""Registers a custom operator with `torch.library`, with a fake implementation for compilers.

problem: mean
"""

import torch
from torch import nn


@torch.library.custom_op("honest_corpus::row_mean", mutates_args=())
def row_mean(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1) / x.shape[1]


@row_mean.register_fake
def _(x):
    return x.new_empty(x.shape[0])


def mean(x):
    return torch.ops.honest_corpus.row_mean(x)


class ModelNew(nn.Module):
    def forward(self, x):
        return mean(x)


def custom_kernel(data):
    return mean(*data)


def run(x):
    return mean(x)
