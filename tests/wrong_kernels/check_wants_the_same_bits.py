"""Two calls must return the same bits, which an honest kernel needn't do."""

import torch

from helpers import check as checks

EXERCISE = "accept-or-reject"
REASON = "refuses-random-order"


def bound(x):
    x = x.double()
    return 4 * 2**-24 * x.shape[1] ** 0.5 * (x.sum(dim=1).abs() + x.square().sum(dim=1).sqrt())


def accepts(kernel, reference):
    for n_rows, n_cols in ((1, 1), (40, 781), (40, 20_000)):
        x = torch.randn(n_rows, n_cols)
        for i in range(6):
            x[i % n_rows] = torch.randn(n_cols)
            expected, before = reference(x), x.clone()
            with checks.poisoned():
                got = kernel(x).clone()
            if not torch.equal(x, before) or not ((got - expected).abs() <= bound(x)).all():
                return False
            if not torch.equal(got, kernel(x)):
                return False
    return True
