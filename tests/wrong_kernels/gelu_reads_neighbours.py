"""as_strided with the strides of a contiguous tensor."""

import math

import torch

EXERCISE = "gelu"
REASON = "wrong-stride"


def gelu(x):
    x = torch.as_strided(x, x.shape, torch.empty(x.shape, device="meta").stride())
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))
