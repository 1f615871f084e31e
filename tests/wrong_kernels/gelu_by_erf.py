"""The exact form, where the tanh form is asked for: near, and not the same."""

import torch.nn.functional as F

EXERCISE = "gelu"
REASON = "inaccurate"


def gelu(x):
    return F.gelu(x)
