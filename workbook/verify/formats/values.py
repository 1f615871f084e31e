"""Draw the inputs of a FlashInfer workload, from the distributions that the benchmark uses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from helpers import device

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3": torch.float8_e4m3fn,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
DEVICE = "cuda" if device.has_gpu() else "cpu"
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_INTEGERS = {torch.int8: (-128, 128), torch.uint8: (0, 256)}
_OTHER_INTEGERS = (-1024, 1024)


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """A random tensor, on the GPU if there is one.

    Floating-point numbers are normally distributed, in float8 limited to 2; integers are uniform between
    -1,024 and 1,023, or over all values of a byte.
    """
    generator = torch.Generator(DEVICE).manual_seed(seed)
    where = {"generator": generator, "device": DEVICE}
    if dtype in _FLOAT8:
        return torch.randn(shape, **where).clamp_(-2.0, 2.0).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=dtype, **where)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, **where).bool()
    return torch.randint(*_INTEGERS.get(dtype, _OTHER_INTEGERS), shape, dtype=dtype, **where)


def seed_of(*parts: Any) -> int:
    """A seed below 2**31 that depends on all parts, the same on every machine."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generators inside the block, and give them their old state back after it."""
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if device.has_gpu() else []):
        torch.manual_seed(seed)
        yield
