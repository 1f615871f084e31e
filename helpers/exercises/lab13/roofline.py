"""The claims of "impossible-claims", and the least time that the roofline of a GPU allows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from helpers.exercises.mistakes import Condition, Conditions, Seen, close
from helpers.exercises.model import Case
from helpers.exercises.verdicts import is_number

Work = dict[str, Any]
Gpu = dict[str, Any]
Claim = dict[str, Any]
FORMS = ("us", "gb_per_s", "tflop_per_s", "times_faster")


def _gpu(rng: random.Random) -> Gpu:
    """The data of a GPU that doesn't exist, so that no figure can be looked up."""
    gb_per_s, tflop_per_s = rng.uniform(300, 8000), rng.uniform(8, 80)
    return {
        "gb_per_s": round(gb_per_s),
        "l2_gb_per_s": round(gb_per_s * rng.uniform(1.5, 3)),
        "l2_bytes": rng.randrange(4, 64) << 20,
        "tflop_per_s": {
            "float32": round(tflop_per_s, 1),
            "tf32": round(tflop_per_s * rng.uniform(3, 8), 1),
            "float16": round(tflop_per_s * rng.uniform(9, 16), 1),
        },
    }


def least_us(work: Work, gpu: Gpu, l2: str) -> float:
    """The least time of the work in µs.

    Args:
        work: "bytes_read", "bytes_written", "flops" and "math".
        gpu: "gb_per_s", "l2_gb_per_s", "l2_bytes", and "tflop_per_s" by kind of math.
        l2: "cold" or "warm".
    """
    return max(_memory_us(work, gpu, l2), work["flops"] / gpu["tflop_per_s"][work["math"]] / 1e6)


def _memory_us(work: Work, gpu: Gpu, l2: str) -> float:
    n_bytes = work["bytes_read"] + work["bytes_written"]
    from_l2 = l2 == "warm" and n_bytes <= gpu["l2_bytes"]
    return n_bytes / gpu["l2_gb_per_s" if from_l2 else "gb_per_s"] / 1e3


def claimed_us(work: Work, claim: Claim) -> float:
    """The time that a claim amounts to, in whatever form it is made."""
    n_bytes = work["bytes_read"] + work["bytes_written"]
    match claim:
        case {"us": us}:
            return us
        case {"gb_per_s": gb_per_s}:
            return n_bytes / gb_per_s / 1e3
        case {"tflop_per_s": tflop_per_s}:
            return work["flops"] / tflop_per_s / 1e6
        case {"times_faster": factor, "baseline_us": baseline_us}:
            return baseline_us / factor
    raise ValueError(f"a claim without a time: {claim}")


def _claim(work: Work, us: float, form: str, l2: str, rng: random.Random) -> Claim:
    """A claim of this time, in one of four forms."""
    if form == "gb_per_s":
        made = {"gb_per_s": (work["bytes_read"] + work["bytes_written"]) / us / 1e3}
    elif form == "tflop_per_s" and work["flops"]:
        made = {"tflop_per_s": work["flops"] / us / 1e6}
    elif form == "times_faster":
        factor = round(rng.uniform(1.2, 40), 1)
        made = {"times_faster": factor, "baseline_us": us * factor}
    else:
        made = {"us": us}
    return made | {"l2": l2}


def _square(rng: random.Random) -> Work:
    n = rng.randrange(10**6, 4 * 10**8)
    return {"bytes_read": 4 * n, "bytes_written": 4 * n, "flops": n, "math": "float32"}


def _row_sums(rng: random.Random) -> Work:
    rows, n = rng.randrange(16, 4096), rng.randrange(1000, 60_000)
    return {"bytes_read": 4 * rows * n, "bytes_written": 4 * rows, "flops": rows * n, "math": "float32"}


def _small(rng: random.Random) -> Work:
    n = rng.randrange(10**5, 4 * 10**5)
    return {"bytes_read": 4 * n, "bytes_written": 4 * n, "flops": 8 * n, "math": "float32"}


def _product(math: str, itemsize: int, low: int, high: int) -> Callable[[random.Random], Work]:
    def work(rng: random.Random) -> Work:
        m, n, k = (rng.randrange(low, high) for _ in range(3))
        read, written = itemsize * (m * k + k * n), itemsize * m * n
        return {"bytes_read": read, "bytes_written": written, "flops": 2 * m * n * k, "math": math}

    return work


WORKS = {
    "the square of many floats": _square,
    "the sums of long rows": _row_sums,
    "an operation on few floats": _small,
    "a large product in float16": _product("float16", 2, 2000, 9000),
    "a large product in float32": _product("float32", 4, 2000, 9000),
    "a small product in float32": _product("float32", 4, 300, 500),
}


def cases(rng: random.Random) -> Iterator[Case]:
    """Three cases for each kind of work, with claims of 0.4 to 3 times the least time."""
    for what, make in WORKS.items():
        for _ in range(3):
            work, gpu, claims = make(rng), _gpu(rng), []
            for l2 in ("cold", "warm"):
                for form in FORMS:
                    factor = rng.choice((rng.uniform(0.4, 0.97), rng.uniform(1.03, 3)))
                    claims.append(_claim(work, factor * least_us(work, gpu, l2), form, l2, rng))
            rng.shuffle(claims)
            want = [_answer(work, gpu, claim) for claim in claims]
            yield Case(f"{what} at {gpu['gb_per_s']:,} GB/s", (work, gpu, claims), expected=want)


def _answer(work: Work, gpu: Gpu, claim: Claim) -> tuple[float, bool]:
    least = least_us(work, gpu, claim["l2"])
    return least, claimed_us(work, claim) < least


# ----------------------------------------------------------------------------------------------- the answers
def parts(seen: Seen) -> Iterable[Seen]:
    """The answer, claim by claim, with other times that a mistake would give."""
    if _not_pairs(seen):
        yield seen
        return
    work, gpu = seen.work, seen.gpu
    flops_us = work["flops"] / gpu["tflop_per_s"][work["math"]] / 1e6
    for claim, (us, impossible), (least, is_so) in zip(seen.claims, seen.got, seen.want, strict=True):
        memory_us, cold_us, from_l2_us = (
            _memory_us(work, gpu, claim["l2"]),
            _memory_us(work, gpu, "cold"),
            _memory_us(work, gpu | {"l2_bytes": 1 << 62}, claim["l2"]),
        )
        yield seen.also(
            claim=claim,
            us=us,
            least=least,
            impossible=bool(impossible),
            is_so=is_so,
            said=_said(claim),
            both_us=memory_us + flops_us,
            memory_us=memory_us,
            flops_us=flops_us,
            always_cold_us=max(cold_us, flops_us),
            always_l2_us=max(from_l2_us, flops_us),
            read_us=max(
                memory_us * work["bytes_read"] / (work["bytes_read"] + work["bytes_written"]), flops_us
            ),
            other_math_us=[
                max(memory_us, work["flops"] / rate / 1e6) for rate in gpu["tflop_per_s"].values()
            ],
        )


def _said(claim: Claim) -> str:
    match claim:
        case {"us": us}:
            what = f"{us:,.4g} µs"
        case {"gb_per_s": rate}:
            what = f"{rate:,.4g} GB/s"
        case {"tflop_per_s": rate}:
            what = f"{rate:,.4g} TFLOP/s"
        case _:
            what = f"{claim['times_faster']} times as fast as {claim['baseline_us']:,.4g} µs"
    return f"{what} with a {claim['l2']} L2"


def _not_pairs(s: Seen) -> bool:
    if not isinstance(s.got, list | tuple) or len(s.got) != len(s.claims):
        return True
    pairs = all(isinstance(one, list | tuple) and len(one) == 2 and is_number(one[0]) for one in s.got)
    return not pairs or not all(isinstance(one[1], bool) for one in s.got)


def _same(us: float, *candidates: float) -> bool:
    return close(us, *candidates, rel=1e-6, abs=0)


def _off(s: Seen) -> bool:
    return not _same(s.us, s.least)


def _least(name: str) -> Condition:
    def condition(s: Seen) -> bool:
        candidates = getattr(s, name)
        return _off(s) and _same(s.us, *(candidates if isinstance(candidates, list) else [candidates]))

    return condition


def _misjudged(form: str) -> Condition:
    return lambda s: form in s.claim and s.impossible != s.is_so


MISTAKES: Conditions = {
    "not-pairs": _not_pairs,
    "unit": lambda s: _off(s) and _same(s.us, *(s.least * 10**power for power in (-9, -6, -3, 3, 6, 9))),
    "added": _least("both_us"),
    "only-bytes": _least("memory_us"),
    "only-flops": _least("flops_us"),
    "l2-ignored": _least("always_cold_us"),
    "does-not-fit": _least("always_l2_us"),
    "writes-forgotten": _least("read_us"),
    "other-math": _least("other_math_us"),
    "least-time": _off,
    "exchanged": lambda s: all(got[1] != right[1] for got, right in zip(s.got, s.want, strict=True)),
    **{f"verdict/{form}": _misjudged(form) for form in FORMS},
}
