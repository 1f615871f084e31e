"""The ceiling of kernels that arithmetic limits: the fastest torch.matmul on this GPU, measured."""

from __future__ import annotations

import functools

SIZES = (2048, 4096, 8192)
_LONG_US = 20_000  # a product that takes this long is large enough


@functools.cache
def peak_tflop_per_s(dtype: str) -> float | None:
    """Returns the TFLOP/s of the fastest n × n product by torch.matmul, over `SIZES`, measured once.

    Its inputs are random numbers, because a GPU runs at a higher clock on zeros.

    Args:
        dtype: the name of torch's dtype of both matrices.

    Returns:
        TFLOP/s, or None if torch.matmul doesn't take the dtype.

    Raises:
        helpers.device.Missing: this machine has no GPU.
    """
    import torch

    from helpers import device, timing

    device.require("gpu")
    speeds = []
    for n in SIZES:
        try:
            a, b = (torch.randn(n, n, device="cuda").to(getattr(torch, dtype)) for _ in range(2))
            torch.matmul(a, b)
        except (RuntimeError, NotImplementedError):  # no product of integers or fp8; too little memory
            break
        us = timing.time_gpu(lambda a=a, b=b: torch.matmul(a, b), budget_s=0.1).median_us
        speeds.append(2 * n**3 / us / 1e6)
        if us > _LONG_US:
            break
    return max(speeds, default=None)
