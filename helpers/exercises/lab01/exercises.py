"""The exercises of lab 01, profiling: a grid, four clocks, their summary, real or noise, a trace's time."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace

from helpers import records
from helpers.exercises.lab01 import beside, samples, traces
from helpers.exercises.lab01.clocks import CLOCK_SUMMARY, FOUR_CLOCKS
from helpers.exercises.lab01.step import STEP
from helpers.exercises.model import Case, Exercise, Outcome, Verdict
from helpers.exercises.verdicts import is_number, raised, wrong

LAB = "01_profiling"


# ------------------------------------------------------------------------------------------------ a kernel's grid
def _recorded_grids() -> Iterator[Case]:
    """The squares of lesson 01 whose grid was seen on a GPU."""
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
        label = f"{n:,} elements, width {width}, {each} a thread, blocks of {threads} threads"
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
        n = max(n // (each * threads), 1) * each * threads + rng.choice(
            (-1, 0, 1, rng.randrange(each * threads))
        )
        yield case(min(n, 2**31 - 1), width, each, threads)
    yield from _recorded_grids()


def _judge_grid(case: Case, outcome: Outcome) -> Verdict | None:
    if fell := raised("vector-grid", "predict_launch", case, outcome):
        return fell
    got, want = outcome.value, case.expected
    if not isinstance(got, (tuple, list)) or len(got) != 3 or not all(is_number(v) for v in got):
        sentence = f"on {case.label} it returned {got!r}, not three numbers"
        return wrong("vector-grid", case, sentence, "no-tuple", "Return (blocks, loads, last).")
    if tuple(got) == want:
        return None
    n, width, each, threads = case.args
    hints = {
        -(-n // (width * threads)): (
            "width-for-elements",
            "The vector width is what one load moves; a thread makes one such load or several.",
        ),
        n // (each * threads): (
            "rounded-down",
            "The last block may have less to do, but it has to be there: round up.",
        ),
        n // (each * threads) + 1: (
            "one-too-many",
            "When the elements fill whole blocks, no further block is needed.",
        ),
        -(-n // threads): ("one-a-thread", "Here a thread takes more than one element."),
        -(-n // each): ("threads-for-blocks", "That many threads: how many blocks is it?"),
        width: (
            "width-for-blocks",
            "The number in the name is the width of a load, not the number of blocks.",
        ),
    }
    names = ("blocks", "vector loads a thread", "elements of the last block")
    at = next(i for i in range(3) if got[i] != want[i])
    sentence = f"on {case.label}: {names[at]}: {got[at]:,}, but it is {want[at]:,}"
    if at == 0:
        mistake, hint = hints.get(got[0], ("blocks", "A block takes threads × elements a thread."))
    elif at == 1:
        mistake, hint = "loads", "Each load moves `vector_width` of the elements that a thread takes."
    elif n and got[2] == 0:
        mistake, hint = (
            "last-block",
            "When the elements fill whole blocks, the last block is full, not empty.",
        )
    else:
        mistake, hint = "last-block", "All blocks before the last are full: what is left for it?"
    return wrong("vector-grid", case, sentence, mistake, hint)


VECTOR_GRID = Exercise(
    id="vector-grid",
    lab=LAB,
    title="The grid of a vectorised kernel",
    name="predict_launch",
    minutes=8,
    cases=_grid_cases,
    judge=_judge_grid,
)

# ------------------------------------------------------------------------------------------------ real or noise
ANSWERS = ("a", "b", "no difference")
_MOST_FALSE_ALARMS = 0.14  # what an honest 5 % stays below in 160 draws, and 7 % all but always
_MOST_OF_A_KIND = 0.3


def _noise_cases(rng: random.Random, device: str) -> Iterator[Case]:
    drawn = samples.draws(rng)
    # One case: a share of alarms needs many pairs, and the verdict shows every count beside the others.
    pairs = [(d.a, d.b) for d in drawn]
    label = f"{len(pairs)} pairs of samples"
    yield Case(label, (pairs,), expected=[(d.kind, d.faster) for d in drawn], call="each")


def _judge_noise(case: Case, outcome: Outcome) -> Verdict | None:
    def no(sentence: str, mistake: str, hint: str, details: str = "") -> Verdict:
        return wrong("real-or-noise", case, sentence, mistake, hint, details)

    if fell := raised("real-or-noise", "decide", case, outcome):
        return fell
    got, want = list(outcome.value), case.expected
    for answer in got:
        if not isinstance(answer, str) or answer not in ANSWERS:
            return no(f"it answered {answer!r}", "answer", 'The answer is "a", "b" or "no difference".')
    counts = samples.counts(got, want)
    for one in counts:
        answers = list(zip(got, want, strict=True))
        for kind in (*one.kinds, ""):
            mine = [(g, w) for g, (k, w) in answers if k in ((kind,) if kind else one.kinds)]
            judge = _misses if one.real else _false_alarms
            if found := judge(samples.LABELS.get(kind, one.label), mine, whole=not kind):
                return no(*found, "\n".join(f"{c.label}: {c.words}" for c in counts))
    return None


def _false_alarms(label: str, answers: list[tuple[str, str]], whole: bool) -> tuple[str, str, str] | None:
    n, alarms = len(answers), sum(got != "no difference" for got, _ in answers)
    if alarms <= (_MOST_FALSE_ALARMS if whole else _MOST_OF_A_KIND) * n:
        return None
    sentence = f"{label}: in {alarms} of {n} comparisons it saw a difference"
    if alarms > (0.8 if whole else 0.95) * n:
        hint = "Two samples are never exactly equal. How large a difference would chance alone make?"
    else:
        hint = (
            "Let the samples say how large a chance difference is: an interval, a rank test or a bootstrap."
        )
    return sentence, "false-alarms", hint


def _misses(label: str, answers: list[tuple[str, str]], whole: bool) -> tuple[str, str, str] | None:
    n, found = len(answers), sum(got == want for got, want in answers)
    if found >= 0.85 * n:
        return None
    swapped = sum(got != want and got != "no difference" for got, want in answers)
    if swapped > n / 2:
        hint = "The samples are times: the faster one has the smaller ones."
        return f"{label}: it named the slower one in {swapped} of {n}", "swapped", hint
    if "first" in label:
        hint = "Which figure hardly moves when one reading of a hundred is 50 times too long?"
    elif "0.7" in label:
        hint = "A fixed limit misses it: how sure a difference is depends on the noise and on the number of samples."
    elif "drift" in label:
        hint = "a[i] and b[i] were taken one right after the other: what drifts, drifts for both."
    elif all(got == "no difference" for got, _ in answers):
        hint = (
            "It never names a winner here, though the difference is about three times what single readings "
            "scatter by. How far does a median of a hundred of them scatter?"
        )
    else:
        hint = "The difference is there. Do rare slow readings widen your interval?"
    return f"{label}: it found {found} of {n}", "misses", hint


REAL_OR_NOISE = Exercise(
    id="real-or-noise",
    lab=LAB,
    title="Real or noise",
    name="decide",
    minutes=20,
    cases=_noise_cases,
    judge=_judge_noise,
    adapters={"each": beside.each},
)


# --------------------------------------------------------------------------------------------- a trace's time
def _trace_cases(rng: random.Random, device: str) -> Iterator[Case]:
    for label, events in traces.traces(rng):
        yield Case(label, (events,), expected=traces.attribution(events))
    for path in sorted(records.folder().glob("*/profiling/made-on-host*.json.gz")):
        from helpers import trace

        events = [dict(e) for e in trace.load_trace(path).events]
        gpu = path.parent.parent.name
        yield Case(
            f"the trace of lesson 01, section 6, recorded on {gpu}",
            (events,),
            expected=traces.attribution(events),
        )


def _judge_trace(case: Case, outcome: Outcome) -> Verdict | None:
    if fell := raised("copy-or-compute", "attribute", case, outcome):
        if outcome.error_type == "KeyError" and outcome.error.endswith(("'cat'", "'ts'", "'dur'")):
            hint = (
                'Events whose "ph" is not "X" are marks and names, and may lack that key: look at "ph" first.'
            )
            return replace(fell, hint=hint)
        return fell
    got, want = outcome.value, case.expected
    if not isinstance(got, dict) or not all(is_number(got.get(k)) for k in want):
        sentence = f"on {case.label} it returned {got!r}"
        hint = 'Return {"copy_us": …, "compute_us": …, "both_us": …}.'
        return wrong("copy-or-compute", case, sentence, "no-figures", hint)
    for key, value in want.items():
        if math.isclose(got[key], value, rel_tol=1e-6, abs_tol=2e-3):
            continue
        mistake, hint = traces.why(key, got[key], case.args[0])
        sentence = f"on {case.label}: {key} is {got[key]:,.1f}, but it is {value:,.1f}"
        return wrong("copy-or-compute", case, sentence, mistake, hint)
    return None


COPY_OR_COMPUTE = Exercise(
    id="copy-or-compute",
    lab=LAB,
    title="Copy or compute",
    name="attribute",
    minutes=20,
    cases=_trace_cases,
    judge=_judge_trace,
)

EXERCISES = (VECTOR_GRID, FOUR_CLOCKS, CLOCK_SUMMARY, REAL_OR_NOISE, COPY_OR_COMPUTE, STEP)
