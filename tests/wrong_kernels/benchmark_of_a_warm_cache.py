"""Every call finds its input in the L2."""

import statistics

import torch

EXERCISE = "repair-a-benchmark"
REASON = "warm"


def is_right(candidate):
    for _ in range(5):
        x = torch.randn(64, 1000)
        exact = x.double().sum(dim=1)
        size = exact.abs() + x.double().square().sum(dim=1).sqrt()
        if not ((candidate(x) - exact).abs() <= 4 * 2**-24 * 1000**0.5 * size).all():
            return False
    return True


def benchmark(gpu, candidate, baseline):
    def time_us(kernel):
        x, pairs = torch.randn(64, 1000), []
        kernel(x)
        gpu.wait()
        for _ in range(20):
            start = gpu.mark()
            kernel(x)
            pairs.append((start, gpu.mark()))
        gpu.wait()
        return statistics.median(start.us_until(stop) for start, stop in pairs)

    return is_right(candidate), time_us(candidate), time_us(baseline)
