"""Mixes up rows and columns on the way."""

import math

import torch

EXERCISE = "gelu"
REASON = "transposed"


def gelu(x):
    x = x.t().reshape(x.shape) if x.dim() == 2 else x
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))
