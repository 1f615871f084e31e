"""`explore_grid`: lesson 02's picture of blocks and warps over a matrix, and what a block's shape does to
requests.
"""

from __future__ import annotations

import functools
import html
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from helpers import plots
from helpers.widgets.controls import grid_of, labelled_slider, live_figure
from helpers.widgets.explain import reason
from helpers.widgets.figure import percent
from helpers.widgets.shown import Shown, frontend
from helpers.widgets.square import CUDA, SHAPE
from helpers.widgets.table import Table, load

if TYPE_CHECKING:
    import plotly.graph_objects as go

N_ROWS, N_COLS = 16, 64  # of the corner that is drawn
PLAIN_SHAPES = (
    (1, 256),
    (2, 128),
    (4, 64),
    (8, 32),
    (16, 16),
    (32, 8),
    (64, 4),
    (128, 2),
    (256, 1),
    (8, 8),
    (32, 1),
    (32, 32),
    (64, 32),
)

_SENTENCE_AT = -4.2  # above the brackets, in rows

LEGEND = (
    "A colour: a warp; black: warp 0 of block (0, 0). White line: a 32-byte sector. Grey line: a block. "
    "Point at an element to see whose it is."
)


def explore_grid(
    block_x: int = 16, block_y: int = 16, n_cols: int = 4096, *, table: Table | None = None
) -> Shown:
    """Lesson 02's picture of blocks and warps over a matrix, with sliders for the block's shape.

    Under the title stand the sectors and lines that a warp's request asks for, and the speed of the CUDA
    kernel with that block on 4,096 rows: measured here on a GPU, recorded elsewhere.

    Args:
        block_x: threads along a row.
        block_y: threads along a column.
        n_cols: the matrix's columns.
        table: rows to show instead of those of this GPU or of the record.

    Raises:
        ValueError: a number that its slider does not have.
        helpers.records.NoRecord: no GPU here and nothing recorded.
    """
    SHAPE.require({"block_x": block_x, "block_y": block_y, "n_cols": n_cols})
    alone = frontend() == "plain"
    table = table or load(SHAPE, replay=alone)
    text = f"Sliders over the block's shape, on a matrix of 4,096 rows; {table.origin}."
    # The plain form has a dozen shapes: on a GPU they would all be measured now, so it goes without their
    # speed.
    plain = plain_picture(None if table.live and not alone else table, block_x, block_y, n_cols)
    return Shown(text, plain, None if alone else _GridExplorer(table, block_x, block_y, n_cols))


class _GridExplorer:
    """The live form of `explore_grid`: sliders, a line of text and the picture."""

    def __init__(self, table: Table, block_x: int, block_y: int, n_cols: int) -> None:
        import ipywidgets as w

        self.table = table
        start = {"block_x": block_x, "block_y": block_y, "n_cols": n_cols}
        self.figure = live_figure(build(block_x, block_y, LEGEND))
        self.sliders = {
            axis: labelled_slider(axis, SHAPE.axes[axis], value, continuous=not table.live)
            for axis, value in start.items()
        }
        self.line = w.HTML(self._line())
        for slider in self.sliders.values():
            slider.observe(self._moved, "value")
        self.box = w.VBox([grid_of(list(self.sliders.values())), self.line, self.figure])

    def _line(self) -> str:
        at = {axis: slider.value for axis, slider in self.sliders.items()}
        text = summary(self.table, at["block_x"], at["block_y"], at["n_cols"])
        return f'<div role="status">{html.escape(text)}</div>'

    def _moved(self, change: dict) -> None:
        redraw(self.figure, self.sliders["block_x"].value, self.sliders["block_y"].value)
        self.line.value = self._line()


# ------------------------------------------------------------------------------------------- the picture


def place(row: Any, col: Any, block_x: int, block_y: int) -> tuple:
    """Which block (x, y) and which thread of it has an element, and that thread's warp and lane; for ints or
    arrays.
    """
    thread = (row % block_y) * block_x + col % block_x  # numbered along x first
    return (col // block_x, row // block_y), (col % block_x, row % block_y), thread // 32, thread % 32


@functools.lru_cache(maxsize=1024)
def pieces(block_x: int, block_y: int, width: int, size: int) -> float:
    """How many pieces of `size` bytes a warp's request touches: the mean over a 256 × 256 corner of float32
    rows.
    """
    import numpy as np

    row, col = np.indices((256, 256), dtype=np.int64).reshape(2, -1)
    (across, down), _, warp, _ = place(row, col, block_x, block_y)
    request = (down * 256 + across) * 32 + warp
    piece = 4 * (row * width + col) // size
    pairs = np.unique(request * (int(piece.max()) + 1) + piece)
    return len(pairs) / len(np.unique(request))


def summary(table: Table | None, block_x: int, block_y: int, width: int) -> str:
    """What a block of that shape is and asks for, and how fast the kernel was with it, in one
    line of text.
    """
    threads = block_x * block_y
    if threads > 1024:
        return f"{block_x} × {block_y} is refused: a block of {threads:,} threads, and 1,024 is the most"
    warps = -(-threads // 32)
    idle = "" if threads % 32 == 0 else f", {32 * warps - threads} lanes without a thread"
    sectors, lines = (pieces(block_x, block_y, width, size) for size in (32, 128))
    text = (
        f"{threads:,} threads, {warps} warp{'s' * (warps > 1)} a block{idle} · "
        f"{sectors:.4g} {_plural('sector', sectors)} and {lines:.4g} {_plural('line', lines)} a request"
    )
    if table is None:
        return text
    point = {"block_x": block_x, "block_y": block_y, "n_cols": width, "dtype": "float32"}
    row = table.measured(CUDA, point)
    if row is None or row["verdict"] != "ok":
        return f"{text} · {reason(table, row)}"
    speed = f"{row['gb_per_s']:,.0f} GB/s, {percent(table, row['gb_per_s'])}"
    return f"{text} · {speed} ({table.origin})"


def _plural(word: str, n: float) -> str:
    return word if n == 1 else word + "s"


def _elements(block_x: int, block_y: int) -> tuple[Any, Any]:
    """Colour and hover numbers of every element of the corner."""
    import numpy as np

    row, col = np.indices((N_ROWS, N_COLS))
    block, thread, warp, lane = place(row, col, block_x, block_y)
    colour = (warp + 2 * block[0] + 3 * block[1]) % 7  # neighbours differ
    first = (block[0] == 0) & (block[1] == 0) & (warp == 0)
    numbers = np.stack([*block, *thread, warp, lane, col // 8], axis=-1)
    return np.where(first, 7, colour).astype("int8"), numbers.astype("int16")


def _lines(columns: Sequence[int], rows: Sequence[int]) -> tuple[list, list]:
    """Lines on the left of these columns and over these rows of the corner, as one path with gaps."""
    x: list[float | None] = []
    y: list[float | None] = []
    for at in columns:
        x += [at - 0.5, at - 0.5, None]
        y += [-0.5, N_ROWS - 0.5, None]
    for at in rows:
        x += [-0.5, N_COLS - 0.5, None]
        y += [at - 0.5, at - 0.5, None]
    return x, y


def _borders(block_x: int, block_y: int) -> tuple[list, list]:
    """The lines between blocks."""
    return _lines(range(0, N_COLS + 1, block_x), range(0, N_ROWS + 1, block_y))


def title(block_x: int, block_y: int, line: str) -> str:
    """Two lines over the picture: the shape, and what it asks for."""
    return f"Blocks of {block_x} × {block_y} threads (x × y)<br><sub>{line}</sub>"


def build(block_x: int, block_y: int, line: str) -> go.Figure:
    """The picture: traces elements, sector lines, block borders. `line` stands under its title."""
    import plotly.graph_objects as go

    colour, numbers = _elements(block_x, block_y)
    shades = [*plots.PALETTE[:7], "#1A1A1A"]
    scale = [((i + step) / 8, shade) for i, shade in enumerate(shades) for step in (0, 1)]
    fig = go.Figure(
        go.Heatmap(
            z=colour, customdata=numbers, colorscale=scale, zmin=-0.5, zmax=7.5, showscale=False, opacity=0.8,
            hovertemplate="element (%{y}, %{x})<br>block (%{customdata[0]}, %{customdata[1]}), "
            "thread (%{customdata[2]}, %{customdata[3]})<br>warp %{customdata[4]}, lane %{customdata[5]}<br>"
            "sector %{customdata[6]} of its row<extra></extra>",
        )
    )  # fmt: skip
    quiet = {"mode": "lines", "hoverinfo": "skip", "showlegend": False}
    x, y = _lines(range(8, N_COLS, 8), ())
    fig.add_scatter(x=x, y=y, line={"width": 1, "color": "white"}, **quiet)
    x, y = _borders(block_x, block_y)
    fig.add_scatter(x=x, y=y, line={"width": 3, "color": plots.TEXT_COLOUR}, **quiet)
    for part in range(N_COLS // 32):  # a bracket over each 128 bytes
        fig.add_shape(
            type="line", x0=32 * part - 0.2, x1=32 * part + 31.2, y0=-1.2, y1=-1.2,
            line={"width": 2, "color": plots.TEXT_COLOUR},
        )  # fmt: skip
        fig.add_annotation(x=32 * part + 15.5, y=-2.4, text=f"row 0: 128-byte line {part}", showarrow=False)
    plots.layout(fig, title(block_x, block_y, line), "column", "row", height=380)
    fig.update_layout(margin={"t": 80})
    fig.update_xaxes(showgrid=False, zeroline=False, dtick=8, range=[-1, N_COLS])
    return fig.update_yaxes(showgrid=False, zeroline=False, tickvals=[0, 8, 15], range=[N_ROWS - 0.4, -3.5])


def redraw(fig: Any, block_x: int, block_y: int) -> None:
    """Move an existing picture to another shape."""
    with fig.batch_update():
        colour, numbers = _elements(block_x, block_y)
        fig.data[0].z, fig.data[0].customdata = colour, numbers
        fig.data[2].x, fig.data[2].y = _borders(block_x, block_y)
        fig.layout.title.text = title(block_x, block_y, LEGEND)


def plain_picture(
    table: Table | None,
    block_x: int,
    block_y: int,
    width: int,
    shapes: Sequence[tuple[int, int]] = PLAIN_SHAPES,
) -> go.Figure:
    """The picture with Plotly sliders over a dozen shapes, one of them refused, and over the rows' length.

    Plotly's sliders know nothing of one another: the sentence of each length is a trace of text, which the
    shape's slider writes and the length's slider shows.
    """
    shapes = sorted({*shapes, (block_x, block_y)})
    widths = SHAPE.axes["n_cols"]
    fig = build(block_x, block_y, LEGEND)
    # Hover numbers of every element and shape would be a megabyte: here an element tells only its place.
    fig.data[0].update(customdata=None, hovertemplate="element (%{y}, %{x})<extra></extra>")
    said = lambda bx, by, n: "<br>".join(textwrap.wrap(summary(table, bx, by, n), 118))  # noqa: E731
    for n in widths:
        fig.add_scatter(
            x=[-1], y=[_SENTENCE_AT], mode="text", text=[said(block_x, block_y, n)], textposition="top right",
            textfont={"size": 13}, cliponaxis=False, hoverinfo="skip", showlegend=False, visible=n == width,
        )  # fmt: skip
    sentences = list(range(len(fig.data) - len(widths), len(fig.data)))
    by_shape = []
    for bx, by in shapes:
        x, y = _borders(bx, by)
        # One call changes traces 0 and 2, and the sentences. None takes an attribute away: it is for those
        # without it.
        n = len(widths)
        data = {
            "z": [_elements(bx, by)[0].tolist(), None, *[None] * n],
            "x": [None, x, *[[-1]] * n],
            "y": [None, y, *[[_SENTENCE_AT]] * n],
            "text": [None, None, *([said(bx, by, width)] for width in widths)],
        }
        args = [data, {"title.text": title(bx, by, LEGEND)}, [0, 2, *sentences]]
        by_shape.append({"label": f"{bx} × {by}", "method": "update", "args": args})
    by_width = [
        {
            "label": f"{n:,}",
            "method": "update",
            "args": [{"visible": [n == other for other in widths]}, {}, sentences],
        }
        for n in widths
    ]
    look = {
        "yanchor": "top", "pad": {"t": 20}, "bgcolor": "#E6E6E6", "activebgcolor": plots.PALETTE[3],
        "bordercolor": plots.TEXT_COLOUR,
    }  # fmt: skip
    fig.update_layout(
        height=620,
        margin={"t": 80, "b": 230},
        sliders=[
            {
                "active": shapes.index((block_x, block_y)),
                "y": -0.16,
                "currentvalue": {"prefix": "block, x × y: "},
                "steps": by_shape,
                **look,
            },
            {
                "active": list(widths).index(width),
                "y": -0.5,
                "currentvalue": {"prefix": "columns, N: "},
                "steps": by_width,
                **look,
            },
        ],
    )
    return fig.update_yaxes(range=[N_ROWS - 0.4, -8])
