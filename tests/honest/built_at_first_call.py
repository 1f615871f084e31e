"""Builds its function in the first call, from a template of source text.

problem: linear_gelu
"""

import torch
from torch import nn

TEMPLATE = """
def function(x, weight, bias):
    y = {product} + bias
    return {activation}
"""
built = {}


def linear_gelu(x, weight, bias):
    if not built:
        text = TEMPLATE.format(product="x @ weight.t()", activation="0.5 * y * torch.erfc(-y * 0.5**0.5)")
        exec(text, {"torch": torch}, built)
    return built["function"](x, weight, bias)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features) * in_features**-0.5)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        return linear_gelu(x, self.weight, self.bias)


def custom_kernel(data):
    return linear_gelu(*data)


def run(x, weight, bias):
    return linear_gelu(x, weight, bias)
