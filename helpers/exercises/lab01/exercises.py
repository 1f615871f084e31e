"""The exercises of lab 01, profiling."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator

from helpers import records
from helpers.exercises.factories import answer_exercise
from helpers.exercises.lab01 import adapters, samples, traces
from helpers.exercises.lab01.clocks import CLOCK_SUMMARY, FOUR_CLOCKS
from helpers.exercises.lab01.step import STEP
from helpers.exercises.mistakes import Seen, Table, TableJudge, always, at, not_numbers, under
from helpers.exercises.model import Case, Exercise

LAB = "01_profiling"


# ------------------------------------------------------------------------------------------ a grid
def _recorded_grids() -> Iterator[Case]:
    """The squares of lesson 01 whose grid was recorded on a GPU."""
    from helpers import trace

    for path in sorted(records.folder().glob("*/profiling/vector-widths.json")):
        for measured in json.loads(path.read_text())["cases"]:
            gpu = measured["provenance"]["gpu"]["name"]
            for row in measured["rows"]:
                name = trace.read_kernel_name(row["name"])
                if name.vector_width is None or name.function != "vectorized_elementwise_kernel":
                    continue
                n, blocks, threads = row["n_elements"], row["grid"][0], row["block"][0]
                yield Case(
                    f"{n:,} elements, {row['tensor']}, as launched on an {gpu}",
                    (n, name.vector_width, 8, threads),
                    expected=(blocks, 8 // name.vector_width, n - (blocks - 1) * 8 * threads),
                )


def _grid_cases(rng: random.Random, device: str) -> Iterator[Case]:
    def case(n: int, width: int, each: int, threads: int) -> Case:
        blocks = -(-n // (each * threads))
        last = n - (blocks - 1) * each * threads if n else 0
        label = f"{n:,} elements, width {width}, {each} per thread, blocks of {threads} threads"
        return Case(label, (n, width, each, threads), expected=(blocks, each // width, last))

    yield case(10_000, 4, 8, 128)
    yield case(8 * 128, 4, 8, 128)
    yield case(8 * 128 + 1, 4, 8, 128)
    for n in (0, 1):
        yield case(n, 4, 8, 128)
    for _ in range(24):
        each = rng.choice((4, 8, 16))
        width = rng.choice([w for w in (1, 2, 4, 8) if w <= each])
        threads = rng.choice((64, 128, 256, 512))
        n = rng.choice((1, rng.randrange(2, 4000), rng.randrange(10**6), rng.randrange(10**9, 2**31)))
        block = each * threads
        n = max(n // block, 1) * block + rng.choice((-1, 0, 1, rng.randrange(block)))
        yield case(min(n, 2**31 - 1), width, each, threads)
    yield from _recorded_grids()


def _about_grid(n: int, width: int, each: int, threads: int) -> dict[str, int]:
    return {"block": each * threads}


VECTOR_GRID = answer_exercise(
    "vector-grid",
    LAB,
    "The grid of a vectorized kernel",
    "predict_launch",
    _grid_cases,
    minutes=8,
    facts=_about_grid,
    mistakes={
        "no-tuple": not_numbers(3),
        **at(
            0,
            {
                "width-for-blocks": lambda s: s.value == s.width,
                "threads-for-blocks": lambda s: s.value == -(-s.n // s.each),
                "one-a-thread": lambda s: s.value == -(-s.n // s.threads),
                "one-too-many": lambda s: s.value == s.n // s.block + 1,
                "rounded-down": lambda s: s.value == s.n // s.block,
                "width-for-elements": lambda s: s.value == -(-s.n // (s.width * s.threads)),
                "blocks": always,
            },
        ),
        **at(1, {"loads": always}),
        "last-block/empty": lambda s: s.n and s.value == 0,
        "last-block/other": always,
    },
)

# ------------------------------------------------------------------------------------------ real or noise
ANSWERS = ("a", "b", "no difference")
# In 160 draws, a method with 5 % false alarms stays below this, and one with 7 % nearly always does.
_MOST_FALSE_ALARMS = 0.14
_MOST_OF_A_KIND = 0.3
_LEAST_FOUND = 0.85


def _noise_cases(rng: random.Random, device: str) -> Iterator[Case]:
    drawn = samples.draws(rng)
    # One case, because a rate of false alarms needs many pairs, and the verdict shows all counts together.
    pairs = [(d.a, d.b) for d in drawn]
    label = f"{len(pairs)} pairs of samples"
    yield Case(label, (pairs,), expected=[(d.kind, d.faster) for d in drawn], call="each")


def _groups(seen: Seen) -> Iterable[Seen]:
    """All answers at once, and then each kind of draw, and after its kinds each of the five cases."""
    yield seen.also(real=None)
    cases = samples.counts(seen.got, seen.want)
    details = "\n".join(f"{case.label}: {case.words}" for case in cases)
    for case in cases:
        for one in (*(samples.count((kind,), seen.got, seen.want) for kind in case.kinds), case):
            share = one.n_seen / one.n
            yield seen.also(**vars(one), share=share, all_kinds=one is case, details=details)


def _unknown_answer(s: Seen) -> str:
    other = [one for one in s.got if not isinstance(one, str) or one not in ANSWERS]
    return f"it answered {other[0]!r}" if other else ""


_NOISE_MISTAKES = {
    "answer": _unknown_answer,
    **under(
        lambda s: s.real is False and s.share > (_MOST_FALSE_ALARMS if s.all_kinds else _MOST_OF_A_KIND),
        {
            "false-alarms/always": lambda s: s.share > (0.8 if s.all_kinds else 0.95),
            "false-alarms/often": always,
        },
    ),
    **under(
        lambda s: s.real and s.share < _LEAST_FOUND,
        {
            "swapped": lambda s: s.n_swapped > s.n / 2,
            "misses/first": lambda s: "first" in s.label,
            "misses/small": lambda s: "0.7" in s.label,
            "misses/drift": lambda s: "drift" in s.label,
            "misses/never": lambda s: s.n_seen == s.n_swapped == 0,
            "misses/other": always,
        },
    ),
}

REAL_OR_NOISE = Exercise(
    id="real-or-noise",
    lab=LAB,
    title="Real or noise",
    name="decide",
    minutes=20,
    cases=_noise_cases,
    judge=TableJudge(Table("real-or-noise", LAB, _NOISE_MISTAKES), "decide", parts=_groups),
    adapters={"each": adapters.each},
)


# ------------------------------------------------------------------------------------------ a trace
def _trace_cases(rng: random.Random, device: str) -> Iterator[Case]:
    for label, events in traces.traces(rng):
        yield Case(label, (events,), expected=traces.attribution(events))
    for path in sorted(records.folder().glob("*/profiling/made-on-host*.json.gz")):
        from helpers import trace

        events = [dict(e) for e in trace.load_trace(path).events]
        gpu = path.parent.parent.name
        yield Case(
            f"the trace of lesson 01, section B3, recorded on {gpu}",
            (events,),
            expected=traces.attribution(events),
        )


COPY_OR_COMPUTE = Exercise(
    id="copy-or-compute",
    lab=LAB,
    title="Copy or compute",
    name="attribute",
    minutes=20,
    cases=_trace_cases,
    judge=TableJudge(traces.TABLE, "attribute", traces.about, tolerance=(1e-6, 2e-3)),
)

EXERCISES = (VECTOR_GRID, FOUR_CLOCKS, CLOCK_SUMMARY, REAL_OR_NOISE, COPY_OR_COMPUTE, STEP)
