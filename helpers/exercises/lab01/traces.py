"""Lab 01's `copy-or-compute`: traces in which every µs is known, and the mistakes in adding them up."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from helpers.exercises.mistakes import Seen, Table, always, at, under
from helpers.exercises.verdicts import is_number

Spans = list[tuple[float, float]]


def _event(cat: str, name: str, ts: float, dur: float, stream: int | None = None) -> dict:
    where = {"pid": 7, "tid": 1, "args": {}}
    if stream is not None:
        where = {"pid": 0, "tid": stream, "args": {"stream": stream, "device": 0}}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **where}


_COPY, _KERNEL = "Memcpy HtoD (Pinned -> Device)", "void at::native::vectorized_elementwise_kernel<4, …>"
_COPIES = (_COPY, "Memcpy DtoH (Device -> Pageable)", "Memcpy DtoD (Device -> Device)")
_KERNELS = (_KERNEL, "square_kernel", "memcpy_like_kernel")
# What is special about a trace, and start, duration and stream of its copies and kernels.
_SMALL = (
    ("a copy, then a kernel", [(0.0, 100.0, 7)], [(100.0, 30.0, 7)]),
    ("a kernel inside a copy", [(0.0, 100.0, 7)], [(40.0, 20.0, 13)]),
    ("two kernels that overlap on two streams", [], [(0.0, 60.0, 7), (40.0, 60.0, 13)]),
    (
        "two copies at once, and a kernel that outlives them",
        [(0.0, 50.0, 7), (10.0, 70.0, 8)],
        [(30.0, 90.0, 13)],
    ),
    ("three kernels, one inside another", [], [(0.0, 100.0, 7), (20.0, 10.0, 13), (150.0, 10.0, 7)]),
    ("no GPU event", [], []),
)


def traces(rng: random.Random) -> list[tuple[str, list[dict]]]:
    """Small traces, each with one peculiarity, and large random ones."""
    copy, kernel = "gpu_memcpy", "kernel"
    found = []
    for label, copies, kernels in _SMALL:
        events = [_event(copy, _COPY, *span) for span in copies]
        events += [_event(kernel, _KERNEL, *span) for span in kernels]
        found.append((label, [*events, *_noise(rng, 100)]))
    for _ in range(8):
        end, events = rng.uniform(500, 5000), []
        for stream in rng.sample((7, 13, 17, 20, 24), rng.randrange(2, 5)):
            at = rng.uniform(0, end / 4)
            while at < end:
                dur = round(rng.expovariate(1 / rng.choice((5, 40, 200))) + 1, 3)
                cat, name = "gpu_memset", "Memset (Device)"
                if (which := rng.random()) < 0.92:
                    cat = copy if which < 0.4 else kernel
                    name = rng.choice(_COPIES if cat == copy else _KERNELS)
                events.append(_event(cat, name, round(at, 3), dur, stream))
                at += dur + rng.choice((0.0, rng.expovariate(1 / 30)))
        events += _noise(rng, end)
        rng.shuffle(events)
        found.append((f"{len(events)} events on several streams, in random order", events))
    return found


def _noise(rng: random.Random, end: float) -> list[dict]:
    """What a real trace contains besides the GPU's work: calls on the host, ranges, arrows, tracks' names."""
    return [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}},
        _event("cpu_op", "aten::copy_", 0.0, end * 1.2),
        _event("cuda_runtime", "cudaMemcpyAsync", 1.0, end * rng.uniform(0.5, 0.9)),
        _event("cuda_runtime", "cudaLaunchKernel", end * 0.95, 6.0),
        _event("gpu_user_annotation", "ProfilerStep#3", 0.0, end * 1.1, 7),
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 3, "pid": 7, "tid": 1, "ts": 2.0},
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 3, "pid": 0, "tid": 7, "ts": 4.0, "bp": "e"},
    ]


def _spans(events: list[dict], cat: str) -> Spans:
    return [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("ph") == "X" and e.get("cat") == cat]


def _busy(*kinds: Spans) -> float:
    """The µs in which at least one span of every kind is running."""
    edges = sorted(
        (us, step, k) for k, spans in enumerate(kinds) for a, b in spans for us, step in ((a, 1), (b, -1))
    )
    running, total, last = [0] * len(kinds), 0.0, 0.0
    for us, step, k in edges:
        if all(running):
            total += us - last
        running[k] += step
        last = us
    return total


def attribution(events: list[dict]) -> dict[str, float]:
    """The right answer: the µs in which the GPU copied, computed, and did both at once."""
    copies, kernels = _spans(events, "gpu_memcpy"), _spans(events, "kernel")
    return {"copy_us": _busy(copies), "compute_us": _busy(kernels), "both_us": _busy(copies, kernels)}


def _durations(spans: Spans) -> float:
    return sum(b - a for a, b in spans)


def _extent(spans: Spans) -> float:
    """From the first start to the last end."""
    return max((b for _, b in spans), default=0.0) - min((a for a, _ in spans), default=0.0)


def about(events: list[dict]) -> dict[str, Any]:
    """The facts about a trace for the table of mistakes."""
    copies, kernels = _spans(events, "gpu_memcpy"), _spans(events, "kernel")
    return {
        "copies": copies,
        "kernels": kernels,
        "fills": _spans(events, "gpu_memset"),
        **attribution(events),
        "either_right": _busy(copies + kernels),
        "pairs_us": sum(max(0.0, min(b, d) - max(a, c)) for a, b in copies for c, d in kernels),
    }


def _named(s: Seen, found: Callable[[str], bool]) -> Spans:
    return [(e["ts"], e["ts"] + e["dur"]) for e in s.events if found(e.get("name", "")) and "dur" in e]


def _own(s: Seen) -> Spans:
    return s.copies if s.at == "copy_us" else s.kernels


def _is_host_call(s: Seen) -> bool:
    s.host_call = "cudaMemcpyAsync" if s.at == "copy_us" else "cudaLaunchKernel"
    calls = _named(s, lambda name: name == s.host_call)
    return s.near(_busy(calls), _busy(_own(s) + calls), _durations(_own(s) + calls))


def _is_overlap(s: Seen) -> bool:
    s.either = s.copy_us + s.compute_us - s.value
    return True


def _gap_as_idle(s: Seen) -> bool:
    both = s.copy_us + s.compute_us - _extent(s.copies + s.kernels)
    return s.near(both, max(0.0, both))


def no_figures(s: Seen) -> bool:
    """The answer isn't a dict with a number for each of the right answer's names."""
    return not isinstance(s.got, dict) or not all(is_number(s.got.get(key)) for key in s.want)


TABLE = Table(
    "copy-or-compute",
    "01_profiling",
    {
        "no-figures": no_figures,
        **at(
            "both_us",
            {
                "not-united/pairs": lambda s: s.near(s.pairs_us),
                "no-overlap": lambda s: s.near(0.0),
                "as-if-nested": lambda s: s.near(min(s.copy_us, s.compute_us)),
                "not-united/both": lambda s: s.near(_durations(s.copies + s.kernels) - s.either_right),
                "from-first-to-last/both": _gap_as_idle,
                "overlap": _is_overlap,
            },
        ),
        **under(
            lambda s: s.at,
            {
                "not-united": lambda s: s.near(_durations(_own(s))),
                "host-call": _is_host_call,
                "memset": lambda s: s.near(_busy(_own(s) + s.fills)),
                "exclusive": lambda s: s.near(s.right - s.both_us),
                "by-name": lambda s: (
                    s.at == "copy_us" and s.near(_busy(_named(s, lambda name: "memcpy" in name.lower())))
                ),
                "from-first-to-last": lambda s: s.near(_extent(_own(s))),
                "figure": always,
            },
        ),
    },
    raises={
        "raises/key": lambda s: (
            s.got.error_type == "KeyError" and s.got.error.endswith(("'cat'", "'ts'", "'dur'"))
        )
    },
)
