"""The exercises inside lesson 05: blocks that fit on an SM, slots that stay empty, a kernel that sums
columns, and the warps that keep memory busy.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from helpers.exercises.factories import answer_exercise, kernel_exercise
from helpers.exercises.mistakes import always
from helpers.exercises.model import Case
from helpers.exercises.plans import CasePlan
from helpers.exercises.verdicts import counted, is_number

if TYPE_CHECKING:
    import torch

    from helpers.exercises.evidence import Evidence

LAB = "05_ncu"
_THREADS, _REGISTERS, _BLOCKS, _GROUP = 2048, 65536, 32, 8  # of an SM; registers are allocated in groups


# ----------------------------------------------------------------------------- blocks that fit on an SM
def _fitting(threads: int, registers: int) -> int:
    allocated = -(-registers // _GROUP) * _GROUP
    return min(_THREADS // threads, _REGISTERS // (threads * allocated), _BLOCKS)


def _fitting_cases(rng: random.Random) -> Iterator[Case]:
    def case(threads: int, registers: int) -> Case:
        label = f"{threads} threads per block, {counted(registers, 'register')} per thread"
        return Case(label, (threads, registers), expected=_fitting(threads, registers))

    yield case(256, 26)
    yield case(128, 16)
    yield case(256, 48)
    yield case(256, 33)  # 40 are allocated
    yield case(32, 16)  # at most 32 blocks
    yield case(1024, 32)
    for _ in range(16):
        threads = rng.choice((128, 256, 512, 1024))
        yield case(threads, rng.randrange(16, min(256, _REGISTERS // threads + 1)))


def _about_fitting(threads: int, registers: int) -> dict[str, int]:
    allocated = -(-registers // _GROUP) * _GROUP
    return {
        "allocated": allocated,
        "by_threads": _THREADS // threads,
        "by_registers": _REGISTERS // (threads * allocated),
        "ungrouped": min(_THREADS // threads, _REGISTERS // (threads * registers), _BLOCKS),
        "per_thread_only": _REGISTERS // allocated,
    }


BLOCKS = answer_exercise(
    "blocks-on-an-sm",
    LAB,
    "How many blocks fit on an SM?",
    "blocks_on_an_sm",
    _fitting_cases,
    facts=_about_fitting,
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "block-limit": lambda s: s.want == _BLOCKS and s.got > _BLOCKS,
        "not-grouped": lambda s: s.got == s.ungrouped,
        "registers-per-block": lambda s: s.got == s.per_thread_only,
        "threads-only": lambda s: s.got == min(s.by_threads, _BLOCKS),
        "registers-only": lambda s: s.got == s.by_registers,
        "blocks": always,
    },
    minutes=5,
)


# ----------------------------------------------------------------------------- slots that stay empty
def _empty(n_blocks: int, at_once: int) -> float:
    return 1 - n_blocks / (-(-n_blocks // at_once) * at_once)


def _empty_cases(rng: random.Random) -> Iterator[Case]:
    def case(n_blocks: int, at_once: int) -> Case:
        label = f"{counted(n_blocks, 'block')}, {at_once:,} at once"
        return Case(label, (n_blocks, at_once), expected=_empty(n_blocks, at_once))

    yield case(4096, 1056)
    yield case(1056, 1056)
    yield case(1057, 1056)
    yield case(1, 1056)
    yield case(3168, 1056)
    for _ in range(12):
        at_once = rng.choice((40, 320, 864, 1056, 2112))
        yield case(rng.randrange(1, 9 * at_once), at_once)


def _about_empty(n_blocks: int, at_once: int) -> dict[str, float]:
    n_waves, rest = -(-n_blocks // at_once), n_blocks % at_once
    return {
        "n_waves": n_waves,
        "slots": (n_waves * at_once - n_blocks),
        "last_only": 1 - rest / at_once,
        "filled": n_blocks / (n_waves * at_once),
    }


EMPTY = answer_exercise(
    "empty-slots",
    LAB,
    "Which share of the slots stays empty?",
    "empty_share",
    _empty_cases,
    facts=_about_empty,
    tolerance=1e-6,
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "percent": lambda s: s.want and s.near(100 * s.want),
        "slots-not-share": lambda s: s.want and s.near(s.slots),
        "filled-share": lambda s: s.near(s.filled),
        "last-wave-only": lambda s: s.near(s.last_only),
        "whole-waves": lambda s: s.want == 0 or s.got < 0,
        "share": always,
    },
    minutes=5,
)


# ----------------------------------------------------------------------------- a kernel that sums columns
def _looks_like(sums: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Evidence], bool]:
    return lambda s: s.like(sums(s.x.double()), 1e-4, 1e-4)


SUM = kernel_exercise(
    "sum-columns",
    LAB,
    "Sum the columns, with neighbors on neighbors",
    "my_column_sums",
    lambda x: x.sum(dim=0),
    cases=CasePlan(ndim=2, strides=False, shapes=((3, 128), (1, 1), (7, 33), (64, 130), (33, 257), (5, 4))),
    must_launch="triton",
    tolerance=(1e-5, 1e-4),
    mistakes={
        "first-row-only": _looks_like(lambda x: x[0]),
        "last-row-only": _looks_like(lambda x: x[-1]),
        "one-row-short": _looks_like(lambda x: x[:-1].sum(dim=0)),
        "one-row-again": _looks_like(lambda x: x[0] * x.shape[0]),
    },
    minutes=5,
)


# ----------------------------------------------------------------------------- warps that keep memory busy
def _needed(gb_per_s: float, latency_ns: float, n_sms: int, bytes_per_thread: int) -> int:
    return math.ceil(gb_per_s * latency_ns / n_sms / (32 * bytes_per_thread))


def _needed_cases(rng: random.Random) -> Iterator[Case]:
    def case(gb_per_s: float, latency_ns: float, n_sms: int, bytes_per_thread: int) -> Case:
        args = (gb_per_s, latency_ns, n_sms, bytes_per_thread)
        label = f"{gb_per_s:,} GB/s, {latency_ns} ns, {n_sms} SMs, {bytes_per_thread} bytes per thread"
        return Case(label, args, expected=_needed(*args))

    yield case(3300, 700, 132, 16)
    yield case(3300, 700, 132, 4)
    yield case(4800, 700, 132, 64)
    yield case(320, 600, 40, 4)
    for _ in range(12):
        gb_per_s, n_sms = rng.choice(((300, 40), (900, 80), (1555, 108), (3350, 132), (4800, 132)))
        yield case(gb_per_s, rng.randrange(401, 999, 2), n_sms, rng.choice((4, 8, 16, 32, 64)))


def _about_needed(gb_per_s: float, latency_ns: float, n_sms: int, bytes_per_thread: int) -> dict[str, Any]:
    in_flight = gb_per_s * latency_ns
    exact = in_flight / n_sms / (32 * bytes_per_thread)
    return {
        "exact": exact,
        "whole_gpu": math.ceil(in_flight / (32 * bytes_per_thread)),
        "threads": math.ceil(in_flight / n_sms / bytes_per_thread),
        "in_flight": in_flight / n_sms,
    }


WARPS = answer_exercise(
    "warps-needed",
    LAB,
    "How many warps keep the memory busy?",
    "warps_needed",
    _needed_cases,
    facts=_about_needed,
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "whole-gpu": lambda s: s.got == s.whole_gpu,
        "threads": lambda s: s.got == s.threads,
        "bytes": lambda s: s.near(s.in_flight) or s.got == math.ceil(s.in_flight),
        "not-rounded": lambda s: s.near(s.exact),
        "rounded-down": lambda s: s.got == math.floor(s.exact),
        "units": lambda s: s.got == 0 or s.got > 1000 * s.want,
        "warps": always,
    },
    minutes=5,
)

EXERCISES = (BLOCKS, EMPTY, SUM, WARPS)
