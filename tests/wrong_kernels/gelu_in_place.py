"""Multiplies the input by its factors where it stands."""

import math

import torch

EXERCISE = "gelu"
REASON = "in-place"


def gelu(x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x.mul_(0.5).mul_(1 + torch.tanh(inner))
