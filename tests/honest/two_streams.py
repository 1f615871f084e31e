"""Computes halves on two streams, and the current stream waits for both.

problem: softmax
needs: gpu
"""

import torch
from torch import nn


def computed(x):
    powers = (x - x.amax(1, keepdim=True)).exp()
    return powers / powers.sum(1, keepdim=True)


streams = []


def softmax(x):
    if not streams:
        streams.extend([torch.cuda.Stream(), torch.cuda.Stream()])
    current, y, half = torch.cuda.current_stream(), torch.empty_like(x), x.shape[0] // 2
    for stream, rows in zip(streams, (slice(half), slice(half, None)), strict=True):
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            y[rows] = computed(x[rows])
        x.record_stream(stream)
        y.record_stream(stream)
        current.wait_stream(stream)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)


def custom_kernel(data):
    return softmax(*data)


def run(x):
    return softmax(x)
