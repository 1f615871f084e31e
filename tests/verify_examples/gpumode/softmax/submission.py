"""A plain submission."""

import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    """The softmax of each row, written into the second tensor."""
    x, output = data
    torch.exp(x - x.amax(dim=-1, keepdim=True), out=output)
    return output.div_(output.sum(dim=-1, keepdim=True))
