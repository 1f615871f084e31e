"""The bound is for one rounding, but each partial sum is rounded."""

EXERCISE = "bound-a-sum"
REASON = "too-tight"


def sum_bound(x):
    x = x.double()
    return 2**-24 * (x.sum(dim=1).abs() + x.square().sum(dim=1).sqrt())
