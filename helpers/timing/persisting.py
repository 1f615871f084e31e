"""The part of the L2 cache that is set aside for persisting lines, which survive a flush.

A program may set part of the L2 aside (cudaLimitPersistingL2CacheSize) and mark addresses as persisting (an
access-policy window). Their lines stay in the cache when other data is written, so a flush evicts them only
after nothing is set aside. See "L2 Cache Control" in NVIDIA's CUDA Programming Guide.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

_LIMIT = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
_WINDOW = 1  # CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
_NORMAL, _PERSISTING = 0, 2  # CUaccessProperty


class CannotSetAside(RuntimeError):
    """The driver or the GPU cannot set that much of the L2 aside."""


def set_aside_bytes() -> int:
    """How much of the current device's L2 is set aside; 0 if the driver or the GPU can't do that."""
    driver = _driver()
    value = ctypes.c_size_t()
    if driver is None or driver.cuCtxGetLimit(ctypes.byref(value), _LIMIT):
        return 0
    return value.value


@functools.cache
def usual_bytes() -> int:
    """How much was set aside when this was first asked. A driver may begin with some: on an H100, 9 MiB."""
    return set_aside_bytes()


@contextlib.contextmanager
def none_set_aside() -> Iterator[int]:
    """While it is active, nothing is set aside and no line persists; afterwards the limit is as before.

    Yields:
        How many bytes were set aside.
    """
    before = set_aside_bytes()
    if before:
        _set_limit(0)
    try:
        yield before
    finally:
        if before:
            _set_limit(before)


@contextlib.contextmanager
def set_aside(n_bytes: int) -> Iterator[None]:
    """While it is active, this much is set aside; afterwards the limit is as before and no line persists.

    Raises:
        CannotSetAside: the driver or the GPU can't do that.
    """
    before = set_aside_bytes()
    try:
        if _driver() is None or _set_limit(n_bytes) or set_aside_bytes() < n_bytes:
            raise CannotSetAside(
                f"{n_bytes / 2**20:,.0f} MiB of the L2 cache cannot be set aside on this GPU."
            )
        yield
    finally:
        if _driver() is not None:
            _set_limit(before)


def mark(stream: int, address: int, n_bytes: int) -> None:
    """Let these addresses persist while kernels on `stream` use them, instead of those marked before.

    With 0 bytes, none do.

    Raises:
        CannotSetAside: the driver or the GPU can't do that.
    """
    window = _Window(address, n_bytes, float(n_bytes > 0), _PERSISTING if n_bytes else _NORMAL, _NORMAL)
    if _driver().cuStreamSetAttribute(ctypes.c_void_p(stream), _WINDOW, ctypes.byref(window)):
        raise CannotSetAside("The driver refuses an access-policy window on this stream.")


class _Window(ctypes.Structure):
    """CUaccessPolicyWindow, with the size of the union that the driver reads."""

    _fields_ = [
        ("address", ctypes.c_void_p), ("n_bytes", ctypes.c_size_t), ("hit_ratio", ctypes.c_float),
        ("on_hit", ctypes.c_int), ("on_miss", ctypes.c_int), ("padding", ctypes.c_byte * 64),
    ]  # fmt: skip


def _set_limit(n_bytes: int) -> int:
    """Returns the driver's error, or 0."""
    driver = _driver()
    error = driver.cuCtxSetLimit(_LIMIT, ctypes.c_size_t(n_bytes))
    driver.cuCtxResetPersistingL2Cache()
    return error


def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
