"""The host's clock is read before the GPU has run anything."""

import torch

EXERCISE = "repair-a-benchmark"
REASON = "not-waited"


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
        kernel(torch.randn(64, 1000))
        gpu.wait()
        inputs = torch.randn(20, 64, 1000)
        start = gpu.host_us()
        for x in inputs:
            kernel(x)
        return (gpu.host_us() - start) / len(inputs)

    return is_right(candidate), time_us(candidate), time_us(baseline)
