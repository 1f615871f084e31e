"""Computes halves of the rows in two threads and waits for both before it returns.

problem: cumsum
"""

import threading

import torch
from torch import nn


def cumsum(x):
    y = torch.empty_like(x)
    half = x.shape[0] // 2

    def work(rows):
        torch.cumsum(x[rows], 1, out=y[rows])

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (slice(half), slice(half, None))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return cumsum(x)


def custom_kernel(data):
    return cumsum(*data)


def run(x):
    return cumsum(x)
