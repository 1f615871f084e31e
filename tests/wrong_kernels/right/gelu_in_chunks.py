"""GELU in chunks of rows, written into an output made beforehand."""

import torch
import torch.nn.functional as F

EXERCISE = "gelu"


def gelu(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.dim() == 0:
        return F.gelu(x, approximate="tanh")
    for start in range(0, x.shape[0], 3):
        out[start : start + 3] = F.gelu(x[start : start + 3], approximate="tanh")
    return out
