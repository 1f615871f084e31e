"""Replays a CUDA graph after copying the input into it, and returns a copy of its output.

problem: softmax
needs: gpu
"""

import torch
from torch import nn


def computed(x):
    powers = (x - x.amax(1, keepdim=True)).exp()
    return powers / powers.sum(1, keepdim=True)


graphs = {}


def softmax(x):
    key = (x.shape, x.dtype, x.device)
    if key not in graphs:
        fixed = x.clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            computed(fixed)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = computed(fixed)
        graphs[key] = (graph, fixed, result)
    graph, fixed, result = graphs[key]
    fixed.copy_(x)
    graph.replay()
    return result.clone()


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)


def custom_kernel(data):
    return softmax(*data)


def run(x):
    return softmax(x)
