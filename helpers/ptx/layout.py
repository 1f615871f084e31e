"""Which thread holds which element of a block, according to the TTGIR layout, as data and as a picture."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers import plots
from helpers.ptx.artifacts import Stages

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Tints of the palette's first colors on white: dark text is readable on them on any page.
_TINTS = ("#CFE3F1", "#FBE8C6", "#CDEBE0", "#F7D9C6")
_LAYOUT = re.compile(
    r"#blocked = .*sizePerThread = \[(\d+)\], threadsPerWarp = \[(\d+)\], warpsPerCTA = \[(\d+)\]"
)


@dataclass(frozen=True)
class Layout:
    """How the elements of a one-dimensional block are distributed over threads.

    Attributes:
        neighbours: adjacent elements per thread and round.
        num_warps: warps of 32 threads.
        n_elements: elements per block.
    """

    neighbours: int
    num_warps: int
    n_elements: int

    @property
    def n_threads(self) -> int:
        """Threads per block."""
        return 32 * self.num_warps

    @property
    def elements_per_round(self) -> int:
        """Elements per round."""
        return self.neighbours * self.n_threads

    @property
    def n_rounds(self) -> int:
        """Rounds per block; at least one, in which several threads may hold the same element."""
        return max(1, self.n_elements // self.elements_per_round)

    def columns(self, thread: int) -> list[int]:
        """Returns the elements that a thread holds, one per register, in order.

        Raises:
            ValueError: no such thread.
        """
        if not 0 <= thread < self.n_threads:
            raise ValueError(f"There is no thread {thread}; the block has threads 0 to {self.n_threads - 1}.")
        first = [self.elements_per_round * n + self.neighbours * thread for n in range(self.n_rounds)]
        return [(c + i) % self.n_elements for c in first for i in range(self.neighbours)]


def layout_of(stages: Stages) -> Layout:
    """Returns the layout of a Triton kernel with one-dimensional blocks.

    Raises:
        ValueError: the kernel is CUDA C++, or the layout has more dimensions.
    """
    text = stages.text("ttgir")
    match, sizes = _LAYOUT.search(text), re.findall(r"tensor<(\d+)x", text)
    if match is None or not sizes:
        raise ValueError(f"{stages.name} has no one-dimensional blocked layout; look at its TTGIR yourself.")
    return Layout(int(match[1]), int(match[3]), int(sizes[0]))


def draw_layout(stages: Stages, *, thread: int = 5) -> go.Figure:
    """Draws which thread holds which column: one line per round, one tint per warp, one thread's columns
    marked.

    Args:
        stages: a Triton kernel with one-dimensional blocks.
        thread: the thread whose columns are marked.

    Raises:
        ValueError: as in `layout_of`, or no such thread.
    """
    import plotly.graph_objects as go

    layout = layout_of(stages)
    elements = layout.columns(thread)
    width = min(layout.elements_per_round, layout.n_elements)
    warps = [c // layout.neighbours // 32 for c in range(width)]
    tints = [_TINTS[w % len(_TINTS)] for w in range(layout.num_warps)]
    steps = [[edge / layout.num_warps, tint] for w, tint in enumerate(tints) for edge in (w, w + 1)]
    words = [
        [f"column {n * width + c}: thread {c // layout.neighbours}, warp {w}" for c, w in enumerate(warps)]
        for n in range(layout.n_rounds)
    ]
    fig = go.Figure(
        go.Heatmap(
            z=[warps] * layout.n_rounds,
            x=list(range(width)),
            y=list(range(layout.n_rounds)),
            text=words,
            colorscale=steps,
            zmin=-0.5,
            zmax=layout.num_warps - 0.5,
            showscale=False,
            ygap=3,
            hovertemplate="%{text}<extra></extra>",
        )
    )
    side = "right" if elements[0] % width < 0.8 * width else "left"
    runs = elements[:: layout.neighbours]
    names = [f"{c}" if layout.neighbours == 1 else f"{c} to {c + layout.neighbours - 1}" for c in runs]
    fig.add_trace(
        go.Scatter(
            x=[c % width for c in elements],
            y=[c // width for c in elements],
            mode="markers",
            marker={"symbol": "square", "size": 9 if layout.neighbours == 1 else 5, "color": "#111111"},
            hoverinfo="skip",
            showlegend=False,
        )
    )
    fig.add_trace(
        go.Scatter(
            x=[c % width + (layout.neighbours if side == "right" else -1) for c in runs],
            y=[c // width for c in runs],
            mode="text",
            text=[f"  {name}  " for name in names],
            textposition=f"middle {side}",
            textfont={"color": "#111111", "size": 13},
            hoverinfo="skip",
            showlegend=False,
        )
    )
    many = "elements" if len(elements) > 1 else "element"
    title = f"The {len(elements)} {many} that thread {thread} holds, one per register"
    note = f"{layout.n_elements:,} columns, {layout.num_warps} warps (one tint each) · {stages.name}"
    plots.layout(
        fig,
        title,
        "column, counted from the beginning of the round",
        "round",
        note=note,
        height=150 + 32 * layout.n_rounds,
    )
    fig.update_yaxes(autorange="reversed", dtick=1, showgrid=False)
    step = 32 * layout.neighbours * -(-layout.num_warps // 8)  # where a warp begins
    fig.update_xaxes(showgrid=False, range=[-0.5, width - 0.5], tickvals=list(range(0, width, step)))
    return fig
