"""Merges the statistics of chunks with Welford's update.

problem: layer_norm
"""

import torch
from torch import nn


def layer_norm(x, weight, bias):
    count, mean, squares = 0, 0.0, 0.0
    for chunk in x.split(128, dim=1):
        n = chunk.shape[1]
        chunk_mean = chunk.mean(1, keepdim=True)
        delta = chunk_mean - mean
        squares = squares + (chunk - chunk_mean).square().sum(1, keepdim=True)
        squares = squares + delta.square() * (count * n / (count + n))
        count += n
        mean = mean + delta * (n / count)
    return (x - mean) * (squares / count + 1e-5).rsqrt() * weight + bias


class ModelNew(nn.Module):
    def __init__(self, n_cols):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n_cols))
        self.bias = nn.Parameter(torch.zeros(n_cols))

    def forward(self, x):
        return layer_norm(x, self.weight, self.bias)


def custom_kernel(data):
    return layer_norm(*data)


def run(x, weight, bias):
    return layer_norm(x, weight, bias)
