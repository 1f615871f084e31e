"""Hidden cases of lab 11's CUDA kernel, and what its runs in the emulator show."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from helpers.exercises import guarded_run
from helpers.exercises.mistakes import Conditions, Seen, always, under
from helpers.exercises.model import Case

if TYPE_CHECKING:
    import torch

_SIDE = 16


def cases(rng: random.Random, device: str) -> Iterator[Case]:
    """Runs on small matrices, and one whose loads are counted."""
    import torch

    generator = torch.Generator().manual_seed(rng.randrange(2**31))

    def run(m: int, k: int, n: int) -> Case:
        # Whole numbers, so that every order of the additions gives the same sums.
        a, b = (torch.randint(-8, 9, size, generator=generator).float() for size in ((m, k), (k, n)))
        label = f"({m}, {k}) times ({k}, {n})"
        return Case(label, (a, b), expected=a @ b, call="run")

    uneven = [one for one in range(17, 48) if one % _SIDE]
    yield run(16, 16, 16)
    yield run(16, 48, 16)
    yield run(16, rng.choice(uneven), 16)
    yield run(rng.choice(uneven), 16, 16)
    yield run(16, 16, rng.choice(uneven))
    for size in ((1, 1, 1), (1, 40, 1), (33, 1, 18), (3, 0, 5)):
        yield run(*size)
    for _ in range(3):
        yield run(*(rng.choice(uneven) for _ in range(3)))
    m, k, n = (rng.choice(uneven) for _ in range(3))
    loads = k * (m * -(-n // _SIDE) + n * -(-m // _SIDE))
    yield Case(f"the loads of ({m}, {k}) times ({k}, {n})", (m, k, n), expected=loads, call="count")


def facts(*args: Any) -> dict[str, Any]:
    """The sizes of a case."""
    if isinstance(args[0], int):
        return dict(zip(("m", "k", "n"), args, strict=True))
    a, b = args
    return {"m": a.shape[0], "k": a.shape[1], "n": b.shape[1], "a": a, "b": b}


def parts(seen: Seen) -> Iterable[Seen]:
    """The facts of a run, or of a count."""
    if "loads" in seen.got:
        none = dict.fromkeys(("refused", "trouble", "changed", "outside", "bad"))
        found = seen.got["loads"]
        times = f"the result is right, but it loads {found:,} numbers instead of {seen.want:,}"
        yield seen.also(**none, loads=found, problem=times, details="")
        return
    for part in guarded_run.seen_run(seen):
        yield part.also(loads=None)


def _is(s: Seen, values: torch.Tensor) -> bool:
    """Whether the wrong elements have these values."""
    if values.shape != s.out.shape:
        return False
    return bool((s.out == values)[s.bad].all())


def _steps(s: Seen, *starts: int) -> torch.Tensor:
    return sum(s.a[:, i : i + _SIDE] @ s.b[i : i + _SIDE] for i in starts) + 0 * s.expected.float()


def _reads_outside(s: Seen) -> bool:
    return s.cause == "out of bounds" and s.argument in ("a", "b")


FAULTS: Conditions = {
    "missing-barrier": lambda s: s.cause == "race" or (s.cause == "uninitialised" and "tile" in s.argument),
    "barrier-in-if": lambda s: s.cause == "barrier",
    "k-not-masked": lambda s: _reads_outside(s) and s.k % _SIDE and not s.m % _SIDE and not s.n % _SIDE,
    "missing-guard/load": _reads_outside,
    "missing-guard/store": lambda s: s.cause == "out of bounds" and s.argument == "c",
}
VALUES: Conditions = {
    "never-written": guarded_run.unwritten,
    "k-rounded-down": lambda s: s.k % _SIDE and _is(s, _steps(s, *range(0, s.k // _SIDE * _SIDE, _SIDE))),
    "one-step": lambda s: s.k > _SIDE and _is(s, _steps(s, 0)),
    "not-accumulated": lambda s: s.k > _SIDE and _is(s, _steps(s, (s.k - 1) // _SIDE * _SIDE)),
    "stale-tile": lambda s: s.k > _SIDE and _is(s, _steps(s, *[0] * (s.k // _SIDE))),
    "transposed-b": lambda s: s.b.shape[0] == s.b.shape[1] and _is(s, s.a @ s.b.T),
    "k-not-masked/values": lambda s: s.k % _SIDE and not s.m % _SIDE and not s.n % _SIDE,
    "wrong-values": always,
}
MISTAKES: Conditions = {
    "loads-too-often": lambda s: s.loads is not None and s.loads > s.want,
    **under(lambda s: s.loads is None, guarded_run.of_runs(FAULTS, VALUES)),
}
