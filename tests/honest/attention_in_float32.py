"""Attention in bfloat16 that computes in float32 and rounds once.

problem: attention
"""

from torch import nn


def attention(q, k, v):
    scores = q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return (powers @ v.float() / powers.sum(-1, keepdim=True)).to(q.dtype)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return attention(q, k, v)


def custom_kernel(data):
    return attention(*data)


def run(q, k, v):
    return attention(q, k, v)
