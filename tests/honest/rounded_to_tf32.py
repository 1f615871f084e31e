"""Rounds its factors to TF32 with integer operations, which this problem permits.

problem: matmul_tf32
"""

import torch
from torch import nn


def round_to_tf32(x):
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def matmul(a, b):
    return round_to_tf32(a) @ round_to_tf32(b)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return matmul(a, b)


def custom_kernel(data):
    return matmul(*data)


def run(a, b):
    return matmul(a, b)
