"""Returns Python numbers."""

import math

import torch

EXERCISE = "gelu"
REASON = "no-tensor"


def gelu(x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return (0.5 * x * (1 + torch.tanh(inner))).tolist()
