"""Uses exp2 with the factor log2(e), as most fast softmax kernels do.

problem: softmax
"""

import torch
from torch import nn

LOG2_E = 1.4426950408889634


def softmax(x):
    powers = torch.exp2((x - x.amax(1, keepdim=True)) * LOG2_E)
    return powers / powers.sum(1, keepdim=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)


def custom_kernel(data):
    return softmax(*data)


def run(x):
    return softmax(x)
