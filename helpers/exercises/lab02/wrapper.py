"""Lab 02's wrapper: valid and invalid tensors, what its kernel computes, and mistakes in refusing them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from helpers.exercises.mistakes import Seen, Table, TableJudge, always, sentences, under
from helpers.exercises.model import Case, Outcome
from helpers.exercises.proxies import Proxy

ID = "refuse-wrong-tensors"
_REFUSALS = ("ValueError", "TypeError", "RuntimeError")

# What is wrong -> words, one of which the message must contain, and the hint if the wrapper accepts it.
WRONG = sentences("02_load_inline", "data")[ID]
RIGHT = (
    "an ordinary matrix",
    "one element",
    "one row",
    "one column",
    "a matrix without rows",
    "a matrix without columns",
    "the last rows of a larger matrix",
    "one row, transposed from one column",
)


def cases(rng: random.Random, device: str) -> Iterator[Case]:
    """A valid tensor, then all other valid and invalid ones in random order."""

    def case(kind: str) -> Case:
        args = (kind, rng.randrange(2, 20), rng.randrange(2, 30), device, rng.randrange(2**31))
        return Case(kind, args, expected=kind in RIGHT, call="wrapped")

    yield case(RIGHT[0])
    order = [*WRONG, *RIGHT[1:]]
    rng.shuffle(order)
    # Empty matrices come last, because a full matrix of that dtype is a more informative failure.
    yield from map(case, sorted(order, key=lambda kind: "empty" in kind))


def make(kind: str, height: int, width: int, device: str, seed: int) -> Any:
    """A case's input, on the kernel's device unless the device is what is wrong."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device)

    plain = normal(height, width)
    made: dict[str, Callable[[], Any]] = {
        "a list of lists": lambda: plain.tolist(),
        "a NumPy array": lambda: plain.cpu().numpy(),
        "a tensor on another device": lambda: plain.cpu() if device == "cuda" else plain.to("meta"),
        "float64": lambda: plain.double(),
        "float16": lambda: plain.half(),
        "int32": lambda: plain.mul(100).int(),
        "one dimension": lambda: normal(width),
        "three dimensions": lambda: normal(2, height, width),
        "a transposed matrix": lambda: plain.t(),
        "every second column": lambda: normal(height, 2 * width)[:, ::2],
        "an empty float64 matrix": lambda: torch.empty(0, width, dtype=torch.float64, device=device),
        "one element": lambda: normal(1, 1),
        "one row": lambda: normal(1, width),
        "one column": lambda: normal(height, 1),
        "a matrix without rows": lambda: normal(0, width),
        "a matrix without columns": lambda: normal(height, 0),
        "the last rows of a larger matrix": lambda: normal(height + 3, width)[3:],
        "one row, transposed from one column": lambda: normal(width, 1).t(),
    }
    return made.get(kind, lambda: plain)()


def reference(x: Any) -> Any:
    """The right neighbor minus the element; 0 in the last column."""
    import torch

    out = torch.zeros_like(x)
    if x.numel():
        out[:, :-1] = x[:, 1:] - x[:, :-1]
    return out


def serve(
    ask: Callable[..., Outcome], kind: str, height: int, width: int, device: str, seed: int
) -> Outcome | dict:
    """Call the learner's wrapper on one tensor, and compute here what the kernel would compute.

    Returns:
        "raised", (type, message), or "right", whether the result is right; and facts about the call.
    """
    import torch

    x = make(kind, height, width, device, seed)
    plain = isinstance(x, torch.Tensor) and x.device.type == device
    before = x.clone() if plain else None
    n_computed = 0

    def compute(values: torch.Tensor) -> torch.Tensor:
        nonlocal n_computed
        n_computed += 1
        return reference(values)

    outcome = ask(x, device, Proxy({"compute": compute}))
    if outcome.error:
        return outcome
    given = outcome.value
    found = {key: given[key] for key in ("raised", "type", "shape", "about", "same") if key in given}
    found["n_launches"] = max(n_computed, given["n_launches"])
    if "raised" in given or before is None:
        return found
    after, result = given["after"], given.get("result")
    found["changed"] = after.shape != before.shape or not torch.equal(after, before)
    if isinstance(result, torch.Tensor) and result.shape == before.shape and before.dim() == 2:
        found["right"] = (
            result.device == before.device
            and result.dtype is before.dtype
            and torch.allclose(result, reference(before))
        )
    return found


def _about(kind: str, *_: Any) -> dict[str, Any]:
    return {"words": (), "advice": "", **WRONG.get(kind, {}), "empty": "without" in kind}


def _call(seen: Seen) -> Iterator[Seen]:
    """The facts of the wrapper's call, with its exception or its result."""
    found = seen.got
    error, message = found.get("raised", ("", ""))
    about = found.get("about", found.get("type", "").replace("NoneType", "None"))
    shape = f" of shape {tuple(found['shape'])}" if "shape" in found else ""
    facts = {name: found.get(name) for name in ("changed", "same", "right", "n_launches")}
    yield seen.also(error=error, message=message, about=f"{about}{shape}", **facts)


def _accepted(s: Seen) -> str:
    if s.error not in ("", "NotALaunch"):
        return ""
    return "it passed the tensor to the launch" if s.n_launches else "it returned a result without an error"


_ACCEPTS = {
    "empty": lambda s: s.error == "NotALaunch" and "no element" in s.message and s.message,
    "launch": lambda s: s.error == "NotALaunch" and s.message,
    **under(
        lambda s: s.error,
        {
            "refuses-right/empty": lambda s: s.empty,
            "refuses-right/contiguous": lambda s: "larger" in s.kind or "transposed" in s.kind,
            "refuses-right/other": always,
        },
    ),
    "changes-input": lambda s: s.changed,
    "returns-input": lambda s: s.same,
    "no-result": lambda s: s.right is None,
    "wrong-result": lambda s: not s.right,
    "launches": lambda s: not s.empty and s.n_launches != 1,
}
_REFUSES = {
    "lets-through/copied": lambda s: _accepted(s) and "contiguous" in s.words and s.right,
    "lets-through": _accepted,
    "launches-first": lambda s: s.n_launches,
    "assert": lambda s: s.error == "AssertionError",
    "falls-over": lambda s: s.error not in _REFUSALS,
    "message/none": lambda s: not s.message,
    "message": lambda s: not any(word in s.message.lower() for word in s.words),
}
judge = TableJudge(
    Table(
        ID, "02_load_inline", {**under(lambda s: s.want, _ACCEPTS), **under(lambda s: not s.want, _REFUSES)}
    ),
    "difference",
    _about,
    _call,
)
