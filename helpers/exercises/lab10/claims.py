"""Claims of a speed-up, and the objections to each."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

Claim = dict[str, Any]
_GPUS = ("A100", "H100", "H200", "L4", "T4")
# Roughly what a copy reaches there; each claim contains the figure.
_COPY_GB_PER_S = {"A100": 1400.0, "H100": 3000.0, "H200": 4250.0, "L4": 250.0, "T4": 240.0}
ABOVE = 1.05  # of a copy: no kernel that moves all its bytes reaches this


def justified(rng: random.Random) -> Claim:
    """A justified claim."""
    gpu = rng.choice(_GPUS)
    copy_gb_per_s, n_bytes = _COPY_GB_PER_S[gpu], rng.randrange(10**8, 4 * 10**9)
    ours = n_bytes / copy_gb_per_s / 1e3 / rng.uniform(0.6, 1.02)
    factor = rng.uniform(1.02, 1.9)
    half = rng.uniform(0.001, 0.9 * (factor - 1))
    theirs = ours * factor
    others = {name: theirs * rng.uniform(1.0, 3.0) for name in rng.sample(("eager", "liger", "library"), 2)}
    more = rng.sample([one for one in _GPUS if one != gpu], rng.randrange(0, 3))
    return {
        "n_bytes": n_bytes,
        "copy_gb_per_s": copy_gb_per_s,
        "checked": True,
        "ours": {"us": ours, "gpu": gpu, "l2": "cold"},
        "theirs": {"us": theirs, "gpu": gpu, "l2": "cold"},
        "interval": (factor - half, factor + half),
        "peers_us": {"torch.compile": theirs, **others},
        "measured_on": sorted([gpu, *more]),
        "said_of": sorted([gpu, *more[: rng.randrange(0, len(more) + 1)]]),
    }


def _unchecked(claim: Claim, rng: random.Random) -> None:
    claim["checked"] = False


def _other_gpu(claim: Claim, rng: random.Random) -> None:
    claim["theirs"]["gpu"] = rng.choice([gpu for gpu in _GPUS if gpu != claim["ours"]["gpu"]])


def _other_cache(claim: Claim, rng: random.Random) -> None:
    claim[rng.choice(("ours", "theirs"))]["l2"] = "warm"


def _noise(claim: Claim, rng: random.Random) -> None:
    claim["interval"] = (rng.uniform(0.8, 1.0), claim["interval"][1])


def _too_fast(claim: Claim, rng: random.Random) -> None:
    claim["n_bytes"] = round(claim["ours"]["us"] * claim["copy_gb_per_s"] * 1e3 * rng.uniform(1.1, 3.0))


def _weak_peer(claim: Claim, rng: random.Random) -> None:
    claim["peers_us"]["quack"] = claim["theirs"]["us"] * rng.uniform(0.5, 0.98)


def _too_wide(claim: Claim, rng: random.Random) -> None:
    left = [gpu for gpu in _GPUS if gpu not in claim["measured_on"]]
    claim["said_of"] = sorted([*claim["said_of"], rng.choice(left)])


# Each objection with what makes it right.
BREAKS: dict[str, Callable[[Claim, random.Random], None]] = {
    "unchecked": _unchecked,
    "two GPUs": _other_gpu,
    "two L2 states": _other_cache,
    "noise": _noise,
    "above a copy": _too_fast,
    "not the best peer": _weak_peer,
    "not measured there": _too_wide,
}


def objections(claim: Claim) -> set[str]:
    """Return what is wrong with a claim."""
    ours, theirs = claim["ours"], claim["theirs"]
    gb_per_s = claim["n_bytes"] / ours["us"] / 1e3
    found = {
        "unchecked": not claim["checked"],
        "two GPUs": ours["gpu"] != theirs["gpu"],
        "two L2 states": ours["l2"] != theirs["l2"],
        "noise": claim["interval"][0] <= 1,
        "above a copy": ours["l2"] == "cold" and gb_per_s > ABOVE * claim["copy_gb_per_s"],
        "not the best peer": min(claim["peers_us"].values()) < theirs["us"],
        "not measured there": not set(claim["said_of"]) <= set(claim["measured_on"]),
    }
    return {objection for objection, holds in found.items() if holds}


def _close(rng: random.Random) -> Iterator[tuple[str, Claim]]:
    """Claims that only just deserve an objection, or only just don't."""
    for share in (1.03, 1.08):
        claim = justified(rng)
        claim["n_bytes"] = round(claim["ours"]["us"] * claim["copy_gb_per_s"] * 1e3 * share)
        yield f"a claim at {share} times a copy's rate", claim
    slower = justified(rng)
    slower["interval"] = (rng.uniform(0.85, 0.93), rng.uniform(0.95, 0.99))
    yield "a claim whose interval lies below 1", slower
    between = justified(rng)
    between["peers_us"]["quack"] = (between["ours"]["us"] * between["theirs"]["us"]) ** 0.5
    yield "a claim with a peer between the two", between
    alone = justified(rng)
    alone["peers_us"] = {"eager": 2 * alone["theirs"]["us"], "torch.compile": alone["theirs"]["us"]}
    yield "a claim over the faster of two peers", alone


def drawn(rng: random.Random) -> Iterator[tuple[str, Claim]]:
    """Claims and what is special about them: justified ones, one per objection, and some with several."""
    yield "a claim that stands", justified(rng)
    for objection, spoil in BREAKS.items():
        claim = justified(rng)
        spoil(claim, rng)
        yield f"a claim with one fault ({objection})", claim
    warm = justified(rng)
    warm["ours"]["l2"] = warm["theirs"]["l2"] = "warm"
    _too_fast(warm, rng)
    yield "a claim of two kernels that were timed with a warm L2", warm
    yield "another claim that stands", justified(rng)
    yield from _close(rng)
    for _ in range(8):
        claim, faults = copy.deepcopy(justified(rng)), rng.sample(sorted(BREAKS), rng.randrange(2, 5))
        for objection in faults:
            BREAKS[objection](claim, rng)
        yield f"a claim with {len(faults)} faults", claim
