"""tanh as (e^2z - 1) / (e^2z + 1): infinity over infinity for large values."""

import math

import torch

EXERCISE = "gelu"
REASON = "overflow"


def gelu(x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    e = torch.exp(2 * inner)
    return 0.5 * x * (1 + (e - 1) / (e + 1))
