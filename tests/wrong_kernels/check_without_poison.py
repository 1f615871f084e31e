"""Fresh memory is not filled, so that what a kernel never wrote may be right."""

import torch

EXERCISE = "accept-or-reject"
REASON = "misses-never-written"


def bound(x):
    x = x.double()
    return 4 * 2**-24 * x.shape[1] ** 0.5 * (x.sum(dim=1).abs() + x.square().sum(dim=1).sqrt())


def accepts(kernel, reference):
    for n_rows, n_cols in ((1, 1), (40, 781), (40, 20_000)):
        x = torch.randn(n_rows, n_cols)
        for i in range(6):
            x[i % n_rows] = torch.randn(n_cols)
            expected, before = reference(x), x.clone()
            got = kernel(x)
            if not torch.equal(x, before) or not ((got - expected).abs() <= bound(x)).all():
                return False
    return True
