"""Judges a timer by what ran between the marks that it read."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from helpers.exercises.gpus import shown
from helpers.exercises.lab07.machines import Kernel, TimedGpu
from helpers.exercises.mistakes import Condition, Seen, Table, always, close, under
from helpers.exercises.model import Case, Outcome, Verdict
from helpers.exercises.verdicts import counted, is_number, raised, wrong

LAB = "07_timers"


def allowed_us(true_us: float) -> float:
    """How far a time may be from the truth: 5 µs, about what a pair of marks adds to the kernel, or 2 %."""
    return max(5.0, 0.02 * true_us)


def simulate(ask: Callable[..., Outcome], true: dict) -> Outcome | dict:
    """Let a timer measure a simulated GPU; return its result and what ran between its marks."""
    kernels = {key: tuple(Kernel(*one) for one in true[key]) for key in ("kernels", "first") if key in true}
    gpu = TimedGpu(**(true | kernels))
    outcome = ask(shown(gpu, "call", "flush", "wait", "host_us", "trace"))
    refused = "ValueError" in outcome.facts.get("bases", ())
    if outcome.error and not refused:
        return outcome
    seen = {"reads": gpu.reads, "traced_us": gpu.traced_us}
    return seen | ({"refused": outcome.error} if refused else {"us": outcome.value})


# ------------------------------------------------------------------------- calls that return no time at all
_WORDS = {"nothing": ("nothing", "no kernel", "launch", "empty"), "stream": ("stream",)}
# Words that the message may not contain, because they name the other cause.
_OTHER_WORDS = {"nothing": ("stream",), "stream": ("nothing",)}


def _names(text: str, words: tuple[str, ...]) -> bool:
    return any(word in text.lower() for word in words)


def _has_no_time(s: Seen) -> bool:
    return isinstance(s.want, str)


def _other_exception(s: Seen) -> bool:
    """Whether it refused for the right reason, but with another type of exception."""
    return _has_no_time(s) and _names(s.got.error, _WORDS["nothing"] + _WORDS["stream"])


NO_TIME = Table(
    "no-time",
    LAB,
    raises={"not-waited": lambda s: s.got.error_type == "NotReached", "not-a-value-error": _other_exception},
    conditions={
        **under(
            lambda s: s.refused is not None,
            {
                "refuses-right": lambda s: not _has_no_time(s),
                "other-cause": lambda s: _names(s.refused, _OTHER_WORDS[s.want]),
                "unclear-message": lambda s: not _names(s.refused, _WORDS[s.want]),
            },
        ),
        **under(
            lambda s: s.refused is None,
            {
                "no-number": lambda s: not is_number(s.us) or s.us != s.us,
                "times-nothing": lambda s: s.want == "nothing",
                "times-stream": lambda s: s.want == "stream",
            },
        ),
    },
)


# -------------------------------------------------------------------------------------------- a wrong time
def _unit(s: Seen) -> str:
    """Says which other unit the time seems to be in; "" if none."""
    near = max(allowed_us(s.want), 0.2 * s.want)
    if s.us and not 0.1 < abs(s.us) / s.want < 10:
        for factor, unit in ((1e3, "ms"), (1e6, "s"), (1e-3, "ns")):
            if abs(abs(s.us) * factor - s.want) <= near:
                return f"that looks like a time in {unit}, and 1 {unit} is {factor:g} µs"
    return ""


def _watched(s: Seen) -> bool:
    """Whether it returned a time that the profiler reported."""
    times = s.traced_us
    return bool(times) and close(s.us, *times, statistics.median(times), rel=0, abs=0.5)


def _most(of: Callable[[dict], bool]) -> Condition:
    """The condition that more than half of the readings are like this."""
    return lambda s: sum(map(of, s.reads)) * 2 > len(s.reads)


_SEVERAL_CALLS = _most(lambda r: r["n_calls"] > 1)


def _late(s: Seen) -> bool:
    """Whether the GPU waited for the host.

    Fewer than half of the readings are enough: of the two readings of a difference, only one may have met an
    empty queue.
    """
    return sum(r["idle_us"] / max(r["n_calls"], 1) > 3 for r in s.reads) > 0.4 * len(s.reads)


def _not_divided(s: Seen) -> bool:
    return any(r["n_calls"] > 1 and abs(s.us - r["us"]) < 1e-6 for r in s.reads)


def _median_is_right(s: Seen) -> bool:
    each = [r["us"] / max(r["n_calls"], 1) for r in s.reads]
    return abs(statistics.median(each) - s.want) <= allowed_us(s.want)


WRONG_TIME = Table(
    "wrong-time",
    LAB,
    {
        # A first call of 40 ms is not a time in ns.
        **under(
            lambda s: not any(r["n_first"] for r in s.reads), {"unit": _unit, "sign": lambda s: s.us < 0}
        ),
        **under(lambda s: not s.reads, {"watched": _watched, "host-clock": always}),
        "marks": _most(lambda r: r["n_calls"] == 0),
        "not-divided": _not_divided,
        **under(
            _most(lambda r: r["n_flushes"] > 0), {"flush-timed": lambda s: s.us > s.want + 0.5 * s.flush_us}
        ),
        **under(_late, {"host-late/launches": _SEVERAL_CALLS}),
        **under(
            lambda s: not s.cold,
            {
                "cold-cache/first": _most(lambda r: 0 < r["n_cold"] < r["n_calls"]),
                "cold-cache": _most(lambda r: r["n_cold"] > 0),
            },
        ),
        **under(lambda s: s.cold, {"warm-cache": _most(lambda r: r["n_calls"] > min(r["n_cold"], 1))}),
        "first": lambda s: any(r["n_first"] for r in s.reads) and len(s.reads) < 4,
        "ramp": _most(lambda r: r["slowest_clock"] > 1.01),
        **under(_late, {"host-late/cold": lambda s: s.cold, "host-late/warm": always}),
        "several-calls": _SEVERAL_CALLS,
        "outliers": _median_is_right,
        "few": lambda s: f"it is from only {counted(len(s.reads), 'reading')}" if len(s.reads) < 10 else "",
        "figure/cold": lambda s: s.cold,
        "figure/warm": always,
    },
)


def judge_timer(id: str, name: str, cold: bool, case: Case, outcome: Outcome) -> Verdict | None:
    """Judge what a timer returned for one simulated GPU.

    Args:
        id, name: The exercise and the learner's function.
        cold: Whether the L2 has to be cold.
        case: `expected` is the true time in µs, or why there is none: "nothing" or "stream".
        outcome: What `simulate` returned.
    """
    value = {} if outcome.error else outcome.value
    refused = value.get("refused")
    seen = Seen(
        got=outcome if outcome.error else value,
        want=case.expected,
        cold=cold,
        flush_us=case.args[0]["flush_us"],
        message=outcome.error.partition(": ")[2],
        word=_WORDS[case.expected][0] if isinstance(case.expected, str) else "",
        us=value.get("us"),
        refused=None if refused is None else refused.partition(": ")[2],
        reads=value.get("reads"),
        traced_us=value.get("traced_us"),
    )
    if found := NO_TIME.first_match(seen):
        return wrong(id, case, f"on {case.label}: {found.what}", found.key, found.hint)
    if outcome.error:
        return raised(id, name, case, outcome)
    if seen.refused is not None or abs(seen.us - seen.want) <= allowed_us(seen.want):
        return None
    found = WRONG_TIME.first_match(seen)
    l2 = "cold" if cold else "warm"
    times = f"it returned {seen.us:,.1f} µs, but the right time is {seen.want:,.1f} µs (with a {l2} L2)"
    sentence = f"on {case.label}: {times}{f'; {found.what}' if found.what else ''}"
    return wrong(id, case, sentence, found.key, found.hint)
