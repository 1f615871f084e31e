"""x * sigmoid(1.702 x) is a rougher approximation."""

import torch

EXERCISE = "gelu"
REASON = "wrong-values"


def gelu(x):
    return x * torch.sigmoid(1.702 * x)
