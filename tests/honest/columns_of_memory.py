"""Returns a result that isn't contiguous, because it computes on the transpose.

problem: softmax
"""

from torch import nn


def softmax(x):
    columns = x.t().contiguous()
    powers = (columns - columns.amax(0)).exp()
    return (powers / powers.sum(0)).t()


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)


def custom_kernel(data):
    return softmax(*data)


def run(x):
    return softmax(x)
