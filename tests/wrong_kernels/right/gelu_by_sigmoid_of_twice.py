"""0.5 (1 + tanh z) is sigmoid(2 z): the same function in another spelling, in float64 inside."""

import math

import torch

EXERCISE = "gelu"


def gelu(x):
    wide = x.double()
    return (wide * torch.sigmoid(math.sqrt(8 / math.pi) * (wide + 0.044715 * wide**3))).to(x.dtype)
