"""What `explorer.js` draws of tables: the words and numbers of every kernel at every known position."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from helpers import plots
from helpers.widgets import explain
from helpers.widgets.shown import table_html
from helpers.widgets.space import Space, axis_title, label, word
from helpers.widgets.table import Table

Row = Mapping[str, Any]


def kernels_data(tables: Mapping[str, Table], kernels: Sequence[str], start: Mapping[str, Any]) -> dict:
    """The data of `explore`.

    Args:
        tables: one per GPU, by its short name; only the first can measure.
        kernels: which ones.
        start: the sliders' first positions.
    """
    table = next(iter(tables.values()))
    space = table.space
    return {
        "kind": "kernels",
        "axes": [
            {**axis_data(axis, values), "label": space.word(axis), "hint": space.axis_title(axis)}
            for axis, values in space.axes.items()
        ],
        "start": position(space, start),
        "map": [list(space.axes).index(axis) for axis in (space.x, space.y)],
        "sizes": [list(space.axes).index(axis) for axis in space.problem],
        "kernels": [
            {"name": kernel, "color": color(space, kernel), "mapped": kernel in space.mapped}
            for kernel in kernels
        ],
        "heat": list(plots.HEAT_COLOURS),
        "unit": table.unit,
        "value_title": space.speed.title if table.timed or space.n_flops else "occupancy (%), not a speed",
        "interval": "whiskers: 95 % confidence interval" if table.timed else "",
        "titles": titles(space),
        "gpus": [gpu_data(name, one, kernels) for name, one in tables.items()],
        "measures": table.live,
        "absent": _absent(table),
        "counters": list(explain.lines(table, explain.side(table, kernels[0], start))),
        "counters_note": "Counted by Nsight Compute, which empties the caches before each launch.",
    }


def titles(space: Space) -> dict[str, str]:
    """What is computed, by the positions along the axes of the problem."""
    values = [space.axes[axis] for axis in space.problem]
    return {
        ",".join(map(str, at)): space.title(
            {axis: of_axis[i] for axis, of_axis, i in zip(space.problem, values, at, strict=True)}
        )
        for at in itertools.product(*(range(len(of_axis)) for of_axis in values))
    }


def _absent(table: Table) -> str:
    if not table.live:
        return "not recorded"
    return "not measured yet" if table.timed else "not compiled yet"


def axis_data(axis: str, values: Sequence[Any]) -> dict[str, Any]:
    """One control: a slider for numbers, radio buttons for names."""
    names = all(isinstance(value, str) for value in values)
    kind = {"control": "names"} if names else {}
    return {
        "name": axis,
        "label": word(axis),
        "hint": axis_title(axis),
        "values": [label(v) for v in values],
        **kind,
    }


def position(space: Space, point: Mapping[str, Any]) -> list[int]:
    """A point as the positions of the sliders."""
    return [list(values).index(point[axis]) for axis, values in space.axes.items()]


def point_at(space: Space, at: Sequence[int]) -> dict[str, Any]:
    """The point behind the positions of the sliders."""
    return {axis: values[i] for (axis, values), i in zip(space.axes.items(), at, strict=True)}


def color(space: Space, kernel: str) -> str:
    """A kernel's color in all figures of a space: its own, or one that no other kernel has."""
    if kernel in space.colours:
        return space.colours[kernel]
    taken = {plots.PALETTE[3], *space.colours.values()}
    free = [one for one in plots.PALETTE if one not in taken] or list(plots.PALETTE)
    others = [k for k in (*space.mapped, *space.rivals) if k not in space.colours]
    return free[others.index(kernel) % len(free)]


def gpu_data(name: str, table: Table, kernels: Sequence[str]) -> dict[str, Any]:
    """All known rows of one GPU."""
    rows: dict[str, Any] = {}
    for kernel, point in table.space.points():
        if kernel in kernels and table.row(kernel, point) is not None:
            rows |= row_data(table, kernels, kernel, point)
    return {
        "name": name,
        "note": table.note,
        "top": highest(table),
        "ceilings": ceilings(table),
        "rows": rows,
        "counted": bool(table.counted),
    }


def ceilings(table: Table) -> list[dict[str, Any] | None]:
    """The dashed line and its text for each position of the dtype's slider; None if it isn't known."""
    speed = table.space.speed
    values = [table.ceiling(dtype) for dtype in table.space.axes["dtype"]]
    return [v and {"v": round(v, 1), "text": f"{speed.ceiling}: {speed.text(v)}"} for v in values]


def row_data(table: Table, kernels: Sequence[str], kernel: str, point: Mapping[str, Any]) -> dict[str, Any]:
    """One known row, by the key that `rowKey` in `explorer.js` makes."""
    space, row = table.space, table.row(kernel, point)
    at = ",".join(str(space.axes[axis].index(point[axis])) for axis in space.axes_of(kernel))
    value, shade = table.value(row), table.shade(row)
    text = _bar_text(table, row)
    found: dict[str, Any] = {
        "v": None if value is None else round(value, 1),
        "text": text,
        "cell": "" if shade is None else f"{shade:,.0f}",
        "tip": "\n".join(filter(None, [text, _time(row), explain.brief(table, row)])),
        "line": explain.reason(table, row),
        "verdict": row["verdict"],
    }
    if shade != value:
        found["shade"] = shade
    if value is None and row["verdict"] == "wrong":
        found["bad"] = True
    if row["verdict"] == "ok":
        scale = value * row["median_us"]
        found |= {"lo": round(scale / row["ci_high_us"], 1), "hi": round(scale / row["ci_low_us"], 1)}
    if table.counted:
        found |= _counted(table, kernels, kernel, point)
    return {f"{list(kernels).index(kernel)}|{at}": found}


def _counted(table: Table, kernels: Sequence[str], kernel: str, point: Mapping[str, Any]) -> dict[str, Any]:
    """The counters of a kernel, and what they say about the fastest other one."""
    mine = explain.side(table, kernel, point)
    found: dict[str, Any] = {}
    if mine.counted is not None:
        found["c"] = list(explain.lines(table, mine).values())
    if kernel not in table.space.mapped:
        return found
    rival = explain.rival_of(table, kernel, kernels, point)
    if rival is not None:
        sentence = explain.sentence(mine, explain.side(table, rival, point))
        found["why"] = [list(kernels).index(rival), sentence]
    return found


def highest(table: Table) -> float:
    """The end of the bars' axis: a little above the ceilings and everything measured, or 100 %."""
    if not table.timed:
        return 100
    known = [table.value(row) for row in table.rows.values()]
    known += [table.ceiling(dtype) for dtype in table.space.axes["dtype"]]
    return round(1.04 * max([*filter(None, known), 1]), 1)


def percent_of_ceiling(table: Table, row: Row) -> str:
    """How much of the GPU's ceiling a timed kernel reaches; "" if that is not known."""
    most = table.ceiling(row["dtype"])
    return f"{100 * table.value(row) / most:.0f} % of {table.space.speed.ceiling}" if most else ""


def _bar_text(table: Table, row: Row) -> str:
    """What is written next to a kernel's bar."""
    if row["verdict"] not in explain.RIGHT:
        if row["kernel"] in table.space.mapped:
            return str(row["verdict"])  # the sentence below the bars has the reason
        if row["verdict"] == "untimed":
            return "not timed here" if table.space.n_flops is None else "not measured: no GPU"
        return f"{row['verdict']}: {row['reason'][:46]}"
    if not table.timed:
        spills = f", {row['spill_bytes']:,} B spilled" if row["spill_bytes"] else ""
        if table.space.n_flops is not None:
            return f"not measured: no GPU{spills}"
        occupied = table.value(row)
        return "right, not timed" if occupied is None else f"right, {occupied} % occupied{spills}"
    return ", ".join(filter(None, [table.space.speed.text(table.value(row)), percent_of_ceiling(table, row)]))


def _time(row: Row) -> str:
    if row["verdict"] != "ok":
        return ""
    interval = f"95 % CI {row['ci_low_us']:,.2f} to {row['ci_high_us']:,.2f}"
    return f"{row['median_us']:,.2f} µs ({interval})"


def still_html(table: Table, kernels: Sequence[str], point: Mapping[str, Any]) -> str:
    """One position as HTML without a script: a table with a bar per kernel, and the sentences below it."""
    space, top = table.space, highest(table)
    rows, sentences = [], []
    for kernel in kernels:
        row = table.row(kernel, point)
        value = table.value(row)
        width = 200 * (value or 0) / top
        bar = (
            '<svg width="200" height="14" role="img" aria-label="bar"><rect width="200" height="14" '
            f'fill="#888888" opacity=".2"/><rect width="{width:.1f}" height="14" '
            f'fill="{color(space, kernel)}"/></svg>'
        )
        words = _absent(table) if row is None else _bar_text(table, row)
        rows.append([html.escape(kernel), bar, html.escape(words), "" if row is None else _time(row)])
        if kernel in space.mapped and row is not None:
            sentences.append(
                f"<p><b>{html.escape(kernel)}</b>: {html.escape(explain.reason(table, row))}</p>"
            )
    where = ", ".join(f"{space.word(axis)} {label(value)}" for axis, value in point.items())
    size = space.size(space.rows(point["n_cols"]), point["n_cols"])
    caption = f"{space.operation} of {size}, at {where}"
    made = table_html(["kernel", "", table.unit, "time"], rows, caption)
    return f"{made}{''.join(sentences)}<p>{html.escape(table.note)}</p>"
