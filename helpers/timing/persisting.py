"""The part of the L2 cache that is set aside for persisting lines, which survive a flush.

A program may set part of the L2 aside (cudaLimitPersistingL2CacheSize) and mark addresses as persisting (an
access-policy window). Their lines stay in the cache when other data is written, so a flush evicts them only
after nothing is set aside. See "L2 Cache Control" in NVIDIA's CUDA Programming Guide.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

_LIMIT = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE


def set_aside_bytes() -> int:
    """How much of the current device's L2 is set aside; 0 if the driver or the GPU can't do that."""
    driver = _driver()
    value = ctypes.c_size_t()
    if driver is None or driver.cuCtxGetLimit(ctypes.byref(value), _LIMIT):
        return 0
    return value.value


@contextlib.contextmanager
def none_set_aside() -> Iterator[int]:
    """While it is active, nothing is set aside and no line persists; afterwards the limit is as before.

    Yields:
        How many bytes were set aside.
    """
    before = set_aside_bytes()
    if before:
        _release(0)
    try:
        yield before
    finally:
        if before:
            _release(before)


def _release(limit: int) -> None:
    driver = _driver()
    driver.cuCtxSetLimit(_LIMIT, ctypes.c_size_t(limit))
    driver.cuCtxResetPersistingL2Cache()


def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
