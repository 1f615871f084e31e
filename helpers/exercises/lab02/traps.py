"""What lab 02's texts tell of a mistake that a run alone does not: who had an element, and what a tile looks like."""

from __future__ import annotations

import re

from helpers.exercises.model import Case

_ARRAY = r"float\s+\w+\s*((?:\[\s*\d+\s*\])+)"
_EIGHT = (
    r"blockIdx\s*\.\s*[xy]\s*\*\s*blockDim\s*\.\s*y\b(?!\s*\*)"
    r"|(?<!\* )\bblockDim\s*\.\s*y\s*\*\s*blockIdx\s*\.\s*[xy]\b(?!\s*\*)"
)

TILE = {
    "not-shared": "The array lacks __shared__: each thread has one of its own, and sees nothing of what the others put in.",
    "tile-too-small": "A tile has 32 rows of 32 elements: with fewer in a [ ] an index that goes to 31 reaches into other rows.",
    "eight-rows": "blockDim.y is 8, but a block's tile has 32 rows: multiply blockIdx by 32, not by blockDim.y.",
}


def of_tile(text: str) -> str:
    """A key of `TILE` for what a transpose's text (without comments) shows, or ""."""
    shared = "__shared__" in text
    arrays = re.findall(("__shared__\\s+" if shared else r"") + _ARRAY, text)
    if arrays and not shared:
        return "not-shared"
    for sizes in arrays:
        numbers = [int(n) for n in re.findall(r"\d+", sizes)]
        if len(numbers) > 1 and min(numbers) < 32:
            return "tile-too-small"
    return "eight-rows" if re.search(_EIGHT, text) else ""


def out_of_bounds(case: Case, value: dict) -> tuple[str, str]:
    """(mistake, hint) of an access outside a tensor, from whether its thread had an element there.

    Args:
        case: of rows-not-columns or transpose-in-tiles; its arguments hold height and width.
        value: of `launchers.run` or `launchers.count`, with "trouble".
    """
    height, width = case.args if case.call == "count" else case.args[2][:2]
    (block_x, block_y, _), (x, y, _) = (tuple(value[k]) for k in ("block", "thread"))
    if value["function"] == "scale_rows":
        i = block_x * 256 + x
        if i >= height * width:
            return (
                "missing-guard",
                "That thread has no element and must not touch memory: which condition keeps it out?",
            )
        hint = f"Thread {i:,} has an element, so the guard is right: which row and column does its index come from?"
        return "wrong-index", hint
    if value["argument"] not in ("input", "output"):
        return (
            "tile-index",
            "The array in shared memory is smaller than that: compare its sizes with your indices.",
        )
    rows, cols = (height, width) if value["argument"] == "input" else (width, height)
    size = f"`{value['argument']}` has {rows} rows of {cols} elements"
    first = {(block_y * 32 + y, block_x * 32 + x, height, width)}  # by the input's rows
    if value["argument"] == "output":
        first.add((block_x * 32 + y, block_y * 32 + x, width, height))  # by its own
    if all(row + 24 < n_rows and col < n_cols for row, col, n_rows, n_cols in first):
        return "wrong-index", f"That thread has elements in all four steps, so its index is wrong: {size}."
    if all(row >= n_rows or col >= n_cols for row, col, n_rows, n_cols in first):
        hint = f"That thread has no element and must not touch memory: {size}. Which condition keeps it out?"
        return "missing-guard", hint
    hint = f"Has that thread an element in this step? If so its index is wrong, if not a guard is missing: {size}."
    return "missing-guard", hint
