"""Measures two ways in its first call with a clock of its own, and uses the faster one.

problem: mean
"""

import time

import torch
from torch import nn


def by_sum(x):
    return x.sum(1) / x.shape[1]


def by_product(x):
    return x @ torch.full((x.shape[1],), 1 / x.shape[1], dtype=x.dtype, device=x.device)


def seconds(way, x):
    begin = time.perf_counter()
    way(x).sum().item()  # waits for the GPU
    return time.perf_counter() - begin


chosen = []


def mean(x):
    if not chosen:
        chosen.append(min((by_sum, by_product), key=lambda way: seconds(way, x)))
    return chosen[0](x)


class ModelNew(nn.Module):
    def forward(self, x):
        return mean(x)


def custom_kernel(data):
    return mean(*data)


def run(x):
    return mean(x)
