"""Results are compared with the default tolerances of allclose, which allow nothing where terms cancel."""

import torch

EXERCISE = "accept-or-reject"
REASON = "refuses-pairwise"


def accepts(kernel, reference):
    for _ in range(6):
        x = torch.randn(100, 20_000)
        x[:, -1] -= x.sum(dim=1)
        if not torch.allclose(kernel(x).double(), reference(x)):
            return False
    return True
