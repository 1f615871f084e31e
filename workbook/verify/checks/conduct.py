"""Checks of what a candidate does besides computing, and by whose operators it computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workbook.verify.problem import Case
from workbook.verify.suspect import Raised, Suspect
from workbook.verify.verdict import DISHONEST, NOTE, Finding

# Operators that only move, allocate or name memory.
TRIVIAL = (
    "empty", "view", "reshape", "clone", "copy", "detach", "transpose", "permute", "expand", "t.default",
    "unsqueeze", "squeeze", "as_strided", "slice", "select", "zeros", "ones", "full", "fill", "_to_copy",
    "alias", "lift_fresh", "unbind", "split", "new_", "stack", "cat", "contiguous", "arange",
)  # fmt: skip
# Changes of these settings are worth knowing, but they neither make results wrong nor timings better.
_HARMLESS_STATE = (
    "torch.is_grad_enabled",
    "the state of Python's random",
    "gc.isenabled",
    "the working directory",
)
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "mv", "dot")
# Helpers of torch and Python that stay when their work is done, by a part of their command.
_HELPERS = ("torch/_inductor/compile_worker", "multiprocessing.resource_tracker")


def watched(suspect: Suspect, when: str, n_known: int = 0) -> Iterator[Finding]:
    """What its process has seen it do: functions replaced, places searched, settings changed.

    Args:
        n_known: how many events were reported before.
    """
    seen = suspect.watched()
    if seen["replaced"]:
        names = ", ".join(str(one) for one in seen["replaced"][:6])
        yield Finding("patched", DISHONEST, f"It replaces functions that are not its own: {names}.", when)
    for kind, sentence in seen["events"][n_known:]:
        if kind == "processes":
            severity = NOTE if when == "at import" else DISHONEST
            yield Finding("processes", severity, f"It {sentence}.", when)
        elif kind == "seeds":
            yield Finding("global-state", NOTE, f"It {sentence}.", when)
        else:
            yield Finding("peeks", DISHONEST, f"It {sentence}.", when)
    left = [one for one in seen["processes"] if not any(helper in one for helper in _HELPERS)]
    if left and when != "at import":
        n = "a process" if len(left) == 1 else f"{len(left)} processes"
        says = f"It leaves {n} behind that it has started: {left[0]}."
        yield Finding("processes", DISHONEST, says, when)
    if seen["threads"]:
        names = ", ".join(str(one) for one in seen["threads"][:4])
        yield Finding("threads", DISHONEST, f"It computes in threads of its own: {names}.", when)
    for change in seen["state"]:
        severity = NOTE if str(change).startswith(_HARMLESS_STATE) else DISHONEST
        yield Finding("global-state", severity, f"It changes a global setting: {change}.", when)


def library(suspect: Suspect, reference: set[str], case: Case) -> Iterator[Finding]:
    """Report when it calls all the operators that the reference calls."""
    try:
        suspect.put("operators", case.args)
        used = _of_interest(set(suspect.operators("operators", case)))
    except Raised:
        return
    wanted = _of_interest(reference)
    if used and wanted and wanted <= used:
        names = ", ".join(one.removesuffix(".default") for one in sorted(wanted)[:4])
        says = f"It calls the library functions that the reference calls ({names})."
        yield Finding("library", NOTE, says, case.label)


def _of_interest(names: Iterable[str]) -> set[str]:
    """Operators that compute, by name; all products of matrices are one."""
    short = {name.removeprefix("aten.").removeprefix("prims.") for name in names}
    found = {name for name in short if not name.startswith(TRIVIAL)}
    return {"a matrix product" if name.partition(".")[0] in _PRODUCTS else name for name in found}
