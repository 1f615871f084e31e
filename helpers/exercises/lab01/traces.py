"""Hidden data for lab 01: traces of which every µs is accounted for."""

from __future__ import annotations

import random
from collections.abc import Callable


def _event(cat: str, name: str, ts: float, dur: float, stream: int | None, tid: int = 1) -> dict:
    args = {} if stream is None else {"stream": stream, "device": 0}
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0 if stream is not None else 7,
        "tid": stream or tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


_COPY, _KERNEL = "Memcpy HtoD (Pinned -> Device)", "void at::native::vectorized_elementwise_kernel<4, …>"


def traces(rng: random.Random) -> list[tuple[str, list[dict]]]:
    """Small traces by hand, and large ones by chance."""
    copy, kernel = "gpu_memcpy", "kernel"
    by_hand = [
        ("a copy, then a kernel", [(copy, 0, 100, 7), (kernel, 100, 30, 7)]),
        ("a kernel inside a copy", [(copy, 0, 100, 7), (kernel, 40, 20, 13)]),
        ("two kernels that overlap on two streams", [(kernel, 0, 60, 7), (kernel, 40, 60, 13)]),
        (
            "two copies at once, and a kernel that outlives them",
            [(copy, 0, 50, 7), (copy, 10, 70, 8), (kernel, 30, 90, 13)],
        ),
        (
            "three kernels, one inside another",
            [(kernel, 0, 100, 7), (kernel, 20, 10, 13), (kernel, 150, 10, 7)],
        ),
        ("no GPU event", []),
    ]
    found = []
    for label, spans in by_hand:
        events = [
            _event(cat, _COPY if cat == copy else _KERNEL, float(ts), float(dur), s)
            for cat, ts, dur, s in spans
        ]
        found.append((label, [*events, *_noise(rng, 100)]))
    for _ in range(8):
        end, events = rng.uniform(500, 5000), []
        for stream in rng.sample((7, 13, 17, 20, 24), rng.randrange(2, 5)):
            at = rng.uniform(0, end / 4)
            while at < end:
                dur = round(rng.expovariate(1 / rng.choice((5, 40, 200))) + 1, 3)
                which = rng.random()
                if which < 0.4:
                    name = rng.choice(
                        (_COPY, "Memcpy DtoH (Device -> Pageable)", "Memcpy DtoD (Device -> Device)")
                    )
                    events.append(_event(copy, name, round(at, 3), dur, stream))
                elif which < 0.92:
                    name = rng.choice((_KERNEL, "square_kernel", "memcpy_like_kernel"))
                    events.append(_event(kernel, name, round(at, 3), dur, stream))
                else:
                    events.append(_event("gpu_memset", "Memset (Device)", round(at, 3), dur, stream))
                at += dur + rng.choice((0.0, rng.expovariate(1 / 30)))
        events += _noise(rng, end)
        rng.shuffle(events)
        found.append((f"{len(events)} events on several streams, in no order", events))
    return found


def _noise(rng: random.Random, end: float) -> list[dict]:
    """What a real trace holds besides the GPU's work: the host's calls, ranges, arrows and names of tracks."""
    return [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}},
        _event("cpu_op", "aten::copy_", 0.0, end * 1.2, None),
        _event("cuda_runtime", "cudaMemcpyAsync", 1.0, end * rng.uniform(0.5, 0.9), None),
        _event("cuda_runtime", "cudaLaunchKernel", end * 0.95, 6.0, None),
        _event("gpu_user_annotation", "ProfilerStep#3", 0.0, end * 1.1, 7),
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 3, "pid": 7, "tid": 1, "ts": 2.0},
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 3, "pid": 0, "tid": 7, "ts": 4.0, "bp": "e"},
    ]


def _spans(events: list[dict], cat: str) -> list[tuple[float, float]]:
    return [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("ph") == "X" and e.get("cat") == cat]


def _busy(*kinds: list[tuple[float, float]]) -> float:
    """µs in which every one of these kinds has at least one span running."""
    edges = sorted(
        (at, step, k) for k, spans in enumerate(kinds) for a, b in spans for at, step in ((a, 1), (b, -1))
    )
    running, total, last = [0] * len(kinds), 0.0, 0.0
    for at, step, k in edges:
        if all(running):
            total += at - last
        running[k] += step
        last = at
    return total


def attribution(events: list[dict]) -> dict[str, float]:
    """The µs in which the GPU copied, computed, and did both at once."""
    copies, kernels = _spans(events, "gpu_memcpy"), _spans(events, "kernel")
    return {"copy_us": _busy(copies), "compute_us": _busy(kernels), "both_us": _busy(copies, kernels)}


def why(key: str, got: float, events: list[dict]) -> tuple[str, str]:
    """The mistake that gives this figure: (key, hint)."""

    def near(value: float) -> bool:
        return abs(got - value) <= 1e-6 * abs(value) + 2e-3

    copies, kernels = _spans(events, "gpu_memcpy"), _spans(events, "kernel")
    own = copies if key == "copy_us" else kernels
    everything = attribution(events)
    if key == "both_us":
        pairs = sum(max(0.0, min(b, d) - max(a, c)) for a, b in copies for c, d in kernels)
        if near(pairs):
            return (
                "not-united",
                "Unite the copies and unite the kernels first: overlapping pairs count a moment twice.",
            )
        if near(0.0):
            return "no-overlap", "Copies and kernels lie on different streams and may run at the same time."
        return _why_both(got, near, copies, kernels)
    if near(sum(b - a for a, b in own)):
        return (
            "not-united",
            "You added durations: a moment in which two of them run counts once. Unite the intervals first.",
        )
    host = {"copy_us": "cudaMemcpyAsync", "compute_us": "cudaLaunchKernel"}[key]
    called = [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("name") == host and "dur" in e]
    if near(_busy(called)) or near(_busy(own + called)) or near(sum(b - a for a, b in own + called)):
        return (
            "host-call",
            f"{host} is the host's call. What the GPU did has the category gpu_memcpy or kernel.",
        )
    other = _spans(events, "gpu_memset")
    if near(_busy(own + other)):
        return "memset", "A fill (gpu_memset) is neither a copy nor a kernel: leave it out."
    if near(everything[key] - everything["both_us"]):
        return "exclusive", "Time in which both run belongs to copy_us and to compute_us as well."
    by_name = [
        (e["ts"], e["ts"] + e["dur"]) for e in events if "memcpy" in e.get("name", "").lower() and "dur" in e
    ]
    if key == "copy_us" and near(_busy(by_name)):
        return "by-name", 'Go by the category, e["cat"]: a kernel may have "memcpy" in its name.'
    if near(max((b for _, b in own), default=0.0) - min((a for a, _ in own), default=0.0)):
        return (
            "from-first-to-last",
            "From the first start to the last end there are gaps, and they do not count.",
        )
    return (
        "figure",
        "Sort the intervals by their start; those that overlap or touch become one; add what is left.",
    )


def _why_both(
    got: float,
    near: Callable[[float], bool],
    copies: list[tuple[float, float]],
    kernels: list[tuple[float, float]],
) -> tuple[str, str]:
    """The mistake that gives this time of both, where the times of each are right: (key, hint)."""
    copy_us, compute_us, every = _busy(copies), _busy(kernels), copies + kernels
    if near(min(copy_us, compute_us)):
        return (
            "as-if-nested",
            "The smaller of the two is right only where it lies inside the other: intervals may overlap in part, or not at all.",
        )
    if near(sum(b - a for a, b in every) - _busy(every)):
        return (
            "not-united",
            "Durations count a moment twice in which two kernels run: take the united times, copy_us and compute_us.",
        )
    spread = max(b for _, b in every) - min(a for a, _ in every) if every else 0.0
    if near(copy_us + compute_us - spread) or near(max(0.0, copy_us + compute_us - spread)):
        return (
            "from-first-to-last",
            "From the first start to the last end there are moments in which nothing runs: unite both lists together instead.",
        )
    either = copy_us + compute_us - got
    return (
        "overlap",
        f"It says that {either:,.1f} µs hold a copy, a kernel or both; they are {_busy(every):,.1f}. Unite both lists "
        "together: an interval may begin inside another and end inside it, end behind it, or only touch it.",
    )
