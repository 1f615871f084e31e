"""`explore_grid`: lesson 02's picture of blocks and warps over a matrix, and what a block's shape does to
requests.
"""

from __future__ import annotations

import functools
import html
from collections.abc import Mapping
from typing import Any

from helpers import plots
from helpers.widgets import explain, view
from helpers.widgets.shown import Shown, frontend, page_html
from helpers.widgets.square import CUDA, SHAPE
from helpers.widgets.table import Table, load

N_ROWS, N_COLS = 16, 64  # of the corner that is drawn
LEGEND = (
    "Each color is a warp; warp 0 of block (0, 0) has the text's color. Thin lines separate 32-byte sectors, "
    "thick lines separate blocks. Point at an element to see which block, thread and warp it belongs to."
)
_AXES = ("block_x", "block_y", "n_cols")


def explore_grid(
    block_x: int = 16, block_y: int = 16, n_cols: int = 4096, *, table: Table | None = None
) -> Shown:
    """Shows blocks and warps over a matrix, with sliders for the block's shape.

    A line above the picture has the sectors and cache lines that a warp's request touches, and the speed of
    the
    CUDA kernel with that block on 4,096 rows: measured with a GPU, recorded otherwise.

    Args:
        block_x: threads along a row.
        block_y: threads along a column.
        n_cols: the matrix's columns.
        table: rows to show instead of those of this GPU or of the record.

    Raises:
        ValueError: a number that its slider does not have.
        helpers.records.NoRecord: there is no GPU and no record.
    """
    start = {"block_x": block_x, "block_y": block_y, "n_cols": n_cols}
    SHAPE.require(start)
    live = frontend() == "widgets"
    table = table or load(SHAPE, replay=not live)
    text = f"Sliders over the block's shape, on a matrix of 4,096 rows; {table.origin}."
    data = _data(table, start)
    still = _still(table, start)
    if not live:
        return Shown(text, page_html(data, still))
    from helpers.widgets.live import LiveExplorer

    def answer(message: Mapping[str, Any]) -> None:
        point = {axis: SHAPE.axes[axis][i] for axis, i in zip(_AXES, message["at"], strict=True)}
        found = {",".join(map(str, message["at"])): summary(table, **point)}
        data["lines"] |= found
        widget.send({"answer": True, "lines": found})

    widget = LiveExplorer(data, answer)
    return Shown(text, still, widget)


def _data(table: Table, start: Mapping[str, int]) -> dict[str, Any]:
    """What `explorer.js` draws: every line that is known without a measurement."""
    axes = {axis: SHAPE.axes[axis] for axis in _AXES}
    lines = {}
    for i, block_x in enumerate(axes["block_x"]):
        for j, block_y in enumerate(axes["block_y"]):
            for k, n_cols in enumerate(axes["n_cols"]):
                point = {"block_x": block_x, "block_y": block_y, "n_cols": n_cols}
                if not table.live or block_x * block_y > 1024 or point == start:
                    lines[f"{i},{j},{k}"] = summary(table, **point)
    return {
        "kind": "grid",
        "axes": [{**view.axis_data(axis, values), "numbers": list(values)} for axis, values in axes.items()],
        "start": [axes[axis].index(start[axis]) for axis in _AXES],
        "n_rows": N_ROWS,
        "n_cols": N_COLS,
        "legend": LEGEND,
        "lines": lines,
        "colors": list(plots.PALETTE[:7]),
    }


def place(row: Any, col: Any, block_x: int, block_y: int) -> tuple:
    """The block (x, y), the thread in it, and its warp and lane that have an element; for ints or arrays."""
    thread = (row % block_y) * block_x + col % block_x  # numbered along x first
    return (col // block_x, row // block_y), (col % block_x, row % block_y), thread // 32, thread % 32


def pieces(block_x: int, block_y: int, width: int, size: int) -> float:
    """How many pieces of `size` bytes a warp's request touches: the mean over a 256 × 256 corner of float32
    rows.
    """
    return _pieces(block_x, block_y, width % (size // 4), size)


@functools.lru_cache(maxsize=1024)
def _pieces(block_x: int, block_y: int, width: int, size: int) -> float:
    # Only where rows begin within a piece counts, so a row can be taken to be 256 elements and the rest.
    row, col, begins = _requests(block_x, block_y)
    piece = 4 * (row * (256 + width) + col) // size
    is_new = begins.copy()
    is_new[1:] |= piece[1:] != piece[:-1]
    return int(is_new.sum()) / int(begins.sum())


@functools.lru_cache(maxsize=64)
def _requests(block_x: int, block_y: int) -> tuple:
    """The rows and columns of a 256 × 256 corner, request by request, and which elements begin a request.

    Within a request the elements are in memory's order, so that equal pieces are neighbors.
    """
    import numpy as np

    row, col = np.indices((256, 256), dtype=np.int32).reshape(2, -1)
    (across, down), _, warp, _ = place(row, col, block_x, block_y)
    request = (down * -(-256 // block_x) + across) * -(-block_x * block_y // 32) + warp
    order = np.argsort(request, kind="stable")
    begins = np.diff(request[order], prepend=-1) != 0
    return row[order], col[order], begins


def summary(table: Table, block_x: int, block_y: int, n_cols: int) -> str:
    """What a block of that shape is and requests, and how fast the kernel was with it, in one line."""
    threads = block_x * block_y
    if threads > 1024:
        return f"{block_x} × {block_y} is refused: the block has {threads:,} threads, and 1,024 is the most."
    warps = -(-threads // 32)
    idle = "" if threads % 32 == 0 else f", {32 * warps - threads} lanes without a thread"
    sectors, lines = (pieces(block_x, block_y, n_cols, size) for size in (32, 128))
    text = (
        f"{threads:,} threads, {warps} {_plural('warp', warps)} per block{idle} · "
        f"{sectors:.4g} {_plural('sector', sectors)} and {lines:.4g} {_plural('line', lines)} per request"
    )
    point = {"block_x": block_x, "block_y": block_y, "n_cols": n_cols, "dtype": "float32"}
    row = table.measured(CUDA, point)
    if row is None or row["verdict"] != "ok":
        return f"{text} · {explain.reason(table, row)}"
    speed = ", ".join(filter(None, [f"{row['gb_per_s']:,.0f} GB/s", view.percent_of_ceiling(table, row)]))
    return f"{text} · {speed} ({table.origin})"


def _plural(word: str, n: float) -> str:
    return word if n == 1 else word + "s"


def _still(table: Table, start: Mapping[str, int]) -> str:
    """The first position as an SVG without a script; runs of one color are one rectangle."""
    block_x, block_y = start["block_x"], start["block_y"]
    colors = [*plots.PALETTE[:7], "#1A1A1A"]
    runs = []
    for row in range(N_ROWS):
        first = 0
        for col in range(1, N_COLS + 1):
            if col == N_COLS or _color(row, col, block_x, block_y) != _color(row, first, block_x, block_y):
                shade = colors[_color(row, first, block_x, block_y)]
                runs.append(f'<rect x="{first}" y="{row}" width="{col - first}" height="1" fill="{shade}"/>')
                first = col
    lines = "".join(f"M{x} 0V{N_ROWS}" for x in range(0, N_COLS + 1, block_x))
    lines += "".join(f"M0 {y}H{N_COLS}" for y in range(0, N_ROWS + 1, block_y))
    words = html.escape(summary(table, **start))
    return (
        f"<p><b>Blocks of {block_x} × {block_y} threads (x × y)</b></p><p>{words}</p>"
        f"<p>{html.escape(LEGEND)}</p>"
        f'<svg viewBox="0 0 {N_COLS} {N_ROWS}" width="100%" style="max-width:820px" role="img" '
        f'aria-label="{N_ROWS} × {N_COLS} elements, colored by warp">{"".join(runs)}'
        f'<path d="{lines}" stroke="#1A1A1A" stroke-width=".25"/></svg>'
    )


def _color(row: int, col: int, block_x: int, block_y: int) -> int:
    """As `colorOf` in `explorer.js`: 7 for the first warp, otherwise a color that no neighbor has."""
    (across, down), _, warp, _ = place(row, col, block_x, block_y)
    return 7 if (across, down, warp) == (0, 0, 0) else (warp + 2 * across + 3 * down) % 7
