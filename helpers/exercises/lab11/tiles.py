"""The rule by which lab 11 chooses a tile for a GPU, and what breaks it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from helpers.exercises.mistakes import Conditions, Seen, not_numbers
from helpers.exercises.model import Case
from helpers.exercises.verdicts import counted

SIDES = (32, 64, 128, 256)  # rows and columns of a tile
WARPS = (4, 8)
STAGES = (3, 4)
STEP_BYTES = 128  # of k per step
OTHERS = 64  # registers of a thread that aren't accumulators
PER_THREAD = 255  # the most registers of a thread

GPUS = {
    "an H100": {"n_sms": 132, "shared_bytes": 227 << 10, "registers": 65_536},
    "an A100": {"n_sms": 108, "shared_bytes": 163 << 10, "registers": 65_536},
    "an RTX 4090": {"n_sms": 128, "shared_bytes": 99 << 10, "registers": 65_536},
    "a T4": {"n_sms": 40, "shared_bytes": 64 << 10, "registers": 65_536},
    "a GPU with few registers": {"n_sms": 60, "shared_bytes": 227 << 10, "registers": 32_768},
}


def loaded(m: int, n: int, k: int, block_m: int, block_n: int, itemsize: int) -> int:
    """The bytes that all blocks of a tiled (m, k) times (k, n) product load."""
    return itemsize * k * (m * -(-n // block_n) + n * -(-m // block_m))


def step_bytes(block_m: int, block_n: int) -> int:
    """The shared memory that one step of a tile needs."""
    return (block_m + block_n) * STEP_BYTES


def per_thread(block_m: int, block_n: int, num_warps: int) -> int:
    """The registers that a thread needs."""
    return block_m * block_n // (32 * num_warps) + OTHERS


def programs(m: int, n: int, block_m: int, block_n: int) -> int:
    """The number of tiles of an (m, n) matrix."""
    return -(-m // block_m) * -(-n // block_n)


def fitting(gpu: dict[str, int]) -> list[tuple[int, int]]:
    """The tiles of which three stages fit into shared memory, and whose accumulators fit into registers."""

    def fits(block_m: int, block_n: int) -> bool:
        return step_bytes(block_m, block_n) * min(STAGES) <= gpu["shared_bytes"] and any(
            per_thread(block_m, block_n, warps) <= PER_THREAD
            and per_thread(block_m, block_n, warps) * 32 * warps <= gpu["registers"]
            for warps in WARPS
        )

    return [(one, other) for one in SIDES for other in SIDES if fits(one, other)]


def cases(rng: random.Random) -> Iterator[Case]:
    """Products of many sizes on known GPUs and on made-up ones."""

    def case(m: int, n: int, k: int, itemsize: int, gpu: dict[str, int], name: str) -> Case:
        label = f"({m:,}, {k:,}) times ({k:,}, {n:,}), {itemsize} bytes each, on {name}"
        return Case(label, (m, n, k, itemsize, gpu))

    h100 = "an H100"
    sizes = [(4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 4096), (100, 100, 8192), (4096, 128, 4096)]
    for m, n, k in sizes:
        yield case(m, n, k, 2, dict(GPUS[h100]), h100)
    for name, gpu in GPUS.items():
        yield case(4096, 8192, 1024, rng.choice((2, 4)), dict(gpu), name)
    for _ in range(14):
        gpu = {
            "n_sms": rng.choice((20, 40, 58, 84, 108, 132, 148)),
            "shared_bytes": rng.choice((48, 64, 99, 163, 227)) << 10,
            "registers": rng.choice((32_768, 65_536, 65_536)),
        }
        m, n, k = (rng.choice((rng.randrange(40, 3000), rng.randrange(3000, 9000))) for _ in range(3))
        about = f"a GPU of {gpu['n_sms']} SMs with {gpu['shared_bytes'] >> 10} KB each"
        yield case(m, n, k, rng.choice((1, 2, 4)), gpu, about)


def facts(m: int, n: int, k: int, itemsize: int, gpu: dict[str, int]) -> dict[str, Any]:
    """What the rule says of this product: the tiles that fit, and those of them that it allows."""
    fit = fitting(gpu)
    full = [one for one in fit if programs(m, n, *one) >= gpu["n_sms"]]
    most = max(programs(m, n, *one) for one in fit)
    allowed = full or [one for one in fit if programs(m, n, *one) == most]
    least = min(loaded(m, n, k, *one, itemsize) for one in allowed)
    return {"full": full, "most": most, "least": least, **gpu}


def _choice(s: Seen) -> tuple[int, int, int, int]:
    return tuple(int(one) for one in s.got)


def _not_offered(s: Seen) -> str:
    offered = (SIDES, SIDES, WARPS, STAGES)
    names = ("block_m", "block_n", "num_warps", "num_stages")
    bad = next((i for i in range(4) if s.got[i] not in offered[i]), None)
    return "" if bad is None else f"{names[bad]} is {s.got[bad]}"


def _no_room(s: Seen) -> str:
    block_m, block_n, _, stages = _choice(s)
    needs = step_bytes(block_m, block_n) * stages
    what = f"{stages} stages of ({block_m} + {block_n}) × {STEP_BYTES} bytes are {needs:,} bytes"
    return f"{what}, but an SM has {s.shared_bytes:,}" if needs > s.shared_bytes else ""


def _thread_too_large(s: Seen) -> str:
    block_m, block_n, warps, _ = _choice(s)
    needs = per_thread(block_m, block_n, warps)
    what = (
        f"{block_m} × {block_n} accumulators in {counted(32 * warps, 'thread')} need {needs} registers each"
    )
    return f"{what}, but a thread has at most {PER_THREAD}" if needs > PER_THREAD else ""


def _program_too_large(s: Seen) -> str:
    block_m, block_n, warps, _ = _choice(s)
    needs = per_thread(block_m, block_n, warps) * 32 * warps
    what = (
        f"{counted(32 * warps, 'thread')} of {per_thread(block_m, block_n, warps)} registers need {needs:,}"
    )
    return f"{what}, but an SM has {s.registers:,}" if needs > s.registers else ""


def _not_a_wave(s: Seen) -> str:
    n_programs = programs(s.m, s.n, *_choice(s)[:2])
    what = f"{counted(n_programs, 'program')} for {s.n_sms} SMs"
    return f"{what}, although a smaller tile fills them" if s.full and n_programs < s.n_sms else ""


def _not_most(s: Seen) -> str:
    n_programs = programs(s.m, s.n, *_choice(s)[:2])
    what = f"no tile gives every one of the {s.n_sms} SMs a program, and this one gives {n_programs}"
    return f"{what} of the {s.most} that are possible" if not s.full and n_programs < s.most else ""


def _loads_more(s: Seen) -> str:
    bytes_loaded = loaded(s.m, s.n, s.k, *_choice(s)[:2], s.itemsize)
    more = f"it loads {bytes_loaded / s.least:.2f} times the bytes of the best tile that the rules allow"
    return more if bytes_loaded > s.least else ""


def _stage_left(s: Seen) -> str:
    block_m, block_n, _, stages = _choice(s)
    room = stages < max(STAGES) and step_bytes(block_m, block_n) * (stages + 1) <= s.shared_bytes
    return f"{stages + 1} stages fit into shared memory, too" if room else ""


MISTAKES: Conditions = {
    "not-four": not_numbers(4),
    "not-offered": _not_offered,
    "shared-memory": _no_room,
    "registers/thread": _thread_too_large,
    "registers/program": _program_too_large,
    "no-full-wave": _not_a_wave,
    "too-few-programs": _not_most,
    "loads-more": _loads_more,
    "stages": _stage_left,
}
