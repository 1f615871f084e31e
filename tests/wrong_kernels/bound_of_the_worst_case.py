"""The bound is for n roundings of the same sign, so that a missing block isn't noticed."""

EXERCISE = "bound-a-sum"
REASON = "worst-case"


def sum_bound(x):
    return x.shape[1] * 2**-24 * x.double().abs().sum(dim=1)
