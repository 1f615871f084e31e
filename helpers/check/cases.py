"""Shapes and values that break kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def shapes_around(block_size: int | None = None) -> list[tuple[int, int]]:
    """The 2-D shapes (n_rows, n_cols) that often break kernels: empty, one element, and around powers of
    two and the block.

    Example:
        >>> from helpers import check
        >>> check.shapes_around(256)[:4]
        [(0, 0), (0, 5), (3, 0), (1, 1)]
    """
    widths = {1, 2, 31, 32, 33, 127, 128, 129, 781, 1023, 1024, 1025}
    if block_size:
        widths |= {block_size - 1, block_size, block_size + 1, 2 * block_size + 1} - {0, -1}
    if block_size is None or block_size <= 4096:
        widths.add(4096)  # a kernel with BLOCK_SIZE 1024 that squares a quarter of each row must not pass
    rows = (1, 3, 2, 5)
    shapes = [(0, 0), (0, 5), (3, 0)]
    return shapes + [(rows[i % len(rows)], width) for i, width in enumerate(sorted(widths))]


def one_normal(
    shape: tuple[int, ...], generator: torch.Generator, device: str, dtype: torch.dtype
) -> tuple[torch.Tensor]:
    """One input of normally distributed numbers, or of integers from -100 to 99."""
    import torch

    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(dtype),)
    return (torch.randint(-100, 100, shape, generator=generator, device=device).to(dtype),)


def special(generator: torch.Generator, device: str, dtype: torch.dtype) -> torch.Tensor:
    """A (4, 257) input with NaN, both infinities, both zeros and a subnormal among ordinary values."""
    import torch

    (x,) = one_normal((4, 257), generator, device, dtype)
    values = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, torch.finfo(dtype).tiny / 2]
    where = torch.randperm(x.numel(), generator=generator, device=device)[: len(values)]
    x.view(-1)[where] = torch.tensor(values, device=device, dtype=dtype)
    return x
