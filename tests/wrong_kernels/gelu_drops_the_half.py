"""Forgets the factor one half."""

import math

import torch

EXERCISE = "gelu"
REASON = "wrong-values"


def gelu(x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x * (1 + torch.tanh(inner))
