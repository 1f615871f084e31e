"""A torch one-liner where a Triton kernel is asked for."""

import torch

EXERCISE = "square-any-shape"
REASON = "no-launch"


def square_any(x):
    return torch.square(x)
