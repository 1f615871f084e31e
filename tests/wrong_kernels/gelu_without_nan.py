"""nan_to_num makes numbers of NaN."""

import math

import torch

EXERCISE = "gelu"
REASON = "nan-blind"


def gelu(x):
    x = torch.where(x.isnan(), torch.zeros_like(x), x)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + torch.tanh(inner))
