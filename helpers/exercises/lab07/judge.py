"""What is wrong with a timer's figure, from what lay between the marks that it read."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from helpers.exercises.lab07.machines import METHODS, Kernel, TimedGpu
from helpers.exercises.model import Case, Outcome, Verdict
from helpers.exercises.served import Shown
from helpers.exercises.verdicts import is_number, raised, wrong

ALLOWED_US, ALLOWED_SHARE = 5.0, 0.02


def allowed_us(true_us: float) -> float:
    """How far a figure may be from the truth: 5 µs, about what a pair of marks holds beside the kernel, or 2 %."""
    return max(ALLOWED_US, ALLOWED_SHARE * true_us)


def simulate(ask: Callable[..., Outcome], true: dict) -> Outcome | dict:
    """Let a timer read a simulated GPU: what it said, and what lay between its marks."""
    kernels = tuple(Kernel(*one) for one in true["kernels"])
    first = None if true["first"] is None else tuple(Kernel(*one) for one in true["first"])
    gpu = TimedGpu(**{**true, "kernels": kernels, "first": first})

    def mark() -> Shown:
        made = gpu.mark()
        return Shown({"us_until": lambda stop: made.us_until(stop.of)}, of=made)

    # These methods and nothing else: the true times are not for the learner's code.
    outcome = ask(Shown({name: getattr(gpu, name) for name in METHODS} | {"mark": mark}))
    refused = "ValueError" in outcome.facts.get("bases", ())
    if outcome.error and not refused:
        return outcome
    reads = [vars(read) for read in gpu.reads]
    seen = {"reads": reads, "n_calls": gpu.n_calls, "traced_us": gpu.traced_us}
    return seen | ({"refused": outcome.error} if refused else {"us": outcome.value})


def judge(id: str, name: str, cold: bool, case: Case, outcome: Outcome) -> Verdict | None:
    """The verdict on a timer's figure for one simulated GPU.

    Args:
        id, name: the exercise and the learner's function.
        cold: whether the L2 has to be cold.
        case: `expected` is the truth in µs, or the reason why there is none: "nothing" or "stream".
        outcome: of `simulate`.
    """

    def no(sentence: str, mistake: str, hint: str) -> Verdict:
        return wrong(id, case, sentence, mistake, hint)

    if outcome.error_type == "NotReached":
        hint = "A mark is a place in the queue. gpu.wait(), then read it."
        return no(f"on {case.label}: {outcome.error.partition(': ')[2]}", "not-waited", hint)
    if fell := _other_exception(no, case, outcome) or raised(id, name, case, outcome):
        return fell
    seen, true = outcome.value, case.expected
    if "refused" in seen:
        return _refusal(no, case, seen["refused"].partition(": ")[2], true)
    us = seen["us"]
    if not is_number(us) or us != us:
        return no(f"on {case.label} it returned {us!r}", "no-number", "Return one number, in µs.")
    if isinstance(true, str):
        said, hint = _NO_TIME[true]
        return no(f"on {case.label} it says {us:,.1f} µs: {said}", f"times-{true}", hint)
    if abs(us - true) <= allowed_us(true):
        return None
    about = f"on {case.label} it says {us:,.1f} µs, but the truth is {true:,.1f} µs ({'cold' if cold else 'warm'} L2)"
    held_first = any(read["n_first"] for read in seen["reads"])  # a first call of 40 ms is no figure in ns
    scaled = None if held_first else _scaled(us, true)
    what, mistake, hint = scaled or _why(us, true, seen, cold, case.args[0]["flush_us"])
    return no(f"{about}{what}", mistake, hint)


_NO_TIME = {
    "nothing": (
        "that call launches nothing",
        "Call the function once more under gpu.trace(), after its first calls: an empty list means that there is "
        "nothing to time. Raise a ValueError that says so.",
    ),
    "stream": (
        "some of its work runs on another stream, where your marks do not wait for it",
        "gpu.trace() says of each kernel whether it ran on the current stream. Raise a ValueError where one did not.",
    ),
}


_WORDS = {"nothing": ("nothing", "no kernel", "launch", "empty"), "stream": ("stream",)}
# What a message may not hold, since it names the other cause.
_OTHER_WORDS = {"nothing": ("stream",), "stream": ("nothing",)}


def _other_exception(no: Callable, case: Case, outcome: Outcome) -> Verdict | None:
    """A refusal that is right but for its type."""
    words = _WORDS["nothing"] + _WORDS["stream"]
    if not isinstance(case.expected, str) or not any(word in (outcome.error or "").lower() for word in words):
        return None
    hint = "There is no time to tell, and the message may stay as it is: raise it as a ValueError."
    return no(
        f"on {case.label} it raised {outcome.error_type}, not ValueError: {outcome.error.partition(': ')[2]}",
        "not-a-value-error",
        hint,
    )


def _refusal(no: Callable, case: Case, said: str, true: float | str) -> Verdict | None:
    if not isinstance(true, str):
        hint = "Refuse only what launches nothing in a later call, or has a kernel on another stream."
        return no(
            f"on {case.label} it raised ValueError: {said}, but there is a time to tell",
            "refuses-right",
            hint,
        )
    words = _WORDS[true]
    if any(word in said.lower() for word in _OTHER_WORDS[true]):
        hint = f"Only one cause holds here: the message should hold the word {words[0]!r} and not name the other."
        return no(f"on {case.label} its ValueError names another cause: {said!r}", "other-cause", hint)
    if any(word in said.lower() for word in words):
        return None
    hint = f"Say why there is no figure: the message should hold the word {words[0]!r}."
    return no(f"on {case.label} its ValueError does not say why: {said!r}", "unclear-message", hint)


def _scaled(us: float, true: float) -> tuple[str, str, str] | None:
    """What `_why` says, for a figure in another unit or of the wrong sign."""
    near = max(allowed_us(true), 0.2 * true)
    for factor, unit in ((1e3, "ms"), (1e6, "s"), (1e-3, "ns")):
        if us and not 0.1 < abs(us) / true < 10 and abs(abs(us) * factor - true) <= near:
            hint = f"us_until and host_us say µs, and µs are wanted: 1 {unit} is {factor:g} µs."
            return f": it looks like a figure in {unit}, {us:.3g}", "unit", hint
    if us < 0:
        return ": it is negative", "sign", "start.us_until(stop): from the earlier mark to the later one."
    return None


def _why(us: float, true: float, seen: dict, cold: bool, flush_us: float) -> tuple[str, str, str]:
    """(end of the sentence, mistake, hint) for a figure that is off."""
    reads = seen["reads"]
    if not reads:
        if any(abs(us - traced) < 0.5 for traced in [*seen["traced_us"], *_middle(seen["traced_us"])]):
            hint = "A profiler can lengthen what it watches: ask the trace which kernels ran, and the marks how long."
            return ": the profiler's own figure", "watched", hint
        hint = "The host's clock holds launches and waking up. Read two marks around the call: a.us_until(b)."
        return ": no two marks were read", "host-clock", hint

    def most(of: Callable[[dict], bool]) -> bool:
        return sum(map(of, reads)) * 2 > len(reads)

    if most(lambda r: r["n_calls"] == 0):
        return (
            ": no call lies between the marks",
            "marks",
            "The order in the queue decides: mark, call, mark.",
        )
    for read in reads:
        if read["n_calls"] > 1 and abs(us - read["us"]) < 1e-6:
            return (
                ": the time of several calls",
                "not-divided",
                "Divide by the number of calls between the marks.",
            )
    # Fewer than half are enough: of the readings of a difference only one of two may have met an empty queue.
    late = sum(r["idle_us"] / max(r["n_calls"], 1) > 3 for r in reads) > 0.4 * len(reads)
    if most(lambda r: r["n_flushes"] > 0) and us > true + 0.5 * flush_us:
        return ": the flush is in it", "flush-timed", "Put the flush before the first mark."
    if late and most(lambda r: r["n_calls"] > 1):
        hint = "Put one call between the marks: several launches take the host longer than the flush takes the GPU."
        return ": between the calls the GPU waited for the host's launches", "host-late", hint
    if not cold and most(lambda r: 0 < r["n_cold"] < r["n_calls"]):
        hint = "After a flush, call once before the first mark: that brings the data back into the L2."
        return ": of the calls between two marks the first found the L2 cold", "cold-cache", hint
    if not cold and most(lambda r: r["n_cold"] > 0):
        hint = "After a flush, call once without marks: that brings the data back into the L2."
        return ": the L2 was cold", "cold-cache", hint
    if cold and most(lambda r: r["n_calls"] > min(r["n_cold"], 1)):
        hint = "gpu.flush() before each reading: one call is enough to make the L2 warm for the next."
        return ": the L2 was warm", "warm-cache", hint
    if any(r["n_first"] for r in reads) and len(reads) < 4:
        return ": a first call is in it", "first", "Call it a few times and wait before you read any mark."
    if most(lambda r: r["slowest_clock"] > 1.01):
        hint = (
            "Call once and wait, since a first call may outlast any warm-up; then keep the GPU at work for 25 ms on the "
            "host's clock."
        )
        return ": the clocks were still rising", "ramp", hint
    if late:
        hint = "Put a flush into the queue before the first mark: while the GPU works on it, the host gets ahead."
        if not cold:
            hint += " It leaves the L2 cold: one call between the flush and the mark makes it warm again."
        return ": between the marks the GPU waited for the host's launch", "host-late", hint
    if most(lambda r: r["n_calls"] > 1):
        hint = "Put one call between the marks: of several, one is often slow. And read many pairs: of one, no median is taken."
        return ": the slow calls are averaged in", "several-calls", hint
    each = [r["us"] / max(r["n_calls"], 1) for r in reads]
    if abs(statistics.median(each) - true) <= allowed_us(true):
        return (
            ", though most readings are right: some are several times too long",
            "outliers",
            "Take the median of many readings.",
        )
    if len(reads) < 10:
        return (
            f", from {len(reads)} reading{'' if len(reads) == 1 else 's'}",
            "few",
            "Read many pairs of marks, and take the median.",
        )
    warming = "" if cold else " call,"
    return "", "figure", f"Flush,{warming} mark, call, mark, many times; then wait and take the median."


def _middle(values: list[float]) -> list[float]:
    return [statistics.median(values)] if values else []
