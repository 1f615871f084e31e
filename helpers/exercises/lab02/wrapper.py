"""Lab 02's wrapper: right and wrong tensors, what its kernel computes, and the judge of what was refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from helpers.exercises.model import Case, Outcome, Verdict
from helpers.exercises.served import Shown
from helpers.exercises.verdicts import raised, wrong

ID = "refuse-wrong-tensors"
_REFUSALS = ("ValueError", "TypeError", "RuntimeError")

# What is wrong -> words of which one has to stand in the message, and the hint where it is let through.
WRONG = {
    "a list of lists": (
        ("list", "tensor"),
        "Ask isinstance(x, torch.Tensor) first: the other checks need a tensor.",
    ),
    "a NumPy array": (("ndarray", "numpy", "tensor"), "Ask isinstance(x, torch.Tensor) first."),
    "a tensor on another device": (
        ("device", "cuda", "cpu", "gpu", "meta"),
        "Compare x.device.type with `on`: another device's address means nothing to the kernel.",
    ),
    "float64": (
        ("float64", "double", "dtype", "float32"),
        "The kernel reads float32; eight bytes would be read as two numbers.",
    ),
    "float16": (("float16", "half", "dtype", "float32"), "The kernel reads float32."),
    "int32": (("int32", "int", "dtype", "float32"), "The kernel reads float32; integers have other bits."),
    "one dimension": (
        ("dim", "shape", "2-d", "2d", "matrix"),
        "The kernel needs a height and a width: x.dim() == 2.",
    ),
    "three dimensions": (
        ("dim", "shape", "2-d", "2d", "matrix"),
        "Three sizes do not fit a height and a width: x.dim() == 2.",
    ),
    "a transposed matrix": (
        ("contiguous", "stride"),
        "The kernel computes row * width + col: ask x.is_contiguous().",
    ),
    "every second column": (
        ("contiguous", "stride"),
        "Between its elements lie others: ask x.is_contiguous().",
    ),
    "an empty float64 matrix": (
        ("float64", "double", "dtype", "float32"),
        "An empty tensor can be wrong too: check first, then return early.",
    ),
}
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
    """Right tensors first, then each kind of wrong one."""
    sizes = rng.randrange(2, 20), rng.randrange(2, 30)
    yield Case(RIGHT[0], (RIGHT[0], *sizes, device, rng.randrange(2**31)), expected=True, call="wrapped")
    order = [*((kind, False) for kind in WRONG), *((kind, True) for kind in RIGHT[1:])]
    rng.shuffle(order)
    order.sort(key=lambda one: "empty" in one[0])  # last: a full one of that dtype says more
    for kind, right in order:
        sizes = rng.randrange(2, 20), rng.randrange(2, 30)
        yield Case(kind, (kind, *sizes, device, rng.randrange(2**31)), expected=right, call="wrapped")


def make(kind: str, height: int, width: int, device: str, seed: int) -> Any:
    """A case's input, a tensor or not, on the kernel's device unless the device is what is wrong."""
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
    """Right neighbour minus the element; 0 in the last column."""
    import torch

    out = torch.zeros_like(x)
    if x.numel():
        out[:, :-1] = x[:, 1:] - x[:, :-1]
    return out


def serve(
    ask: Callable[..., Outcome], kind: str, height: int, width: int, device: str, seed: int
) -> Outcome | dict:
    """Have the learner's wrapper called on one tensor; what the kernel would compute is computed here.

    Returns:
        "raised": (type, message), or "right": whether the result is right, with what else was seen.
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

    outcome = ask(x, device, Shown({"compute": compute}))
    if outcome.error:
        return outcome
    told = outcome.value
    found = {key: told[key] for key in ("raised", "type", "shape", "about", "same") if key in told}
    found["n_launches"] = max(n_computed, told["n_launches"])
    if "raised" in told or before is None:
        return found
    after, result = told["after"], told.get("result")
    found["changed"] = after.shape != before.shape or not torch.equal(after, before)
    if isinstance(result, torch.Tensor) and result.shape == before.shape and before.dim() == 2:
        found["right"] = (
            result.device == before.device
            and result.dtype is before.dtype
            and torch.allclose(result, reference(before))
        )
    return found


def judge(case: Case, outcome: Outcome) -> Verdict | None:
    """None where a right tensor got its result, or a wrong one was refused with a message that names what is wrong."""

    def no(sentence: str, mistake: str, hint: str) -> Verdict:
        return wrong(ID, case, sentence, mistake, hint)

    if fell := raised(ID, "difference", case, outcome):
        return fell
    found = outcome.value
    kind = case.label
    error, message = found.get("raised", ("", ""))
    if error == "NotALaunch" and case.expected:
        hint = "launch(x.data_ptr(), y.data_ptr(), height, width), and not at all for an empty tensor."
        return no(f"on {kind}: {message}", "empty" if "no element" in message else "launch", hint)
    if case.expected:
        return _judge_right(no, kind, found, error, message)
    words, hint = WRONG[kind]
    if not error or error == "NotALaunch":
        how = "let it through to the launch" if found["n_launches"] else "returned something without a word"
        if kind in ("a transposed matrix", "every second column") and found.get("right"):
            how = "copied it in silence"
            hint = "The contract says refuse: whoever calls decides what is copied, and pays for it."
        return no(f"given {kind}, it {how}", "lets-through", hint)
    if found["n_launches"]:
        return no(
            f"given {kind}, it launched before it refused",
            "launches-first",
            "All checks come before the launch.",
        )
    if error == "AssertionError":
        hint = "`python -O` removes asserts: raise ValueError or TypeError."
        return no(f"given {kind}, it refused with an assert", "assert", hint)
    if error not in _REFUSALS:
        return no(f"given {kind}, it fell over with {error}: {message}", "falls-over", hint)
    if not any(word in message.lower() for word in words):
        shown = f"{message!r} does not say what is wrong" if message else "without a message"
        return no(
            f"given {kind}, it raised {error}: {shown}",
            "message",
            f"Name it: for instance the word {words[0]!r}.",
        )
    return None


def _judge_right(
    no: Callable[..., Verdict], kind: str, found: dict, error: str, message: str
) -> Verdict | None:
    empty = "without" in kind
    if error:
        hint = "A right tensor must pass: are your conditions stricter than the contract?"
        if empty:
            hint = "An empty matrix is a right one: return an empty result."
        elif "larger" in kind or "transposed" in kind:
            hint = "x.is_contiguous() answers for this one; strides and offsets compared by hand do not."
        return no(f"given {kind}, which is right, it raised {error}: {message}", "refuses-right", hint)
    if found.get("changed"):
        return no(
            f"given {kind}, it changed its input",
            "changes-input",
            "Write into a new tensor: torch.empty_like(x).",
        )
    if found.get("same"):
        return no(
            f"given {kind}, it returned the input itself",
            "returns-input",
            "Return the tensor that the launch wrote.",
        )
    if "right" not in found:
        what = found.get("about", found["type"].replace("NoneType", "None"))
        shape = f" of shape {tuple(found['shape'])}" if "shape" in found else ""
        hint = "The result has the input's shape, dtype and device."
        return no(f"given {kind}, it returned {what}{shape}", "no-result", hint)
    if not found["right"]:
        hint = "Is height x.shape[0] and width x.shape[1], and is the output the second address?"
        return no(f"given {kind}, the result is not what the kernel computes", "wrong-result", hint)
    if not empty and found["n_launches"] != 1:
        return no(
            f"given {kind}, it launched {found['n_launches']} times", "launches", "Launch once for each call."
        )
    return None
