"""The grid, seen: which block and thread wrote each element, and how many sectors of memory each warp's access touches.

The figures come from a traced run on the host (`helpers.cuda.host.checked`): they are counted from the addresses that the
kernel really used, not derived from a formula. They say what a warp asks for. What that costs, and what caches and the
memory controller make of it, only a GPU can say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helpers.cuda.host import checked

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

SECTOR = 32
_USES = ("read", "write", "update", "atomic", "use")
_SHOWN = 4096  # elements of a picture


@dataclass(frozen=True)
class GridTrace:
    """A traced run.

    Attributes:
        accesses: one row an access to a tensor, in the order of execution: kernel, launch, argument, access ("read",
            "write", "update", "atomic"), line, expression, element (counted from where the argument points, in units of
            the access), n_bytes, byte (from the argument's start), block_x … block_z, thread_x … thread_z, warp, lane,
            and `request`: accesses of one number are made by one warp at once.
        blocks: (x, y, z) of each launch's blocks; grids: the same of the grids.
        result: what the traced call returned.
    """

    accesses: pd.DataFrame
    blocks: tuple[tuple[int, int, int], ...]
    grids: tuple[tuple[int, int, int], ...]
    result: object = field(repr=False, default=None)

    def __repr__(self) -> str:
        kernels = ", ".join(dict.fromkeys(self.accesses["kernel"])) or "no access"
        return f"GridTrace({kernels}: {len(self.accesses):,} accesses, {self.accesses['request'].nunique():,} requests)"

    def sectors(self) -> pd.DataFrame:
        """Requests and 32-byte sectors of each access in the text.

        Returns:
            A row for each kernel, line and expression: n_requests, sectors_per_request (mean), most (of one request),
            needed (the sectors that the bytes of a request would fill, mean) and bytes_used_percent.
        """
        import numpy as np
        import pandas as pd

        a = self.accesses
        keys = ["kernel", "line", "expression", "argument", "access"]
        if a.empty:
            return pd.DataFrame(columns=[*keys, "n_requests", "sectors_per_request", "most", "needed"])
        first, last = a["address"] // SECTOR, (a["address"] + a["n_bytes"] - 1) // SECTOR
        rows = [a[[*keys, "request"]].assign(sector=first)]
        for step in range(1, int((last - first).max()) + 1):  # an access of 16 bytes may touch two
            wide = last - first >= step
            rows.append(a.loc[wide, [*keys, "request"]].assign(sector=first[wide] + step))
        touched = pd.concat(rows).groupby([*keys, "request"], sort=False)["sector"].nunique()
        used = (
            a.drop_duplicates(["request", "byte", "n_bytes"])
            .groupby([*keys, "request"], sort=False)["n_bytes"]
            .sum()
        )
        each = pd.DataFrame({"touched": touched, "used": used}).reset_index()
        each["needed"] = np.ceil(each["used"] / SECTOR)
        found = each.groupby(keys, sort=False).agg(
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
        """The mean over all requests that touch an argument.

        Raises:
            ValueError: no access to an argument of that name.
        """
        table = self.sectors()
        mine = table[(table["argument"] == argument) & ((table["access"] == access) | (access is None))]
        self._need(mine, argument)
        return float((mine["sectors_per_request"] * mine["n_requests"]).sum() / mine["n_requests"].sum())

    def writers(self, argument: str) -> pd.DataFrame:
        """Who wrote each element of an argument last: element, block_x … thread_z, warp, lane, and how many writes it saw.

        Raises:
            ValueError: nothing was written to an argument of that name.
        """
        a = self.accesses
        mine = a[(a["argument"] == argument) & (a["access"] != "read")]
        self._need(mine, argument)
        columns = ["element", *_PLACES, "warp", "lane"]
        last = mine.drop_duplicates("element", keep="last")[columns].set_index("element")
        last["n_writes"] = mine.groupby("element").size()
        return last.sort_index().reset_index()

    def never_written(self, argument: str, n: int) -> list[int]:
        """The elements 0 … n - 1 of an argument that no thread wrote."""
        return sorted(set(range(n)) - set(self.writers(argument)["element"]))

    def draw(
        self, argument: str, shape: tuple[int, int], *, title: str = "", corner: tuple[int, int] | None = None
    ) -> go.Figure:
        """Draw who wrote each element of a matrix: a colour for each warp, lines around blocks, white lines between sectors.

        Args:
            argument: the written argument.
            shape: (rows, columns) of the matrix that it points to. What was written behind it is drawn below a red line.
            title: over the picture; by default the kernel and its blocks.
            corner: (rows, columns) to show; by default all, at most 4,096 elements.

        Raises:
            ValueError: as in `writers`, or a matrix too large to draw.
        """
        return draw_writers(self, argument, shape, title=title, corner=corner)

    def _need(self, rows, argument: str) -> None:
        if not len(rows):
            there = ", ".join(sorted(set(self.accesses["argument"]))) or "none"
            raise ValueError(
                f"The traced run has no such access to {argument!r}; its arguments are: {there}."
            )


_PLACES = ("block_x", "block_y", "block_z", "thread_x", "thread_y", "thread_z")


def trace(run: Callable[[], object]) -> GridTrace:
    """Call `run`, which launches kernels of one module built with `device="host"`, and keep their accesses to tensors.

    Raises:
        ValueError: no such launch.
        helpers.cuda.host.checked.HostCudaError: as in any run on the host.
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
    # Lanes that come to one place in the text for the same time go there together.
    who = pd.DataFrame({"launch": launch, "block": block, "thread": thread, "site": site})
    who["turn"] = who.groupby(["launch", "block", "thread", "site"], sort=False).cumcount()
    who["warp"] = who["thread"] // 32
    table["request"] = who.groupby(["launch", "block", "warp", "site", "turn"], sort=False).ngroup()
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
    import numpy as np
    import plotly.graph_objects as go

    from helpers import plots

    n_rows, n_cols = shape
    who = traced.writers(argument)
    element = who["element"].to_numpy()
    all_rows = max(n_rows, int(element.max()) // n_cols + 1) if corner is None else min(n_rows, corner[0])
    shown_cols = n_cols if corner is None else min(n_cols, corner[1])
    if all_rows * shown_cols > _SHOWN:
        raise ValueError(
            f"A picture shows at most {_SHOWN:,} elements, and this one has {all_rows * shown_cols:,}: name a `corner`."
        )
    row, col = element // n_cols, element % n_cols
    inside = (element >= 0) & (row < all_rows) & (col < shown_cols)
    who, row, col = who[inside], row[inside], col[inside]
    colour = np.full((all_rows, shown_cols), np.nan)
    colour[row, col] = (who["warp"] + 2 * who["block_x"] + 3 * who["block_y"] + 5 * who["block_z"]) % 7
    # Numbers, not sentences, for each element: a saved notebook stays small.
    facts = (
        "element",
        "block_x",
        "block_y",
        "block_z",
        "thread_x",
        "thread_y",
        "thread_z",
        "warp",
        "lane",
        "n_writes",
    )
    values = who[list(facts)].to_numpy()
    small = np.int16 if values.size == 0 or values.max() < 2**15 else np.int32
    numbers = np.zeros((all_rows, shown_cols, len(facts)), dtype=small)
    numbers[row, col] = values
    e, bx, by, bz, tx, ty, tz, warp, lane, n_writes = (f"%{{customdata[{i}]}}" for i in range(len(facts)))
    hover = (
        f"element {e}: (%{{y}}, %{{x}})<br>block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})<br>"
        f"warp {warp}, lane {lane}<br>writes: {n_writes}<extra></extra>"
    )
    scale = [((i + step) / 7, shade) for i, shade in enumerate(plots.PALETTE[:7]) for step in (0, 1)]
    look = {"colorscale": scale, "zmin": 0, "zmax": 6, "showscale": False}
    fig = go.Figure(
        go.Heatmap(z=colour, customdata=numbers, hovertemplate=hover, hoverongaps=False, opacity=0.8, **look)
    )
    unwritten = np.isnan(colour)
    if unwritten.any():
        nobody = "element (%{y}, %{x})<br>nobody wrote it<extra></extra>"
        fig.add_heatmap(
            z=np.where(unwritten, 0.0, np.nan), hovertemplate=nobody, hoverongaps=False, opacity=0.0, **look
        )

    lines: list[dict] = []

    def stroke(x0, x1, y0, y1, width, shade):
        lines.append(
            {"type": "line", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": {"width": width, "color": shade}}
        )

    n_bytes = int(traced.accesses.loc[traced.accesses["argument"] == argument, "n_bytes"].iloc[0])
    right = shown_cols - 0.5
    block = np.full((all_rows, shown_cols), -1)
    block[row, col] = who["block_x"] + 100_003 * who["block_y"] + 1_000_003 * who["block_z"]
    first = np.arange(all_rows)[:, None] * n_cols + np.arange(1, shown_cols)
    for c, r0, r1 in _runs(first * n_bytes % SECTOR == 0):
        stroke(c + 0.5, c + 0.5, r0 - 0.5, r1 + 0.5, 1, "white")
    for c, r0, r1 in _runs(block[:, 1:] != block[:, :-1]):
        stroke(c + 0.5, c + 0.5, r0 - 0.5, r1 + 0.5, 2, "#333333")
    for r, c0, c1 in _runs((block[1:] != block[:-1]).T):
        stroke(c0 - 0.5, c1 + 0.5, r + 0.5, r + 0.5, 2, "#333333")
    if all_rows > n_rows:
        stroke(-0.5, right, n_rows - 0.5, n_rows - 0.5, 4, "#D55E00")
        fig.add_annotation(
            x=right, y=n_rows, xanchor="right", text="behind the matrix", showarrow=False, bgcolor="white"
        )
    fig.update_layout(shapes=lines)
    bx, by, bz = traced.blocks[-1]
    size = f"{bx} × {by}" + (f" × {bz}" if bz > 1 else "")
    asked = f"{traced.sectors_per_request(argument):.3g} sectors a request"
    note = f"a colour: a warp · white line: 32-byte sector · dark line: block · {asked}"
    kernel = traced.accesses["kernel"].iloc[-1]
    plots.layout(
        fig,
        title or f"{kernel}, blocks of {size}",
        "column",
        "row",
        note=note,
        height=90 + 14 * min(all_rows, 40) + 60,
    )
    fig.update_xaxes(showgrid=False, zeroline=False)
    return fig.update_yaxes(showgrid=False, zeroline=False, range=[all_rows - 0.5, -0.5])


def _runs(marked) -> list[tuple[int, int, int]]:
    """The vertical runs of true cells in a matrix: (column, first row, last row)."""
    import numpy as np

    found = []
    for c in range(marked.shape[1]):
        rows = np.flatnonzero(marked[:, c])
        for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
            if len(run):
                found.append((c, int(run[0]), int(run[-1])))
    return found
