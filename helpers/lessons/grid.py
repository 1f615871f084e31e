"""Shows the grid of a launch: which block and thread wrote each element, and how many memory sectors each
warp's accesses touch.

The numbers come from a traced run on the host (`helpers.cuda.emulator.checked`): they are counted from the
addresses that the kernel really used, not derived from a formula. They show what a warp requests. What these
requests cost, and how caches and the memory controller handle them, can only be measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helpers import plots
from helpers.cuda.emulator import checked

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import plotly.graph_objects as go
    from numpy.typing import ArrayLike, DTypeLike

SECTOR = 32
_USES = ("read", "write", "update", "atomic", "use")
# The largest number of elements in a plot.
_MAX_ELEMENTS = 4096


@dataclass(frozen=True)
class GridTrace:
    """A traced run.

    Attributes:
        accesses: A DataFrame with a row per access to a tensor, in the order of execution: kernel, launch,
            argument, access ("read", "write", "update", "atomic"), line, expression, element (the offset from
            the argument's pointer in units of the access), n_bytes, byte (the offset in bytes), block_x …
            block_z, thread_x … thread_z, warp, lane, and `request`. Accesses with the same request number are
            made by one warp at the same time.
        blocks: The block size (x, y, z) of each launch.
        grids: The grid size (x, y, z) of each launch.
        result: The return value of the traced call.
    """

    accesses: pd.DataFrame
    blocks: tuple[tuple[int, int, int], ...]
    grids: tuple[tuple[int, int, int], ...]
    result: object = field(repr=False, default=None)

    def __repr__(self) -> str:
        kernels = ", ".join(dict.fromkeys(self.accesses["kernel"])) or "no access"
        return (
            f"GridTrace({kernels}: {len(self.accesses):,} accesses, "
            f"{self.accesses['request'].nunique():,} requests)"
        )

    def sectors(self) -> pd.DataFrame:
        """Counts the requests and 32-byte sectors of each access in the source.

        Returns:
            A DataFrame with a row per kernel, line and expression: n_requests, sectors_per_request (mean),
            most (the largest number of sectors in one request), needed (the mean number of sectors that the
            bytes of a request would fill) and bytes_used_percent.
        """
        import numpy as np
        import pandas as pd

        a = self.accesses
        keys = ["kernel", "line", "expression", "argument", "access"]
        if a.empty:
            return pd.DataFrame(columns=[*keys, "n_requests", "sectors_per_request", "most", "needed"])
        first, last = a["address"] // SECTOR, (a["address"] + a["n_bytes"] - 1) // SECTOR
        rows = [a[[*keys, "request"]].assign(sector=first)]
        for step in range(1, int((last - first).max()) + 1):  # a 16-byte access can touch two sectors
            wide = last - first >= step
            rows.append(a.loc[wide, [*keys, "request"]].assign(sector=first[wide] + step))
        touched = pd.concat(rows).groupby([*keys, "request"], sort=False)["sector"].nunique()
        used = (
            a.drop_duplicates(["request", "byte", "n_bytes"])
            .groupby([*keys, "request"], sort=False)["n_bytes"]
            .sum()
        )
        per_request = pd.DataFrame({"touched": touched, "used": used}).reset_index()
        per_request["needed"] = np.ceil(per_request["used"] / SECTOR)
        found = per_request.groupby(keys, sort=False).agg(
            n_requests=("touched", "size"),
            sectors_per_request=("touched", "mean"),
            most=("touched", "max"),
            needed=("needed", "mean"),
            touched=("touched", "sum"),
            used=("used", "sum"),
        )
        found["bytes_used_percent"] = 100 * found["used"] / (SECTOR * found["touched"])
        return found.drop(columns=["touched", "used"]).reset_index()

    def sectors_per_request(self, argument: str, access: str | None = None) -> float:
        """Returns the mean number of sectors over all requests that touch an argument.

        Raises:
            ValueError: The run has no access to an argument of that name.
        """
        table = self.sectors()
        matching = table[(table["argument"] == argument) & ((table["access"] == access) | (access is None))]
        self._require_access(matching, argument)
        return float(
            (matching["sectors_per_request"] * matching["n_requests"]).sum() / matching["n_requests"].sum()
        )

    def writers(self, argument: str) -> pd.DataFrame:
        """Returns which thread wrote each element of an argument last.

        The columns are element, block_x … thread_z, warp, lane, and n_writes, the number of writes to the
        element.

        Raises:
            ValueError: The run wrote nothing to an argument of that name.
        """
        a = self.accesses
        matching = a[(a["argument"] == argument) & (a["access"] != "read")]
        self._require_access(matching, argument)
        columns = ["element", *_COORDINATES, "warp", "lane"]
        last = matching.drop_duplicates("element", keep="last")[columns].set_index("element")
        last["n_writes"] = matching.groupby("element").size()
        return last.sort_index().reset_index()

    def never_written(self, argument: str, n: int) -> list[int]:
        """Returns the elements from 0 to n - 1 of an argument that no thread wrote."""
        return sorted(set(range(n)) - set(self.writers(argument)["element"]))

    def draw(
        self, argument: str, shape: tuple[int, int], *, title: str = "", corner: tuple[int, int] | None = None
    ) -> go.Figure:
        """Draws which warp wrote each element of a matrix.

        Each warp has a color; dark lines surround blocks, and white lines separate sectors.

        Args:
            argument: The name of the argument that was written.
            shape: The (rows, columns) of the matrix that it points to. Writes past its end are drawn below a
                red line.
            title: The title, by default the kernel and its block size.
            corner: The (rows, columns) to show, by default all. At most 4,096 elements can be shown.

        Raises:
            ValueError: Nothing was written to the argument, or the matrix is too large to draw.
        """
        return draw_writers(self, argument, shape, title=title, corner=corner)

    def _require_access(self, rows, argument: str) -> None:
        if not len(rows):
            available = ", ".join(sorted(set(self.accesses["argument"]))) or "none"
            raise ValueError(
                f"The traced run has no such access to {argument!r}. It accessed these arguments: "
                f"{available}."
            )


_COORDINATES = ("block_x", "block_y", "block_z", "thread_x", "thread_y", "thread_z")


def trace(run: Callable[[], object]) -> GridTrace:
    """Traces the accesses to tensors while `run` launches kernels of a module built with `device="emulator"`.

    Raises:
        ValueError: `run` launched kernels of no such module, or of several modules.
        helpers.cuda.emulator.checked.EmulatorError: The emulator found an error, as in any run on the host.
    """
    import numpy as np
    import pandas as pd

    raw = checked.record(run)
    a = raw.accesses
    grids = np.array([g for _, g, _, _ in raw.launches], dtype=np.int64)
    blocks = np.array([b for _, _, b, _ in raw.launches], dtype=np.int64)
    launch = a["launch"].astype(np.int64)
    block, thread = a["block"].astype(np.int64), a["thread"].astype(np.int64)
    gx, gy = grids[launch, 0], grids[launch, 1]
    bx, by = blocks[launch, 0], blocks[launch, 1]
    site, size = a["site"].astype(np.int64), a["size"].astype(np.int64)
    lines = {s: (-s, "") if s < 0 else raw.sites[s] for s in np.unique(site).tolist()}
    names = [(kernel, parameters) for kernel, _, _, parameters in raw.launches]
    arguments = {
        (n, i): names[n][1][i] if i < len(names[n][1]) else f"argument {i}"
        for n, i in {*zip(launch.tolist(), a["argument"].tolist(), strict=True)}
    }
    table = pd.DataFrame(
        {
            "launch": launch,
            "kernel": [names[n][0] for n in launch.tolist()],
            "argument": [arguments[key] for key in zip(launch.tolist(), a["argument"].tolist(), strict=True)],
            "access": np.array(_USES)[a["use"]],
            "line": [lines[s][0] for s in site.tolist()],
            "expression": [lines[s][1] for s in site.tolist()],
            "element": a["offset"] // size,
            "n_bytes": size,
            "byte": a["offset"],
            "address": a["offset"] + a["phase"],
            "block_x": block % gx,
            "block_y": block // gx % gy,
            "block_z": block // (gx * gy),
            "thread_x": thread % bx,
            "thread_y": thread // bx % by,
            "thread_z": thread // (bx * by),
            "warp": thread // 32,
            "lane": thread % 32,
            "site": site,
        }
    )
    # Lanes that execute the same place in the source for the same number of times do so in one request.
    execution = pd.DataFrame({"launch": launch, "block": block, "thread": thread, "site": site})
    execution["visit"] = execution.groupby(["launch", "block", "thread", "site"], sort=False).cumcount()
    execution["warp"] = execution["thread"] // 32
    table["request"] = execution.groupby(["launch", "block", "warp", "site", "visit"], sort=False).ngroup()
    sizes = tuple(tuple(map(int, b)) for b in blocks), tuple(tuple(map(int, g)) for g in grids)
    return GridTrace(table, *sizes, raw.result)


def draw_writers(
    traced: GridTrace,
    argument: str,
    shape: Sequence[int],
    *,
    title: str = "",
    corner: Sequence[int] | None = None,
) -> go.Figure:
    """See `GridTrace.draw`."""
    n_rows, n_cols = shape
    area = _shown_area(traced.writers(argument), n_rows, n_cols, corner)
    n_bytes = int(traced.accesses.loc[traced.accesses["argument"] == argument, "n_bytes"].iloc[0])
    fig = _color_map(area)
    lines = [*_sector_lines(area, n_cols, n_bytes), *_block_lines(area)]
    if area.n_rows > n_rows:
        right = area.n_cols - 0.5
        lines.append(_line(-0.5, right, n_rows - 0.5, n_rows - 0.5, 4, "#D55E00"))
        fig.add_annotation(
            x=right, y=n_rows, xanchor="right", text="behind the matrix", showarrow=False, bgcolor="white"
        )
    fig.update_layout(shapes=lines)
    bx, by, bz = traced.blocks[-1]
    size = f"{bx} × {by}" + (f" × {bz}" if bz > 1 else "")
    request_note = f"{traced.sectors_per_request(argument):.3g} sectors per request"
    note = f"color: warp · white line: 32-byte sector · dark line: block · {request_note}"
    title = title or f"{traced.accesses['kernel'].iloc[-1]}, blocks of {size}"
    plots.layout(fig, title, "column", "row", note=note, height=90 + 14 * min(area.n_rows, 40) + 60)
    fig.update_xaxes(showgrid=False, zeroline=False)
    return fig.update_yaxes(showgrid=False, zeroline=False, range=[area.n_rows - 0.5, -0.5])


def draw_requests(traces: Mapping[str, GridTrace], argument: str, *, title: str = "") -> go.Figure:
    """Draws what one warp, the first one of block 0, loads: a row per request, and a color per lane.

    Args:
        traces: Labels and their traced runs, which are drawn below one another.
        argument: The argument whose reads are drawn.
        title: The title of the plot.

    Raises:
        ValueError: A run didn't read an argument of that name.
    """
    import numpy as np
    import plotly.graph_objects as go

    rows: list[tuple[str, pd.DataFrame]] = []
    for label, traced in traces.items():
        a = traced.accesses
        matching = a[(a["argument"] == argument) & (a["access"] == "read")]
        traced._require_access(matching, argument)
        first = matching[(matching[["block_x", "block_y", "block_z", "warp"]] == 0).all(axis=1)]
        # The source of a square reads its element twice, but the compiler loads it once.
        first = first.drop_duplicates(["thread_x", "thread_y", "thread_z", "byte"])
        for number, (_, request) in enumerate(first.groupby("request"), 1):
            rows.append((f"{label}, load {number}", request))
    last = max(int((request["byte"] + request["n_bytes"]).max()) for _, request in rows)
    lane = np.full((len(rows), last // 4), np.nan)
    for line, (_, request) in zip(lane, rows, strict=True):
        for byte, n_bytes, number in request[["byte", "n_bytes", "lane"]].itertuples(index=False):
            line[byte // 4 : (byte + n_bytes) // 4] = number
    labels = [f"{label}: {_sectors_of(request)} sectors" for label, request in rows]
    hover = "float %{x}<br>thread %{z}<extra></extra>"
    style = {"colorscale": "Viridis", "zmin": 0, "zmax": 31, "hoverongaps": False, "hovertemplate": hover}
    fig = go.Figure(go.Heatmap(z=lane, y=labels, colorbar={"title": "thread"}, **style))
    parts = [_line(x - 0.5, x - 0.5, -0.5, len(rows) - 0.5, 1, "white") for x in range(8, last // 4, 8)]
    fig.update_layout(shapes=parts)
    title = title or "One warp's loads"
    note = "a row: one load of the warp · white line: 32-byte sector"
    plots.layout(fig, title, "float in memory", "", note=note, height=150 + 26 * len(rows))
    fig.update_xaxes(showgrid=False, zeroline=False)
    return fig.update_yaxes(showgrid=False, zeroline=False, autorange="reversed")


def _sectors_of(request: pd.DataFrame) -> int:
    """Returns how many sectors a request touches."""
    touched = set()
    for address, n_bytes in request[["address", "n_bytes"]].itertuples(index=False):
        touched.update(range(address // SECTOR, (address + n_bytes - 1) // SECTOR + 1))
    return len(touched)


@dataclass(frozen=True)
class _Area:
    """The part of a matrix that a plot shows, starting at element (0, 0).

    Attributes:
        n_rows: The number of rows shown, including rows past the end of the matrix if they were written.
        n_cols: The number of columns shown.
        writers: A row per element that was written in this area, as in `GridTrace.writers`.
        row: The matrix rows of these elements as an int array.
        col: Their columns.
    """

    n_rows: int
    n_cols: int
    writers: pd.DataFrame
    row: np.ndarray
    col: np.ndarray

    def matrix(self, values: ArrayLike, empty: float, dtype: DTypeLike = None) -> np.ndarray:
        """Returns a matrix of the values, (n,) or (n, k), of the written elements, with `empty` for all
        others.
        """
        import numpy as np

        values = np.asarray(values)
        spread = np.full((self.n_rows, self.n_cols, *values.shape[1:]), empty, dtype)
        spread[self.row, self.col] = values
        return spread


def _shown_area(writers: pd.DataFrame, n_rows: int, n_cols: int, corner: Sequence[int] | None) -> _Area:
    element = writers["element"].to_numpy()
    row, col = element // n_cols, element % n_cols
    if corner is None:
        shown_rows, shown_cols = max(n_rows, int(row.max()) + 1), n_cols
    else:
        shown_rows, shown_cols = min(n_rows, corner[0]), min(n_cols, corner[1])
    if shown_rows * shown_cols > _MAX_ELEMENTS:
        raise ValueError(
            f"A plot shows at most {_MAX_ELEMENTS:,} elements, but this one would have "
            f"{shown_rows * shown_cols:,}; pass a smaller `corner`."
        )
    inside = (element >= 0) & (row < shown_rows) & (col < shown_cols)
    return _Area(shown_rows, shown_cols, writers[inside], row[inside], col[inside])


def _color_map(area: _Area) -> go.Figure:
    """Draws a color per warp, with the writer of an element as hover text.

    Elements that no thread wrote have no color, and their hover text says so.
    """
    import numpy as np
    import plotly.graph_objects as go

    writers = area.writers
    # Adjacent warps and blocks have different colors.
    warps = writers["warp"] + 2 * writers["block_x"] + 3 * writers["block_y"] + 5 * writers["block_z"]
    color = area.matrix(warps % 7, np.nan)
    scale = [((i + step) / 7, shade) for i, shade in enumerate(plots.PALETTE[:7]) for step in (0, 1)]
    style = {"colorscale": scale, "zmin": 0, "zmax": 6, "showscale": False, "hoverongaps": False}
    numbers, hover = _hover(area)
    fig = go.Figure(go.Heatmap(z=color, customdata=numbers, hovertemplate=hover, opacity=0.8, **style))
    unwritten = np.isnan(color)
    if unwritten.any():
        hover_unwritten = "element (%{y}, %{x})<br>nobody wrote it<extra></extra>"
        fig.add_heatmap(
            z=np.where(unwritten, 0.0, np.nan), hovertemplate=hover_unwritten, opacity=0.0, **style
        )
    return fig


def _hover(area: _Area) -> tuple[np.ndarray, str]:
    """Returns the writer of each element as numbers, (n_rows, n_cols, 10), and the template for Plotly's
    hover text.

    Storing numbers instead of a sentence per element keeps saved notebooks small.
    """
    import numpy as np

    columns = ["element", *_COORDINATES, "warp", "lane", "n_writes"]
    values = area.writers[columns].to_numpy()
    small = np.int16 if values.size == 0 or values.max() < 2**15 else np.int32
    at = {column: f"%{{customdata[{i}]}}" for i, column in enumerate(columns)}
    block, thread = (", ".join(at[f"{what}_{axis}"] for axis in "xyz") for what in ("block", "thread"))
    sentence = (
        f"element {at['element']}: (%{{y}}, %{{x}})<br>block ({block}), thread ({thread})<br>"
        f"warp {at['warp']}, lane {at['lane']}<br>writes: {at['n_writes']}<extra></extra>"
    )
    return area.matrix(values, 0, small), sentence


def _sector_lines(area: _Area, n_cols: int, n_bytes: int) -> list[dict]:
    """Returns white lines before the elements that start a sector.

    The matrix has `n_cols` elements of `n_bytes` bytes per row.
    """
    import numpy as np

    element = np.arange(area.n_rows)[:, None] * n_cols + np.arange(1, area.n_cols)
    begins = element * n_bytes % SECTOR == 0
    return [_line(c + 0.5, c + 0.5, r0 - 0.5, r1 + 0.5, 1, "white") for c, r0, r1 in _runs(begins)]


def _block_lines(area: _Area) -> list[dict]:
    """Returns dark lines between elements that different blocks wrote."""
    numbers = area.writers.groupby(["block_x", "block_y", "block_z"]).ngroup()
    block = area.matrix(numbers, -1, int)
    upright = [
        _line(c + 0.5, c + 0.5, r0 - 0.5, r1 + 0.5, 2, "#333333")
        for c, r0, r1 in _runs(block[:, 1:] != block[:, :-1])
    ]
    level = [
        _line(c0 - 0.5, c1 + 0.5, r + 0.5, r + 0.5, 2, "#333333")
        for r, c0, c1 in _runs((block[1:] != block[:-1]).T)
    ]
    return upright + level


def _line(x0: float, x1: float, y0: float, y1: float, width: int, color: str) -> dict:
    line = {"width": width, "color": color}
    return {"type": "line", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": line}


def _runs(marked) -> list[tuple[int, int, int]]:
    """Returns the vertical runs of true cells in a matrix: (column, first row, last row)."""
    import numpy as np

    found = []
    for c in range(marked.shape[1]):
        rows = np.flatnonzero(marked[:, c])
        for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
            if len(run):
                found.append((c, int(run[0]), int(run[-1])))
    return found
