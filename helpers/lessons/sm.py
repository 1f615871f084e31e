"""Lesson 05's drawing of an SM: four schedulers, their warps and registers, the L1 cache, and the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers import plots

if TYPE_CHECKING:
    from IPython.display import HTML

    from helpers.ncu import Kernel

_WIDTH, _GAP, _PER_ROW, _SLOT = 168, 12, 8, 17  # of a quarter; warp slots per row, and a slot's width
_INK = "currentColor"


def draw(kernel: Kernel, *, n_blocks: int = 0) -> HTML:
    """Draws one SM of the GPU that a launch was profiled on, with the warps of some of its blocks.

    A block's warps are dealt to the schedulers in turn. The sizes are those that the report states.

    Args:
        kernel: A profiled launch.
        n_blocks: How many of its blocks to draw; 0 draws as many as fit.
    """
    from IPython.display import HTML

    from helpers import ncu

    limits = ncu.occupancy(kernel).attrs
    size = {
        name: int(kernel.metrics[f"device__attribute_{attribute}"])
        for name, attribute in {
            "schedulers": "num_schedulers_per_multiprocessor",
            "warps": "max_warps_per_multiprocessor",
            "registers": "max_registers_per_multiprocessor",
            "shared": "max_shared_memory_per_multiprocessor",
            "sms": "multiprocessor_count",
            "l2": "l2_cache_size",
        }.items()
    }
    n_blocks = min(n_blocks or limits["blocks_per_sm"], limits["blocks_per_sm"])
    block_of_warp = [block for block in range(n_blocks) for _ in range(limits["warps_per_block"])]
    n, slots = size["schedulers"], size["warps"] // size["schedulers"]
    width = n * (_WIDTH + _GAP) + _GAP
    parts = [_box(0, 0, width, 262, f"one SM (of {size['sms']})")]
    for i in range(n):
        left = _GAP + i * (_WIDTH + _GAP)
        held = block_of_warp[i::n]
        parts.append(_quarter(left, held, slots, size["registers"] // n))
    inside = width - 2 * _GAP
    parts += [
        _box(_GAP, 214, inside, 36, f"L1 cache and shared memory (up to {size['shared'] // 1024} kB shared)"),
        _box(0, 274, width, 32, f"L2 cache of all SMs, {size['l2'] / 2**20:.0f} MB"),
        _box(0, 314, width, 32, "DRAM, the GPU's main memory"),
    ]
    about = f"An SM with {n} schedulers of {slots} warp slots each, {len(block_of_warp)} of them in use"
    return HTML(
        f'<svg viewBox="-1 -1 {width + 2} 350" width="100%" style="max-width:{width}px" role="img" '
        f'aria-label="{about}" font-family="sans-serif" font-size="13">{"".join(parts)}</svg>'
    )


def _quarter(left: int, held: list[int], slots: int, registers: int) -> str:
    """A quarter of the SM: its scheduler, its warp slots, its registers and its arithmetic units."""
    parts = [
        _box(left, 26, _WIDTH, 178, ""),
        _box(left + 8, 34, _WIDTH - 16, 26, "warp scheduler"),
        _text(left + 8, 78, f"{slots} warp slots"),
    ]
    for slot in range(slots):
        x, y = left + 10 + slot % _PER_ROW * (_SLOT + 1.5), 84 + slot // _PER_ROW * 22
        color = plots.PALETTE[held[slot] % len(plots.PALETTE)] if slot < len(held) else "none"
        parts.append(
            f'<rect x="{x}" y="{y}" width="{_SLOT}" height="18" fill="{color}" stroke="{_INK}" '
            'stroke-width="0.8"/>'
        )
    parts += [
        _box(left + 8, 134, _WIDTH - 16, 28, f"{registers:,} registers"),
        _box(left + 8, 168, _WIDTH - 16, 28, "arithmetic units"),
    ]
    return "".join(parts)


def _box(x: float, y: float, width: float, height: float, text: str) -> str:
    baseline = y + 17 if height > 100 else y + height / 2 + 5
    rect = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="none" stroke="{_INK}"/>'
    return rect + _text(x + 10, baseline, text)


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y}" fill="{_INK}">{text}</text>'
