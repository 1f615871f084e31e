"""The exercises inside lesson 10: times from bytes and from several rates, and the order of two intervals."""

from __future__ import annotations

import random
from collections.abc import Iterator

from helpers.exercises.factories import answer_exercise
from helpers.exercises.lab10.exercises import LAB
from helpers.exercises.mistakes import always, close
from helpers.exercises.model import Case
from helpers.exercises.verdicts import is_number
from helpers.lessons import cross_gpu


def _byte_cases(rng: random.Random) -> Iterator[Case]:
    pairs = [(800_000_000, 3000.0), (800_000_000, 250.0), (32_768, 4000.0), (0, 1400.0)]
    pairs += [(rng.randrange(10**4, 4 * 10**9), rng.choice((240.0, 1400.0, 3000.0))) for _ in range(8)]
    for n_bytes, gb_per_s in pairs:
        label = f"{n_bytes:,} bytes at {gb_per_s:,.0f} GB/s"
        yield Case(label, (n_bytes, gb_per_s), expected=n_bytes / gb_per_s / 1e3)


BYTES = answer_exercise(
    "bytes-to-us",
    LAB,
    "The time of bytes",
    "bytes_to_us",
    _byte_cases,
    facts=lambda n_bytes, gb_per_s: {"n_bytes": n_bytes, "gb_per_s": gb_per_s},
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "halved": lambda s: close(s.got, s.want / 2, rel=1e-9, abs=0),
        "doubled": lambda s: close(s.got, 2 * s.want, rel=1e-9, abs=0),
        "unit": lambda s: close(s.got, *(s.want * 10**n for n in (-9, -6, -3, 3, 6, 9)), rel=1e-9, abs=0),
        "inverse": lambda s: close(s.got * s.want, 1, rel=1e-9, abs=0),
        "time": always,
    },
    tolerance=1e-9,
    minutes=5,
)


def _rate_cases(rng: random.Random) -> Iterator[Case]:
    triples = [(1.4, 63.0, 79.0), (1.4, 89.0, 79.0), (1.2, 0.01, 0.02), (2.0, 50.0, 50.0)]
    triples += [
        (round(rng.uniform(1, 3), 2), round(rng.uniform(1, 500), 1), round(rng.uniform(1, 500), 1))
        for _ in range(10)
    ]
    for floor_us, bytes_us, starts_us in triples:
        label = f"a launch floor of {floor_us} µs, bytes of {bytes_us} µs and starts of {starts_us} µs"
        yield Case(label, (floor_us, bytes_us, starts_us), expected=floor_us + max(bytes_us, starts_us))


RATE = answer_exercise(
    "slowest-rate",
    LAB,
    "A launch floor, and the slowest of several rates",
    "slowest_rate_us",
    _rate_cases,
    facts=lambda floor_us, bytes_us, starts_us: {"floor": floor_us, "moved": bytes_us, "starts": starts_us},
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "sum": lambda s: close(s.got, s.floor + s.moved + s.starts, rel=1e-9, abs=0),
        "largest-of-all": lambda s: close(s.got, max(s.floor, s.moved, s.starts), rel=1e-9, abs=0),
        "no-floor": lambda s: close(s.got, max(s.moved, s.starts), rel=1e-9, abs=0),
        "one-rate": lambda s: close(s.got, s.floor + min(s.moved, s.starts), rel=1e-9, abs=0),
        "time": always,
    },
    tolerance=1e-9,
    minutes=5,
)


def _interval_cases(rng: random.Random) -> Iterator[Case]:
    pairs = [
        ((10.0, 11.0), (12.0, 13.0)),
        ((12.0, 13.0), (10.0, 11.0)),
        ((10.0, 12.0), (11.0, 13.0)),
        ((11.0, 13.0), (10.0, 12.0)),
        ((10.0, 14.0), (11.0, 12.0)),  # one contains the other
        ((11.0, 12.0), (10.0, 14.0)),
        ((10.0, 11.0), (11.0, 12.0)),  # both contain 11
    ]
    for _ in range(8):
        low, other = rng.uniform(5, 100), rng.uniform(0.9, 1.1)
        width = rng.uniform(0.001, 0.08) * low
        pairs.append(((low, low + width), (low * other, low * other + width)))
    for ours, theirs in pairs:
        yield Case(
            f"ours {_text(ours)} µs, theirs {_text(theirs)} µs",
            (ours, theirs),
            expected=cross_gpu.order(ours, theirs),
        )


def _text(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}"


ORDER = answer_exercise(
    "order-of-two",
    LAB,
    "What two intervals show",
    "order",
    _interval_cases,
    facts=lambda ours, theirs: {"ours": ours, "theirs": theirs},
    mistakes={
        "another-word": lambda s: s.got not in ("faster", "slower", "tie"),
        "reversed": lambda s: {s.got, s.want} == {"faster", "slower"},
        "overlap-decided": lambda s: s.want == "tie",
        "missed": always,
    },
    minutes=5,
)

EXERCISES = (BYTES, RATE, ORDER)
