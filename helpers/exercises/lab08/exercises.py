"""The exercises of lab 08, failures: three broken kernels, each diagnosed by tool, line and cause before it is mended."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from helpers.exercises import runs
from helpers.exercises.lab08 import broken
from helpers.exercises.lab08 import runs as own
from helpers.exercises.model import Case, Exercise, Outcome, Verdict
from helpers.exercises.verdicts import wrong

if TYPE_CHECKING:
    import torch

LAB = "08_failures"


@dataclass(frozen=True)
class _Truth:
    """What is wrong with a broken kernel.

    Attributes:
        tool: a key of `broken.TOOLS`.
        lines: any of which a tool names.
        cause: a key of `broken.CAUSES`.
        line_hint, cause_hint: for a diagnosis with another line or cause.
        by_trouble: what the host finds in a mended text (`HostCudaError.cause`) -> (mistake, hint).
        why: (result, case) -> (mistake, hint) for wrong values.
        share: the kernel's integers -> how many elements of the input one thread has.
        again_hint: where the input is read more often than once; "" where each thread may read one element, whichever.
    """

    tool: str
    lines: tuple[int, ...]
    cause: str
    line_hint: str
    cause_hint: str
    by_trouble: dict[str, tuple[str, str]]
    why: Callable[[torch.Tensor, Case], tuple[str, str]]
    share: Callable[..., int]
    again_hint: str


def _values(rng: random.Random, sizes: tuple[int, ...]) -> torch.Tensor:
    import torch

    return torch.randn(sizes, generator=torch.Generator().manual_seed(rng.randrange(2**31)))


def _cases(
    of: broken.Broken,
    truth: _Truth,
    sizes: Callable[[random.Random], list[tuple]],
    result: Callable[[torch.Tensor], torch.Tensor],
    more: Callable[[], list[tuple[str, torch.Tensor]]],
    rng: random.Random,
    device: str,
) -> Iterator[Case]:
    yield Case("the diagnosis", (), expected=truth, call="diagnosis")
    chosen = sizes(rng)
    for i, size in enumerate(chosen):
        x = _values(rng, size)
        if i == len(chosen) - 1:
            x = -x.abs() - 1  # all negative: a place that was set to 0 would win
        label = f"an input of {' × '.join(map(str, size))}" + (
            ", all negative" if i == len(chosen) - 1 else ""
        )
        out = result(x)
        args = (x, tuple(out.shape), list(size))
        yield Case(label, args, expected=out, call="run")
    for label, x in more():
        out = result(x)
        yield Case(label, (x, tuple(out.shape), list(x.shape)), expected=out, call="run")
    yield Case(f"a traced run on {' × '.join(map(str, size))}", args, expected=truth, call="reads")


def _judge(id: str, name: str, truth: _Truth, case: Case, outcome: Outcome) -> Verdict | None:
    if fell := runs.fell(id, name, case, outcome):
        return fell
    value = outcome.value
    if case.call == "diagnosis":
        return _judge_diagnosis(id, case, truth, value)
    if "refused" in value:
        hint = "Is the kernel's signature still the one given?"
        return wrong(id, case, f"on {case.label} {value['refused']}", "launch", hint)
    if "trouble" in value:
        first, *rest = value["trouble"].split("\n")
        default = (
            value["cause"].replace(" ", "-"),
            "The fault is still there, or another has come: look at that line.",
        )
        mistake, hint = truth.by_trouble.get(value["cause"], default)
        return wrong(id, case, f"on {case.label}: {first}", mistake, hint, "\n".join(rest))
    if case.call == "run":
        return runs.wrong_values(id, case, value, truth.why)
    most, n = truth.share(*case.args[2]), case.args[0].numel()
    if truth.again_hint and value["total"] > n:
        sentence = (
            f"right, but in {case.label} the kernel reads {value['total']:,} elements of an input of {n:,}"
        )
        return wrong(id, case, sentence, "reads-again", truth.again_hint)
    if value["most"] > most:
        sentence = (
            f"right, but in {case.label} one thread reads {value['most']} elements, where each has {most}"
        )
        hint = "Letting fewer threads work hides the fault and costs the speed: mend it with all of them at work."
        return wrong(id, case, sentence, "fewer-threads", hint)
    return None


def _judge_diagnosis(id: str, case: Case, truth: _Truth, said: dict) -> Verdict | None:
    tool, line, cause = said["tool"], said["line"], said["cause"]
    for word, known, what in ((tool, broken.TOOLS, "tool"), (cause, broken.CAUSES, "cause")):
        if word not in known:
            words = ", ".join(map(repr, known))
            return wrong(
                id,
                case,
                f"the {what} is {word!r}, which is none of {words}",
                f"no-{what}",
                "Take a word of the lab's table.",
            )
    if tool == "host" != truth.tool:
        what = "the host finds this fault, and so does one of the other four: 'host' is for what none of them finds"
        hint = "Which of the four looks for what the message names?"
        return wrong(id, case, what, "tool", hint)
    if tool != truth.tool:
        hint = f"{tool} looks for {broken.TOOLS[tool]}. Run the broken kernel on the host: is that what its message names?"
        return wrong(id, case, f"{tool} is not the tool that names this fault", "tool", hint)
    if line not in truth.lines:
        return wrong(id, case, f"line {line} is not the line that the tool names", "line", truth.line_hint)
    if cause != truth.cause:
        what = f"tool and line are right; but {cause!r} ({broken.CAUSES[cause]}) is not the cause"
        return wrong(id, case, what, "cause", truth.cause_hint)
    return None


def _exercise(
    id: str,
    title: str,
    name: str,
    minutes: int,
    of: broken.Broken,
    truth: _Truth,
    sizes: Callable,
    result: Callable,
    more: Callable = list,
) -> Exercise:
    return Exercise(
        id=id,
        lab=LAB,
        title=title,
        name=name,
        minutes=minutes,
        cases=partial(_cases, of, truth, sizes, result, more),
        judge=partial(_judge, id, name, truth),
        adapters={"diagnosis": own.diagnosis, "run": own.run, "reads": own.reads},
        text=own.as_text,
        prepare=partial(own.answer_of, of.name),
    )


# ------------------------------------------------------------------------------------------------- reverse rows
def _why_reverse(out: torch.Tensor, case: Case) -> tuple[str, str]:
    bad = runs.is_wrong(out, case.expected)
    if out[bad].isnan().any():
        hint = "NaN: nobody wrote there. A guard only keeps the last row's bad write away, and every element still lands one place too far: mend the index."
        return "hides-the-symptom", hint
    return "index", "Column 0 goes to the last column, width - 1, and the last column to 0. Try both by hand."


REVERSE = _exercise(
    "mend-the-index",
    "Rows backwards",
    "REVERSE_ROWS",
    15,
    broken.REVERSE_ROWS,
    _Truth(
        "memcheck",
        (6,),
        "index",
        "The message says block, thread and line: it is the line of the access itself.",
        "Compute row, col and the place for the thread of the message. Has it an element? Is its place in its row?",
        {
            "out of bounds": (
                "still-outside",
                "Compute the place for col = 0 and for col = width - 1: both must lie in the same row.",
            )
        },
        _why_reverse,
        lambda height, width: 1,
        "One element for each thread, read once.",
    ),
    lambda rng: [(3, 5), (1, 1), (1, 200), (200, 1), (rng.randrange(2, 40), rng.randrange(2, 90)), (16, 16)],
    lambda x: x.flip(1),
)


# ------------------------------------------------------------------------------------------------ smooth chunks
def _smooth(x: torch.Tensor) -> torch.Tensor:
    import torch

    out = torch.empty_like(x)
    for start in range(0, x.shape[1], 64):
        chunk = torch.nn.functional.pad(x[:, start : start + 64], (1, 1))
        out[:, start : start + 64] = chunk[:, :-2] + chunk[:, 1:-1] + chunk[:, 2:]
    return out


def _why_smooth(out: torch.Tensor, case: Case) -> tuple[str, str]:
    bad = runs.is_wrong(out, case.expected)
    if out[bad].isnan().all():
        return (
            "hides-the-symptom",
            "NaN: nobody wrote there. Every chunk has to be done, not the first one alone.",
        )
    return (
        "values",
        "The sums themselves were right: leave the arithmetic as it was, and a chunk's edges at 0.",
    )


SMOOTH = _exercise(
    "mend-the-race",
    "A tile used again",
    "SMOOTH_CHUNKS",
    20,
    broken.SMOOTH_CHUNKS,
    _Truth(
        "racecheck",
        (7, 10, 11, 12),
        "barrier",
        "The message names a read and a write of one place in `tile`: either line will do.",
        "There is a barrier between the write and the reads of one chunk. What stands between these reads and the next chunk's write?",
        {
            "race": (
                "still-races",
                "Write down what thread 31 does after its last read of `tile`, while thread 32 has not read yet. They are in two warps, so all 64 must wait.",
            ),
            "barrier": (
                "barrier-in-branch",
                "All threads of the block have to reach __syncthreads(), those without an element too: put it outside the if.",
            ),
            "uninitialised": (
                "never-set",
                "A place of `tile` is read before its thread has filled it: the first barrier has to stay.",
            ),
            "out of bounds": (
                "tile-too-small",
                "A row may be wider than any tile: keep the tile at a chunk, or at two in turns, and let the threads wait.",
            ),
            "too much shared memory": (
                "tile-too-large",
                "A row may be wider than shared memory: keep the tile at a chunk, or at two in turns.",
            ),
        },
        _why_smooth,
        lambda height, width: -(-width // 64),
        "The tile is there so that each element comes from memory once: keep it, and let the threads wait.",
    ),
    lambda rng: [
        (2, 64),
        (1, 65),
        (2, 200),
        (3, rng.randrange(2, 64)),
        (2, rng.randrange(129, 300)),
        (1, 12_289 + rng.randrange(64)),  # no tile of 48 KB holds such a row
        (2, 130),
    ],
    _smooth,
)


# ------------------------------------------------------------------------------------------------- block maxima
def _maxima(x: torch.Tensor) -> torch.Tensor:
    import torch

    padded = torch.nn.functional.pad(x, (0, -len(x) % 64), value=float("-inf"))
    return padded.reshape(-1, 64).amax(dim=1)


def _why_maxima(out: torch.Tensor, case: Case) -> tuple[str, str]:
    if bool(((out > case.expected) & (case.expected < -1e38)).any()) and not bool((out == 0).any()):
        hint = "An element may lie below any number that you choose: only minus infinity loses against all of them."
        return "number-for-nothing", hint
    bad = runs.is_wrong(out, case.expected)
    if out[bad].isnan().all():
        return (
            "hides-the-symptom",
            "NaN: this block wrote no result. The last block has one too, of fewer elements.",
        )
    if bool((out[bad] == 0).all()):
        hint = "0 is larger than every negative number. What is the maximum of nothing, which no element can lose against?"
        return "zero-for-nothing", hint
    return (
        "values",
        "Every element counts, and nothing else: what may a thread without an element put in its place?",
    )


def _lowest() -> list[tuple[str, torch.Tensor]]:
    import torch

    lowest = torch.full((100,), torch.finfo(torch.float32).min)
    return [
        ("100 elements at float32's lowest", lowest),
        ("70 elements of -inf", torch.full((70,), -torch.inf)),
    ]


MAXIMA = _exercise(
    "mend-the-unset",
    "The last block",
    "BLOCK_MAXIMA",
    20,
    broken.BLOCK_MAXIMA,
    _Truth(
        "host",
        (8,),
        "never set",
        "The tool names the line that reads the unset place; where it should have been set is for the mend.",
        "How many threads of the last block have an element, and how many places does the loop read? A guard may mend that; the cause is what the read finds.",
        {
            "uninitialised": (
                "still-unset",
                "A place that a thread of the last block reads is still unset: give all 64 a value, or compare only those that have one.",
            ),
            "barrier": (
                "barrier-in-branch",
                "CUDA asks that every thread of the block reach __syncthreads(). Today's GPUs may let off threads that have returned; the programming guide does not. All 64 go on to the end.",
            ),
            "out of bounds": (
                "reads-outside",
                "A thread without an element may not read the input: which value does it put down instead?",
            ),
            "race": (
                "race",
                "Two threads use that place without a barrier between them: keep both barriers.",
            ),
        },
        _why_maxima,
        lambda n: 1,
        "",
    ),
    lambda rng: [(64,), (100,), (1,), (128,), (rng.randrange(65, 500),), (rng.randrange(65, 127),)],
    _maxima,
    _lowest,
)

EXERCISES = (REVERSE, SMOOTH, MAXIMA)
