"""A batch's figures over its grid: a line over one axis, a heat map over two, otherwise nothing: a table serves then.

The drawings are `helpers.plots`', as data for the copy of plotly.min.js that a batch's pages share.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from helpers import plots
from helpers.workshop.batch.figures import is_number, unit_of
from helpers.workshop.batch.table import Group

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_MOST_LINES = len(plots.PALETTE)  # in one drawing
_MOST_CELLS = 100  # of a heat map whose values are printed in them
_LEAST_FULL = 0.5  # of a heat map's cells: two columns of a list of points make no plane
_FIGURE, _VALUE = "_figure", "_value"  # columns that no parameter is called like
_HEIGHT = 360  # pixels, of two drawings that stand side by side
_LOG_FROM = 16  # times between the ends of an axis that is logarithmic


def drawings(group: Group) -> list[tuple[str, str]]:
    """A group's drawings, each as its title and as JSON for `Plotly.newPlot`; none where its axes are not one or two."""
    names = [n for n in group.names if any(is_number(v) for v in group.values(n))]
    if "verdict" in group.axes:  # a column of `helpers.plots`
        return []
    if len(group.axes) == 1:
        found = [(_title(some, group), _over_one(group, some)) for some in _together(names)]
    elif len(group.axes) == 2 and _fills_a_plane(group):
        found = [(_title([name], group), _over_two(group, name)) for name in names]
    else:
        return []
    return [(title, _json(figure)) for title, figure in found]


def _together(names: Sequence[str]) -> list[list[str]]:
    """Names of figures of one unit, which share a drawing."""
    by_unit: dict[str, list[list[str]]] = {}
    for name in names:
        drawn = by_unit.setdefault(unit_of(name) or name, [[]])
        if len(drawn[-1]) == _MOST_LINES:
            drawn.append([])
        drawn[-1].append(name)
    return [some for drawn in by_unit.values() for some in drawn]


def _title(names: Sequence[str], group: Group) -> str:
    what = plots.axis_title(names[0]) if len(names) == 1 else unit_of(names[0])
    return f"{what} over {' and '.join(group.axes)}"


def _over_one(group: Group, names: Sequence[str]) -> go.Figure:
    axis = group.axes[0]
    frame = _long(group, names)
    title = _heading(group, names)
    y_title = plots.axis_title(names[0]) if len(names) == 1 else unit_of(names[0])
    if not all(is_number(run.parameters.get(axis)) for run in group.runs):
        frame[axis] = frame[axis].map(_word)
        series = _FIGURE if len(names) > 1 else None
        return plots.bars(
            frame, axis, _VALUE, series, title=title, x_title=axis, y_title=y_title, value_format=",.4g", height=_HEIGHT,
        )  # fmt: skip
    values = frame[axis]
    log = min(values) > 0 and max(values) / min(values) >= _LOG_FROM
    return plots.throughput(
        frame, axis, _FIGURE, _VALUE, title=title, x_title=axis, y_title=y_title, log_x=bool(log), height=_HEIGHT,
    )  # fmt: skip


def _over_two(group: Group, name: str) -> go.Figure:
    y, x = group.axes
    frame = _long(group, [name])
    for axis in (x, y):
        if not all(is_number(v) for v in frame[axis]):
            frame[axis] = frame[axis].map(_word)
    z = name if name not in frame else _VALUE
    frame = frame.rename(columns={_VALUE: z})  # the colours' title
    least = frame[z].min()
    crowded = len(frame) > _MOST_CELLS
    height = 480 if crowded else max(_HEIGHT, 160 + frame[y].nunique() * 32)
    heading = _heading(group, [name])
    figure = plots.heatmap(
        frame, x, y, z, title=heading, z_format=",.4g", from_zero=bool(least >= 0), height=height
    )
    figure.update_layout(xaxis_title_text=x, yaxis_title_text=y)
    if crowded:
        figure.update_traces(texttemplate="")
    return figure


def _fills_a_plane(group: Group) -> bool:
    points = [tuple(_word(run.parameters.get(axis)) for axis in group.axes) for run in group.runs]
    cells = len({x for x, _ in points}) * len({y for _, y in points})
    return len(set(points)) == len(points) >= _LEAST_FULL * cells


def _long(group: Group, names: Sequence[str]) -> pd.DataFrame:
    """A row for each point and figure: the axes, its name, its value, and a verdict where it has no value."""
    import pandas as pd

    rows = []
    for run in group.runs:
        found = group.at(run)
        for name in names:
            figure = found.get(name)
            value = figure.here if figure else None
            verdict = "ok"
            if not figure:
                verdict = "no value" if run.status in ("ok", "kept") else run.status
            elif figure.nearest:
                verdict = "not recorded"
            elif not is_number(value):
                verdict = "a text"
            at = {axis: run.parameters.get(axis) for axis in group.axes}
            number = float(value) if verdict == "ok" else float("nan")
            rows.append({**at, _FIGURE: plots.axis_title(name), _VALUE: number, "verdict": verdict})
    return pd.DataFrame(rows)


def _heading(group: Group, names: Sequence[str]) -> str:
    """A drawing's title with, below it, where its figures come from."""
    what = plots.axis_title(names[0]) if len(names) == 1 else unit_of(names[0])
    sources = dict.fromkeys(
        f.source for run in group.runs for n, f in group.at(run).items() if n in names and f.source
    )
    says = html.escape("; ".join(sources))
    return html.escape(what) + (f"<br><sub>{says}</sub>" if says else "")


def _word(value: Any) -> str:
    return value if isinstance(value, str) else "default" if value is None else repr(value)


def _json(figure: go.Figure) -> str:
    plain = json.loads(figure.to_json())
    plain["config"] = {"responsive": True, "displaylogo": False}
    return json.dumps(plain, separators=(",", ":"))
