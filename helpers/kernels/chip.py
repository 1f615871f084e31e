"""What of a GPU the launch rules depend on; an H100's figures where there is no GPU."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

REGISTERS_PER_SM = 1 << 16  # on every generation since 2014


@dataclass(frozen=True)
class Chip:
    """Streaming multiprocessors, the threads that one holds, and the bytes of the L2 cache."""

    n_sms: int = 132
    threads_per_sm: int = 2048
    l2_bytes: int = 50 << 20


@functools.lru_cache(maxsize=64)
def _cuda(index: int) -> Chip:
    found = torch.cuda.get_device_properties(index)
    return Chip(found.multi_processor_count, found.max_threads_per_multi_processor, found.L2_cache_size)


def chip_of(device: torch.device | None = None) -> Chip:
    """The chip of a CUDA device, of the current one for None; an H100 for another device or where there is no GPU."""
    if (device is not None and device.type != "cuda") or not torch.cuda.is_available():
        return Chip()
    index = None if device is None else device.index
    return _cuda(torch.cuda.current_device() if index is None else index)
