"""The properties of a GPU that the launch rules depend on. Without a GPU, an H100 is assumed."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

REGISTERS_PER_SM = 1 << 16  # on every generation since 2014


@dataclass(frozen=True)
class Chip:
    """A GPU, as far as the launch rules need to know it.

    Attributes:
        n_sms: Streaming multiprocessors (SMs).
        threads_per_sm: Threads that can be resident on an SM.
        l2_bytes: The size of the L2 cache.
        shared_bytes: The most shared memory that a block may use.
        capability: The compute capability, such as (9, 0).
    """

    n_sms: int = 132
    threads_per_sm: int = 2048
    l2_bytes: int = 50 << 20
    shared_bytes: int = 227 << 10
    capability: tuple[int, int] = (9, 0)


@functools.lru_cache(maxsize=64)
def _cuda(index: int) -> Chip:
    found = torch.cuda.get_device_properties(index)
    return Chip(
        found.multi_processor_count,
        found.max_threads_per_multi_processor,
        found.L2_cache_size,
        found.shared_memory_per_block_optin,
        (found.major, found.minor),
    )


def chip_of(device: torch.device | None = None) -> Chip:
    """Returns the properties of a CUDA device, by default the current one.

    For a device of another type, or without a GPU, it returns those of an H100.
    """
    if (device is not None and device.type != "cuda") or not torch.cuda.is_available():
        return Chip()
    index = None if device is None else device.index
    return _cuda(torch.cuda.current_device() if index is None else index)
