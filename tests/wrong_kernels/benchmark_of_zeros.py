"""The results are compared for zeros, whose sums any kernel gets right."""

import statistics

import torch

EXERCISE = "repair-a-benchmark"
REASON = "accepts-wrong"


def benchmark(gpu, candidate, baseline):
    def time_us(kernel):
        kernel(torch.randn(64, 1000))
        gpu.wait()
        pairs = []
        for x in torch.randn(20, 64, 1000):
            gpu.flush()
            start = gpu.mark()
            kernel(x)
            pairs.append((start, gpu.mark()))
        gpu.wait()
        return statistics.median(start.us_until(stop) for start, stop in pairs)

    x = torch.zeros(64, 1000)
    right = torch.allclose(candidate(x), baseline(x))
    return right, time_us(candidate), time_us(baseline)
