"""Claims of a speedup, and the objections to each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

Claim = dict[str, Any]
# Roughly what a copy reaches there; each claim contains the figure.
_COPY_GB_PER_S = {"A100": 1400.0, "H100": 3000.0, "H200": 4250.0, "L4": 250.0, "T4": 240.0}
_GPUS = tuple(_COPY_GB_PER_S)
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


# Each objection, and whether it applies to a claim.
OBJECTIONS: dict[str, Callable[[Claim], bool]] = {
    "unchecked": lambda c: not c["checked"],
    "two GPUs": lambda c: c["ours"]["gpu"] != c["theirs"]["gpu"],
    "two L2 states": lambda c: c["ours"]["l2"] != c["theirs"]["l2"],
    "noise": lambda c: c["interval"][0] <= 1,
    "above a copy": lambda c: c["ours"]["l2"] == "cold" and _of_a_copy(c) > ABOVE,
    "not the best peer": lambda c: min(c["peers_us"].values()) < c["theirs"]["us"],
    "not measured there": lambda c: not set(c["said_of"]) <= set(c["measured_on"]),
}


def _of_a_copy(claim: Claim) -> float:
    return claim["n_bytes"] / claim["ours"]["us"] / 1e3 / claim["copy_gb_per_s"]


def objections(claim: Claim) -> set[str]:
    """Return what is wrong with a claim."""
    return {objection for objection, applies in OBJECTIONS.items() if applies(claim)}


def spoil(claim: Claim, objection: str, rng: random.Random) -> None:
    """Change a claim so that an objection applies to it."""
    match objection:
        case "unchecked":
            claim["checked"] = False
        case "two GPUs":
            claim["theirs"]["gpu"] = rng.choice([gpu for gpu in _GPUS if gpu != claim["ours"]["gpu"]])
        case "two L2 states":
            claim[rng.choice(("ours", "theirs"))]["l2"] = "warm"
        case "noise":
            claim["interval"] = (rng.uniform(0.8, 1.0), claim["interval"][1])
        case "above a copy":
            _moves(claim, rng.uniform(1.1, 3.0))
        case "not the best peer":
            claim["peers_us"]["quack"] = claim["theirs"]["us"] * rng.uniform(0.5, 0.98)
        case "not measured there":
            left = [gpu for gpu in _GPUS if gpu not in claim["measured_on"]]
            claim["said_of"] = sorted([*claim["said_of"], rng.choice(left)])


def _moves(claim: Claim, of_a_copy: float) -> None:
    claim["n_bytes"] = round(claim["ours"]["us"] * claim["copy_gb_per_s"] * 1e3 * of_a_copy)


def _close(rng: random.Random) -> Iterator[tuple[str, Claim]]:
    """Claims that only just deserve an objection, or only just don't."""
    for share in (1.03, 1.08):
        claim = justified(rng)
        _moves(claim, share)
        yield f"a claim at {share} times a copy's bandwidth", claim
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
    yield "a justified claim", justified(rng)
    for objection in OBJECTIONS:
        claim = justified(rng)
        spoil(claim, objection, rng)
        yield f"a claim with one fault ({objection})", claim
    warm = justified(rng)
    warm["ours"]["l2"] = warm["theirs"]["l2"] = "warm"
    spoil(warm, "above a copy", rng)
    yield "a claim of two kernels that were timed with a warm L2", warm
    yield "another justified claim", justified(rng)
    yield from _close(rng)
    for _ in range(8):
        claim, faults = justified(rng), rng.sample(sorted(OBJECTIONS), rng.randrange(2, 5))
        for objection in faults:
            spoil(claim, objection, rng)
        yield f"a claim with {len(faults)} faults", claim
