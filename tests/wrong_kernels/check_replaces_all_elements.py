"""Each call gets completely new contents, so that a cache by the first element is never asked twice."""

import torch

from helpers import check as checks

EXERCISE = "accept-or-reject"
REASON = "misses-first-element"


def bound(x):
    x = x.double()
    return 4 * 2**-24 * x.shape[1] ** 0.5 * (x.sum(dim=1).abs() + x.square().sum(dim=1).sqrt())


def accepts(kernel, reference):
    for n_rows, n_cols in ((1, 1), (40, 781), (40, 20_000)):
        x = torch.empty(n_rows, n_cols)
        for _ in range(6):
            x.normal_()
            expected, before = reference(x), x.clone()
            with checks.poisoned():
                got = kernel(x)
            if not torch.equal(x, before) or not ((got - expected).abs() <= bound(x)).all():
                return False
    return True
