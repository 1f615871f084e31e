"""Changes global settings for its own work and puts them back.

problem: matmul
"""

import contextlib

import torch
from torch import nn


@contextlib.contextmanager
def settings():
    precision = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode(False):
            yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = precision


def matmul(a, b):
    with settings():
        return a @ b


class ModelNew(nn.Module):
    def forward(self, a, b):
        return matmul(a, b)


def custom_kernel(data):
    return matmul(*data)


def run(a, b):
    return matmul(a, b)
