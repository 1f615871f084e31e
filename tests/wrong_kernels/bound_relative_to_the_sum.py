"""The bound is a fixed part of the sum, which may be almost 0 although the partial sums were not."""

EXERCISE = "bound-a-sum"
REASON = "relative"


def sum_bound(x):
    return 1e-3 * x.double().sum(dim=1).abs()
