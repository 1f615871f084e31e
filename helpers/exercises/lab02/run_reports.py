"""The conditions on a run of lab 02's kernels that its exercises share.

`s` has the matrix's height and width and, if the emulator names a thread, the thread's row and column.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from helpers.exercises import guarded_run
from helpers.exercises.mistakes import Conditions, Seen, Table, TableJudge, always, under
from helpers.exercises.model import Case

if TYPE_CHECKING:
    import torch

LAB = "02_load_inline"


def make_judge(
    id: str, name: str, faults: Conditions, values: Conditions, first: Conditions | None = None
) -> TableJudge:
    """Make the judge of an exercise whose answer is a kernel's text.

    Args:
        id, name: of the exercise.
        faults, values: as in `guarded_run.of_runs`.
        first: conditions that come before all others.
    """
    conditions = {**(first or {}), **guarded_run.of_runs(faults, values)}
    return TableJudge(Table(id, LAB, conditions, raises=guarded_run.DOES_NOT_BUILD), name, parts=_parts)


def run_case(tensors: list, result: torch.Tensor, block: tuple[int, ...] = ()) -> Case:
    """The case of one run on these tensors, the first of which is the matrix; `block` is (x, y) if needed."""
    height, width = tensors[0].shape
    label = f"a {height} × {width} matrix" + (f" in blocks of {block[0]} × {block[1]}" if block else "")
    args = (tensors, tuple(result.shape), [height, width, *block])
    return Case(label, args, expected=result.to(tensors[0].device), call="run")


def _parts(seen: Seen) -> Iterable[Seen]:
    case, found = seen.case, seen.got
    height, width, *block = case.args[2] if case.call == "run" else case.args
    known = {key: found.get(key) for key in ("has_barrier", "tile", "writers")}
    for part in guarded_run.seen_run(seen):
        part = part.also(height=height, width=width, **known)
        yield part.also(**_faulty_thread(part, *(block or (32, 8)))) if part.block else part


def _faulty_thread(s: Seen, block_x: int, block_y: int) -> dict[str, Any]:
    """The row, column and flat index of the thread that the emulator names, and its tensor's size."""
    (across, down, _), (x, y, _) = s.block, s.thread
    rows, cols = (s.height, s.width) if s.argument == "input" else (s.width, s.height)
    return {
        "row": down * block_y + y,
        "col": across * block_x + x,
        "element": across * 256 + x,
        "size": f"`{s.argument}` has {rows} rows of {cols} elements",
    }


# ------------------------------------------------------------------------------------------- what a run costs
def strided(s: Seen) -> str:
    """A warp's requests use less of the sectors' bytes than the case asks for."""
    for argument in ("input", "output"):
        sectors, used = s.got[argument]
        if not used >= s.want:
            return (
                f"the result is right, but a warp's request for `{argument}` touches {sectors:.3g} "
                f"sector{'' if sectors == 1 else 's'} and uses only {used:.3g} % of the bytes moved, where "
                f"at least {s.want} % are required"
            )
    return ""


# ------------------------------------------------------------------------------------------- faults
def unsynchronized(s: Seen) -> bool:
    """Two threads access the same element without a barrier between them."""
    return s.cause == "race" or (s.cause == "uninitialised" and not s.has_barrier)


BARRIERS: Conditions = {"missing-barrier": unsynchronized, "barrier-in-if": lambda s: s.cause == "barrier"}


def outside(conditions: Conditions) -> dict:
    """The conditions, for a thread's access outside a tensor."""
    return under(lambda s: s.cause == "out of bounds" and s.block, conditions)


def _has_element(s: Seen) -> set[bool]:
    """Whether the thread has an element in all four steps of a tile (True), in none (False), or in some
    (both).

    Which rows and columns a thread means isn't known for a write to the output: they may be the input's, or
    the output's own.
    """
    (block_x, block_y, _), (x, y, _) = s.block, s.thread
    ways = {(block_y * 32 + y, block_x * 32 + x, s.height, s.width)}
    if s.argument == "output":
        ways.add((block_x * 32 + y, block_y * 32 + x, s.width, s.height))
    first = {row < n_rows and col < n_cols for row, col, n_rows, n_cols in ways}
    last = {row + 24 < n_rows and col < n_cols for row, col, n_rows, n_cols in ways}
    return {True} if last == {True} else {False} if first == {False} else {True, False}


TILES: Conditions = {
    **outside(
        {
            "tile-index": lambda s: s.argument not in ("input", "output"),
            "wrong-index": lambda s: _has_element(s) == {True},
            "missing-guard/none": lambda s: _has_element(s) == {False},
            "missing-guard/perhaps": always,
        }
    ),
    **BARRIERS,
    **under(
        lambda s: s.cause == "uninitialised",
        {"missing-guard/tile": lambda s: s.height % 32 or s.width % 32, "part-of-tile": always},
    ),
}
