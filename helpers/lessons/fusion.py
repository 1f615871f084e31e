"""Count the memory traffic of a chain of torch operations, and draw who holds which part of a row: for lesson 06.

The count is of what each operation *must* move when it runs as a kernel of its own: every element of every distinct
input read once, every element of every output written once. What a kernel moves beyond that (a second pass over its
input, say) shows in the hardware counters, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    import torch

# In-place operations that overwrite their first argument without reading it.
_OVERWRITES = ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_")
# They hand out memory or metadata and touch no element.
_NOTHING_MOVED = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach")


def count_traffic(fn: Callable[..., Any], *inputs: Any) -> pd.DataFrame:
    """Run `fn(*inputs)` once and count what every operation of torch's dispatcher reads and writes.

    Tensors on the "meta" device have shapes and no memory, so that any size is counted at once and nothing is computed.

    Args:
        fn: any function of tensors.
        *inputs: its arguments.

    Returns:
        A row for each operation, in order: `op` (such as "aten.sub.Tensor"), `reads` and `writes` (floating-point
        elements), `index_writes` (elements of integer and boolean outputs), `read_bytes` and `written_bytes` (everything).
        A view moves nothing and has no row. An input that is broadcast or expanded counts with the elements it really
        has, and one that is given twice counts once.

    Raises:
        ValueError: `fn` ran no operation that moves anything.
    """
    import pandas as pd
    from torch.utils._python_dispatch import TorchDispatchMode

    rows: list[dict[str, Any]] = []

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            row = _row(func, args, kwargs or {}, result)
            if row is not None:
                rows.append(row)
            return result

    with Count():
        fn(*inputs)
    if not rows:
        raise ValueError("count_traffic: the function ran no torch operation that reads or writes a tensor.")
    columns = ["op", "reads", "writes", "index_writes", "read_bytes", "written_bytes"]
    return pd.DataFrame(rows, columns=columns)


def _row(func: Any, args: tuple, kwargs: Mapping[str, Any], result: Any) -> dict[str, Any] | None:
    """What one call of an operator moved; None where it moved nothing."""
    name = func._schema.name.removeprefix("aten::")
    if name in _NOTHING_MOVED or func.is_view:
        return None
    read: dict[tuple, torch.Tensor] = {}
    written: dict[int, torch.Tensor] = {}
    for position, argument in enumerate(func._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        tensors = list(_tensors(value))
        overwritten = argument.alias_info is not None and argument.alias_info.is_write
        if overwritten:
            written |= {id(t): t for t in tensors}
        # `out=` is written only; so is the first argument of copy_ and its like
        if not overwritten or not (argument.kwarg_only or name in _OVERWRITES):
            read |= {_identity(t): t for t in tensors}
    for returned, value in zip(func._schema.returns, _as_tuple(result, func), strict=True):
        if returned.alias_info is None:
            written |= {id(t): t for t in _tensors(value)}
    if not read and not written:
        return None
    floating = [t for t in written.values() if t.is_floating_point() or t.is_complex()]
    others = [t for t in written.values() if not (t.is_floating_point() or t.is_complex())]
    return {
        "op": str(func),
        "reads": sum(_elements(t) for t in read.values() if t.is_floating_point() or t.is_complex()),
        "writes": sum(_elements(t) for t in floating),
        "index_writes": sum(_elements(t) for t in others),
        "read_bytes": sum(_elements(t) * t.element_size() for t in read.values()),
        "written_bytes": sum(_elements(t) * t.element_size() for t in written.values()),
    }


def _as_tuple(result: Any, func: Any) -> tuple:
    return result if isinstance(result, tuple) and len(func._schema.returns) > 1 else (result,)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def _identity(t: torch.Tensor) -> tuple:
    """Equal for two tensors of the same elements; meta tensors have no address, so their storage object decides."""
    return t.untyped_storage()._cdata, t.storage_offset(), tuple(t.shape), t.stride()


def _elements(t: torch.Tensor) -> int:
    """The elements that a tensor really has: an expanded dimension (stride 0) repeats what is there once."""
    n = 1
    for size, stride in zip(t.shape, t.stride(), strict=True):
        n *= size if stride or size == 0 else 1
    return n


def in_words(n_elements: int, n_rows: int, n_cols: int) -> str:
    """A count in terms of M rows and N columns: 5 · 12 + 2 · 3 elements of a 3 × 4 matrix are "5MN + 2M".

    Raises:
        ValueError: a matrix without elements, of which nothing is a multiple.
    """
    if n_rows < 1 or n_cols < 1:
        raise ValueError(f"in_words: a matrix of {n_rows} × {n_cols} has no elements to count in.")
    matrices, rest = divmod(n_elements, n_rows * n_cols)
    columns, single = divmod(rest, n_rows)
    parts = [(matrices, "MN"), (columns, "M"), (single, "")]
    words = [(f"{k}{unit}" if k > 1 or not unit else unit) for k, unit in parts if k]
    return " + ".join(words) or "0"


def traffic_table(counted: pd.DataFrame, n_rows: int, n_cols: int) -> pd.DataFrame:
    """A count in terms of M and N, with a row for the total: columns op, reads, writes, indices written, bytes (GB)."""
    import pandas as pd

    numbers = ["reads", "writes", "index_writes", "read_bytes", "written_bytes"]
    total = pd.DataFrame([{"op": "together", **counted[numbers].sum().to_dict()}])
    rows = []
    for row in pd.concat([counted, total], ignore_index=True).itertuples():
        cells = {
            heading: in_words(int(n), n_rows, n_cols)
            for heading, n in (
                ("reads", row.reads),
                ("writes", row.writes),
                ("int64 written", row.index_writes),
            )
        }
        rows.append(
            {"operation": row.op} | cells | {"bytes (GB)": (row.read_bytes + row.written_bytes) / 1e9}
        )
    return pd.DataFrame(rows)


# ------------------------------------------------------------------------------------------------- who holds what


def draw_holders(n_rows: int = 3, n_cols: int = 6, block: int = 2, parts: int = 3) -> go.Figure:
    """Three ways to give rows to programs, side by side: a row in one block, a row in steps, a row shared.

    Args:
        n_rows: rows of the small matrix that is drawn.
        n_cols: its columns.
        block: columns of one step of the online kernel.
        parts: programs that share a row.

    Raises:
        ValueError: columns that do not divide into the steps or the parts.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    from helpers import plots

    if n_cols % block or n_cols % parts:
        raise ValueError(
            f"draw_holders: {n_cols} columns divide neither into steps of {block} nor {parts} parts."
        )
    padded = 1 << (n_cols - 1).bit_length()
    titles = ("one block, padded", "online: in steps, twice", "split: shared")
    fig = make_subplots(rows=1, cols=3, subplot_titles=titles, horizontal_spacing=0.06)

    def piece(panel: int, row: int, start: float, width: float, program: int, text: str, **look: Any) -> None:
        colour = look.pop("color", plots.PALETTE[program % 7])
        fig.add_trace(
            go.Bar(
                orientation="h", y=[row], base=[start], x=[width], width=0.8, text=[text], textangle=0,
                textposition="inside", insidetextanchor="middle", hoverinfo="skip", showlegend=False,
                marker={"color": colour, "line": {"color": "white", "width": 2}, **look},
            ),
            row=1, col=panel,
        )  # fmt: skip

    for row in range(n_rows):
        piece(1, row, 0, n_cols, row, f"program {row}")
        piece(1, row, n_cols, padded - n_cols, row, "−∞", color="#C8C8C8")
        for step in range(n_cols // block):
            piece(2, row, step * block, block, row, f"{row}, step {step}", opacity=0.55 + 0.45 * (step % 2))
        for part in range(parts):
            width = n_cols / parts
            piece(3, row, part * width, width, row * parts + part, f"{row * parts + part}")
        for part in range(1, parts):
            fig.add_annotation(
                x=part * n_cols / parts, y=row, text="⇄", showarrow=False, font={"size": 20, "color": "white"},
                bgcolor="rgba(60,60,60,0.85)", row=1, col=3,
            )  # fmt: skip
    plots.layout(fig, "Which program holds what", height=320)
    note = "colour: the program · ⇄: what neighbours exchange is two numbers, a maximum and a sum"
    fig.update_layout(title_text=f"Which program holds what<br><sub>{note}</sub>", barmode="overlay")
    fig.update_layout(margin={"t": 110})
    fig.update_xaxes(title_text="columns", range=[0, padded], showgrid=False, dtick=block)
    fig.update_yaxes(range=[n_rows - 0.4, -0.6], tickvals=list(range(n_rows)), title_text="", showgrid=False)
    fig.update_yaxes(title_text="row", col=1)
    return fig


# ---------------------------------------------------------------------------------------------------- the league


def league_gaps(league: pd.DataFrame) -> pd.DataFrame:
    """Our time beside the fastest other contestant's at each point, so that a chart can say where a peer wins.

    Args:
        league: the table of `benchmarks/kernels.py` (columns `helpers.timing.league.COLUMNS`).

    Returns:
        A row for each point at which we and a peer were timed: `op`, `dtype`, `n_rows`, `n_cols`, `best_peer`,
        `peer_over_ours` (its time over ours: above 1, ours is faster) with its 95 % interval in `low` and `high`, and
        `fastest`: "ours", the peer's name, or "no difference seen" where the interval holds 1.

    Raises:
        ValueError: a table without us or without a peer.
    """
    import pandas as pd

    from helpers.timing.league import COPY, OURS

    points = ["op", "dtype", "n_rows", "n_cols"]
    timed = league[league.ours_ratio.notna()]
    rows = []
    for point, group in timed.groupby(points, sort=False):
        peers = group[~group.contestant.isin([OURS, COPY])]
        if peers.empty or not group.contestant.eq(OURS).any():
            continue
        best = peers.loc[peers.ours_ratio.idxmin()]
        tie = best.ratio_low <= 1 <= best.ratio_high
        fastest = "no difference seen" if tie else OURS if best.ours_ratio > 1 else best.contestant
        rows.append(
            dict(zip(points, point, strict=True))
            | {"best_peer": best.contestant, "peer_over_ours": best.ours_ratio}
            | {"low": best.ratio_low, "high": best.ratio_high, "fastest": fastest}
        )
    if not rows:
        raise ValueError("league_gaps: the table has no point at which both ours and a peer were timed.")
    return pd.DataFrame(rows)
