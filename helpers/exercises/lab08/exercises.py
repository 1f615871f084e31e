"""The exercises of lab 08, builds and failures: three broken kernels to diagnose and to fix."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from helpers.exercises import guarded_run
from helpers.exercises.lab08 import broken
from helpers.exercises.lab08 import runs as own
from helpers.exercises.mistakes import Condition, Conditions, Seen, Table, TableJudge, always, under
from helpers.exercises.model import Case, Exercise

if TYPE_CHECKING:
    import torch

LAB = "08_builds"


@dataclass(frozen=True)
class _Truth:
    """What is wrong with a broken kernel, and what a fixed one reads.

    Attributes:
        tool: A key of `broken.TOOLS`.
        lines: The lines that a tool may name.
        cause: A key of `broken.CAUSES`.
        share: The kernel's integers -> how many elements of the input each thread reads.
        reads_once: Whether each element may be read by one thread only.
    """

    tool: str
    lines: tuple[int, ...]
    cause: str
    share: Callable[..., int]
    reads_once: bool = True


def _values(rng: random.Random, sizes: tuple[int, ...]) -> torch.Tensor:
    import torch

    return torch.randn(sizes, generator=torch.Generator().manual_seed(rng.randrange(2**31)))


def _finds(cause: str) -> Condition:
    """The condition that the emulator found this (`EmulatorError.cause`)."""
    return lambda s: s.cause == cause


_DIAGNOSIS = {
    "no-tool": lambda s: s.tool not in broken.TOOLS,
    "no-cause": lambda s: s.cause not in broken.CAUSES,
    "tool/host": lambda s: s.tool == "host" != s.want.tool,
    "tool": lambda s: s.tool != s.want.tool,
    "line": lambda s: s.line not in s.want.lines,
    "cause": lambda s: s.cause != s.want.cause,
}
_READS = {
    "reads-again": lambda s: s.want.reads_once and s.total > s.n,
    "fewer-threads": lambda s: s.most > s.share,
}


def _parts(seen: Seen) -> Iterable[Seen]:
    got = seen.got
    if seen.case.call == "diagnosis":
        looks_for, meaning = broken.TOOLS.get(got["tool"]), broken.CAUSES.get(got["cause"])
        yield seen.also(**got, looks_for=looks_for, meaning=meaning)
    elif "total" in got:
        x, _, sizes = seen.case.args
        yield seen.also(**got, n=x.numel(), share=seen.want.share(*sizes))
    else:
        yield from guarded_run.seen_run(seen)


def _exercise(
    id: str,
    title: str,
    minutes: int,
    of: broken.Broken,
    truth: _Truth,
    sizes: Callable[[random.Random], list[tuple]],
    result: Callable[[torch.Tensor], torch.Tensor],
    more: Callable[[], list[tuple[str, torch.Tensor]]] = list,
    **found: Conditions,
) -> Exercise:
    """Make an exercise.

    Args:
        sizes: Of the random inputs.
        result: What the kernel should compute.
        more: Further inputs, with labels.
        found: `faults` and `values`, as in `guarded_run.of_runs`.
    """

    def run(label: str, x: torch.Tensor) -> Case:
        out = result(x)
        return Case(label, (x, tuple(out.shape), list(x.shape)), expected=out, call="run")

    def cases(rng: random.Random, device: str) -> Iterator[Case]:
        yield Case("the diagnosis", (), expected=truth, call="diagnosis")
        inputs = [(" × ".join(map(str, size)), _values(rng, size)) for size in sizes(rng)]
        for shape, x in inputs[:-1]:
            yield run(f"an input of {shape}", x)
        shape, x = inputs[-1]
        last = run(f"an input of {shape}, all negative", -x.abs() - 1)  # an element set to 0 is the maximum
        yield last
        yield from (run(*one) for one in more())
        yield replace(last, label=f"a traced run on {shape}", expected=truth, call="reads")

    conditions = {
        **under(lambda s: s.case.call == "diagnosis", _DIAGNOSIS),
        **guarded_run.of_runs(**found),
        **under(lambda s: s.case.call == "reads", _READS),
    }
    name = of.name.upper()
    return Exercise(
        id=id,
        lab=LAB,
        title=title,
        name=name,
        minutes=minutes,
        cases=cases,
        judge=TableJudge(Table(id, LAB, conditions, raises=guarded_run.DOES_NOT_BUILD), name, parts=_parts),
        adapters={"diagnosis": own.diagnosis, "run": own.run, "reads": own.reads},
        text=own.as_text,
        prepare=partial(own.answer_of, of.name),
    )


# --------------------------------------------------------------------------------------------- reverse rows
REVERSE = _exercise(
    "fix-the-index",
    "Reverse each row",
    15,
    broken.REVERSE_ROWS,
    _Truth("memcheck", (6,), "index", lambda height, width: 1),
    lambda rng: [(3, 5), (1, 1), (1, 200), (200, 1), (rng.randrange(2, 40), rng.randrange(2, 90)), (16, 16)],
    lambda x: x.flip(1),
    faults={"still-outside": _finds("out of bounds")},
    values={"hides-the-symptom": lambda s: s.out[s.bad].isnan().any(), "index": always},
)


# -------------------------------------------------------------------------------------------- smooth chunks
def _smooth(x: torch.Tensor) -> torch.Tensor:
    import torch

    out = torch.empty_like(x)
    for start in range(0, x.shape[1], 64):
        chunk = torch.nn.functional.pad(x[:, start : start + 64], (1, 1))
        out[:, start : start + 64] = chunk[:, :-2] + chunk[:, 1:-1] + chunk[:, 2:]
    return out


SMOOTH = _exercise(
    "fix-the-race",
    "Reuse a tile of shared memory",
    20,
    broken.SMOOTH_CHUNKS,
    _Truth("racecheck", (7, 10, 11, 12), "barrier", lambda height, width: -(-width // 64)),
    lambda rng: [
        (2, 64),
        (1, 65),
        (2, 200),
        (3, rng.randrange(2, 64)),
        (2, rng.randrange(129, 300)),
        (1, 12_289 + rng.randrange(64)),  # such a row doesn't fit a tile of 48 KB
        (2, 130),
    ],
    _smooth,
    faults={
        "still-races": _finds("race"),
        "barrier-in-branch": _finds("barrier"),
        "never-set": _finds("uninitialised"),
        "tile-too-small": _finds("out of bounds"),
        "tile-too-large": _finds("too much shared memory"),
    },
    values={"hides-the-symptom": guarded_run.unwritten, "values": always},
)


# --------------------------------------------------------------------------------------------- block maxima
def _maxima(x: torch.Tensor) -> torch.Tensor:
    import torch

    padded = torch.nn.functional.pad(x, (0, -len(x) % 64), value=float("-inf"))
    return padded.reshape(-1, 64).amax(dim=1)


def _has_finite_stand_in(s: Seen) -> bool:
    """Whether a maximum is too large in rows of the lowest float."""
    return bool(((s.out > s.expected) & (s.expected < -1e38)).any() and not (s.out == 0).any())


def _lowest() -> list[tuple[str, torch.Tensor]]:
    import torch

    lowest = torch.full((100,), torch.finfo(torch.float32).min)
    return [
        ("100 elements at float32's lowest", lowest),
        ("70 elements of -inf", torch.full((70,), -torch.inf)),
    ]


MAXIMA = _exercise(
    "fix-the-unset",
    "A last block that isn't full",
    20,
    broken.BLOCK_MAXIMA,
    _Truth("host", (8,), "never set", lambda n: 1, reads_once=False),
    lambda rng: [(64,), (100,), (1,), (128,), (rng.randrange(65, 500),), (rng.randrange(65, 127),)],
    _maxima,
    _lowest,
    faults={
        "still-unset": _finds("uninitialised"),
        "barrier-in-branch": _finds("barrier"),
        "reads-outside": _finds("out of bounds"),
        "race": _finds("race"),
    },
    values={
        "number-for-nothing": _has_finite_stand_in,
        "hides-the-symptom": guarded_run.unwritten,
        "zero-for-nothing": lambda s: (s.out[s.bad] == 0).all(),
        "values": always,
    },
)

EXERCISES = (REVERSE, SMOOTH, MAXIMA)
