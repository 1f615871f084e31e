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
    if fell := raised(id, name, case, outcome):
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
    what, mistake, hint = _why(us, true, seen, cold)
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


def _refusal(no: Callable, case: Case, said: str, true: float | str) -> Verdict | None:
    if not isinstance(true, str):
        hint = "Refuse only what launches nothing in a later call, or has a kernel on another stream."
        return no(
            f"on {case.label} it raised ValueError: {said}, but there is a time to tell",
            "refuses-right",
            hint,
        )
    words = {"nothing": ("nothing", "no kernel", "launch", "empty"), "stream": ("stream",)}[true]
    if any(word in said.lower() for word in words):
        return None
    hint = f"Say why there is no figure: the message should hold the word {words[0]!r}."
    return no(f"on {case.label} its ValueError does not say why: {said!r}", "unclear-message", hint)


def _why(us: float, true: float, seen: dict, cold: bool) -> tuple[str, str, str]:
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
    if most(lambda r: r["n_flushes"] > 0):
        return ": the flush is in it", "flush-timed", "Put the flush before the first mark."
    if not cold and most(lambda r: r["n_cold"] > 0):
        hint = "After a flush, call once without marks: that brings the data back into the L2."
        return ": the L2 was cold", "cold-cache", hint
    if cold and most(lambda r: r["n_cold"] == 0 or r["n_calls"] > 1):
        hint = "gpu.flush() before each reading: one call is enough to make the L2 warm for the next."
        return ": the L2 was warm", "warm-cache", hint
    if any(r["n_first"] for r in reads) and len(reads) < 4:
        return ": a first call is in it", "first", "Call it a few times and wait before you read any mark."
    if most(lambda r: r["slowest_clock"] > 1.01):
        hint = "Keep the GPU at work for 25 ms on the host's clock before the first reading that counts."
        return ": the clocks were still rising", "ramp", hint
    if most(lambda r: r["idle_us"] / max(r["n_calls"], 1) > 3):
        hint = "Put a flush into the queue before the first mark: while the GPU works on it, the host gets ahead."
        return ": between the marks the GPU waited for the host's launch", "host-late", hint
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
    return "", "figure", "Flush, mark, call, mark, many times; then wait and take the median."


def _middle(values: list[float]) -> list[float]:
    return [statistics.median(values)] if values else []
