"""Draw a batch's figures over its grid.

One axis gives a line, two give a heat map, and three give one heat map per value of the third axis. Anything
else is left to a table. The drawings are those of `helpers.plots`, as data for the copy of plotly.min.js that
the pages of a batch share.
"""

from __future__ import annotations

import dataclasses
import html
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from helpers import plots
from workbook.batch.findings import is_number, unit_of
from workbook.batch.table import Group

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_MOST_LINES = len(plots.PALETTE)  # in one drawing
_MOST_CELLS = 100  # of a heat map whose values are printed in them
_MOST_PANELS = 12  # heat maps of one figure
_MIN_FULL = 0.5  # share of a heat map's cells that have a point; a list of points on a diagonal has fewer
_FIGURE, _VALUE = "_figure", "_value"  # columns; no parameter has such a name
_HEIGHT = 360  # pixels
_LOG_FROM = 16  # the ratio of its ends from which an axis is logarithmic


def drawings(group: Group) -> list[tuple[str, str]]:
    """Draw each figure of a group over the group's axes.

    Returns:
        For each drawing its title and its JSON for `Plotly.newPlot`; nothing if the axes can't be drawn.
    """
    names = [n for n in group.names if any(is_number(v) for v in group.values(n))]
    if "verdict" in group.axes:  # a column of `helpers.plots`
        return []
    if len(group.axes) == 1:
        found = [(_title(unit_names, group), _over_one(group, unit_names)) for unit_names in _together(names)]
    elif len(group.axes) == 2 and _fills_a_plane(group):
        found = [(_title([name], group), _over_two(group, name)) for name in names]
    elif len(group.axes) == 3:
        found = _over_three(group, names)
    else:
        return []
    return [(title, _json(figure)) for title, figure in found]


def _together(names: Sequence[str]) -> list[list[str]]:
    """Group figures by unit; those of one unit share a drawing."""
    by_unit: dict[str, list[list[str]]] = {}
    for name in names:
        chunks = by_unit.setdefault(unit_of(name) or name, [[]])
        if len(chunks[-1]) == _MOST_LINES:
            chunks.append([])
        chunks[-1].append(name)
    return [chunk for chunks in by_unit.values() for chunk in chunks]


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
            frame,
            axis,
            _VALUE,
            series,
            title=title,
            x_title=axis,
            y_title=y_title,
            value_format=",.4g",
            height=_HEIGHT,
        )
    values = frame[axis]
    log = min(values) > 0 and max(values) / min(values) >= _LOG_FROM
    return plots.throughput(
        frame,
        axis,
        _FIGURE,
        _VALUE,
        title=title,
        x_title=axis,
        y_title=y_title,
        log_x=bool(log),
        height=_HEIGHT,
    )


def _over_two(group: Group, name: str, panel: str = "", scale: Sequence[float] | None = None) -> go.Figure:
    """A heat map.

    Args:
        group: Points with two axes.
        name: The figure.
        panel: What is added to the title, or "".
        scale: The ends of the color scale; by default those of the values, or 0 as the lower one.
    """
    y, x = group.axes
    frame = _long(group, [name])
    for axis in (x, y):
        if not all(is_number(v) for v in frame[axis]):
            frame[axis] = frame[axis].map(_word)
    z = name if name not in frame else _VALUE
    frame = frame.rename(columns={_VALUE: z})  # the title of the color bar
    low, high = scale or _scale([group], name)
    too_dense = len(frame) > _MOST_CELLS
    height = 480 if too_dense else max(_HEIGHT, 160 + frame[y].nunique() * 32)
    title = _heading(group, [name], panel)
    figure = plots.heatmap(frame, x, y, z, title=title, z_format=",.4g", from_zero=False, height=height)
    figure.data[0].update(zmin=low, zmax=high)
    figure.update_layout(xaxis_title_text=x, yaxis_title_text=y)
    if too_dense:
        figure.update_traces(texttemplate="")
    return figure


def _scale(groups: Iterable[Group], name: str) -> tuple[float, float]:
    """The color scale for a figure: from 0 to its maximum, or from its minimum if that is negative."""
    values = [v for group in groups for v in group.values(name) if is_number(v)]
    return min([0, *values]), max(values)


def _over_three(group: Group, names: Sequence[str]) -> list[tuple[str, go.Figure]]:
    """For each figure a heat map per value of one axis, all with the same color scale."""
    panels = _panels(group)
    drawn = []
    for name in names if panels else ():
        scale = _scale(panels.values(), name)
        for panel, points in panels.items():
            title = f"{_title([name], points)}, {panel}"
            drawn.append((title, _over_two(points, name, panel, scale)))
    return drawn


def _panels(group: Group) -> dict[str, Group]:
    """Split a group by the axis with the fewest values; empty if the parts make no heat maps.

    Returns:
        `axis = value` to the points with that value, in order; their axes are the other two.
    """
    by_axis = {axis: {_word(run.parameters.get(axis)): None for run in group.runs} for axis in group.axes}
    split = min(reversed(group.axes), key=lambda axis: len(by_axis[axis]))
    others = tuple(axis for axis in group.axes if axis != split)
    panels = {}
    for value in by_axis[split]:
        runs = tuple(run for run in group.runs if _word(run.parameters.get(split)) == value)
        panels[f"{split} = {value}"] = dataclasses.replace(group, runs=runs, axes=others)
    drawable = len(panels) <= _MOST_PANELS and all(map(_fills_a_plane, panels.values()))
    return panels if drawable else {}


def _fills_a_plane(group: Group) -> bool:
    points = [tuple(_word(run.parameters.get(axis)) for axis in group.axes) for run in group.runs]
    cells = len({x for x, _ in points}) * len({y for _, y in points})
    return len(set(points)) == len(points) >= _MIN_FULL * cells


def _long(group: Group, names: Sequence[str]) -> pd.DataFrame:
    """A row per point and figure: the axes, its name, its value, and the reason if it has no value."""
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


def _heading(group: Group, names: Sequence[str], panel: str = "") -> str:
    """A drawing's title, with the origin of its figures below it."""
    what = plots.axis_title(names[0]) if len(names) == 1 else unit_of(names[0])
    what += f", {panel}" if panel else ""
    sources = dict.fromkeys(
        f.source for run in group.runs for n, f in group.at(run).items() if n in names and f.source
    )
    sources_line = html.escape("; ".join(sources))
    return html.escape(what) + (f"<br><sub>{sources_line}</sub>" if sources_line else "")


def _word(value: Any) -> str:
    return value if isinstance(value, str) else "default" if value is None else repr(value)


def _json(figure: go.Figure) -> str:
    spec = json.loads(figure.to_json())
    spec["config"] = {"responsive": True, "displaylogo": False}
    return json.dumps(spec, separators=(",", ":"))
