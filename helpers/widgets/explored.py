"""What `explore` returns: the sliders, the fastest right point that was measured, and a page to send to a
colleague.
"""

from __future__ import annotations

import html
import inspect
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import atomic, device
from helpers.records.origin import live_provenance
from helpers.widgets import view
from helpers.widgets.shown import Shown, page_html, page_script
from helpers.widgets.space import RESULTS, label, require_position
from helpers.widgets.table import Table

if TYPE_CHECKING:
    import pandas as pd


_NAMED = 5  # points that are named as indistinguishable from the best one


@dataclass(frozen=True, repr=False, eq=False)
class Explored(Shown):
    """Sliders over kernels.

    Attributes:
        table: the known rows of this GPU, or of the record.
        kernels: those that are shown.
        start: the sliders' first positions.
        tables: one per GPU, by its short name.
    """

    table: Table = field(kw_only=True)
    kernels: tuple[str, ...] = field(kw_only=True)
    start: Mapping[str, Any] = field(kw_only=True)
    tables: Mapping[str, Table] = field(kw_only=True, default_factory=dict)

    def best(self, **problem: Any) -> Best:
        """The fastest right position that was measured so far for one problem, and those within its noise.

        Args:
            **problem: the problem, which is the sliders' by default: `n_cols` (columns), `dtype` (such as
                "bfloat16"), and for attention `head_size` and `causal`.

        Raises:
            ValueError: a value that no slider has, or a launch parameter.
        """
        table, at = self.now
        for axis, value in problem.items():
            if axis not in table.space.problem:
                raise ValueError(f"best() has no {axis!r}; pass {', '.join(table.space.problem)}.")
            require_position(axis, value, table.space.axes[axis])
        return best_of(table, self.kernels, {axis: at[axis] for axis in table.space.problem} | problem)

    @property
    def now(self) -> tuple[Table, Mapping[str, Any]]:
        """The table of the GPU that is shown, and where the sliders are."""
        state = self.widget.state if self.widget is not None else {}
        table = list(self.tables.values())[max(0, state.get("gpu", 0))] if self.tables else self.table
        return table, view.point_at(table.space, state["at"]) if state else self.start

    def save(self, name: str | os.PathLike, *, overwrite: bool = False) -> tuple[Path, Path]:
        """Write a page with the sliders, and a table of what was measured: `name.html` and `name.csv`.

        The page needs no kernel and no network. It contains the positions that are known now.

        Args:
            name: of both files, without an extension.
            overwrite: replace existing files.

        Returns:
            The paths of page and table.

        Raises:
            ValueError: no position is known.
            FileExistsError: one of the files exists, and `overwrite` is not set; nothing was written.
        """
        if not self.now[0].rows:
            raise ValueError(f"There is nothing to save: {self.now[0].origin}")
        stem = Path(re.sub(r"\.(html|csv)$", "", os.fspath(name)))
        page, rows = Path(f"{stem}.html"), Path(f"{stem}.csv")
        for path in (page, rows):
            if path.exists() and not overwrite:
                raise FileExistsError(f"{path} already exists: pass another name, or overwrite=True.")
        with atomic.atomic_write(rows) as file:
            file.write_text(frame(self.now[0]).to_csv(index=False), "utf-8")
        with atomic.atomic_write(page) as file:
            file.write_text(_page(self, stem.name), "utf-8")
        return page, rows


@dataclass(frozen=True)
class Best:
    """The fastest right point of those that were measured for one problem.

    Attributes:
        row: kernel, point, `median_us`, `ci_low_us`, `ci_high_us`, and `gb_per_s` or `tflop_per_s`;
            None if nothing was timed.
        alike: the rows that can't be distinguished from it, fastest first: their times differ by less than
            1 % and 0.1 µs, or by no more than their intervals. `timing.changes` explains these limits.
        n_known, n_points: the measured points and all points of this problem.
        text: all of this in words.
    """

    row: Mapping[str, Any] | None
    alike: tuple[Mapping[str, Any], ...]
    n_known: int
    n_points: int
    text: str

    def __repr__(self) -> str:
        return self.text


def best_of(table: Table, kernels: Sequence[str], problem: Mapping[str, Any]) -> Best:
    """The `Best` of those kernels in a table that depend on the sliders."""
    space = table.space
    at = space.at(problem)
    points = [(k, p) for k, p in space.points() if k in kernels and problem.items() <= p.items()]
    known = [row for k, p in points if k in space.mapped and (row := table.row(k, p)) is not None]
    n_points = sum(k in space.mapped for k, _ in points)
    counted = f"{len(known)} of {n_points} points measured"
    if not table.timed:
        return Best(None, (), len(known), n_points, f"No point is the fastest: {table.origin}.")
    timed = sorted((row for row in known if row["verdict"] == "ok"), key=lambda row: row["median_us"])
    if not timed:
        return Best(None, (), len(known), n_points, f"No right point was timed at {at} yet; {counted}.")
    first, *others = timed
    alike = tuple(row for row in others if not _slower(row, first))
    lines = [
        f"Fastest at {at}: {_named(table, first)}, {first['median_us']:,.2f} µs (95 % CI "
        f"{first['ci_low_us']:,.2f} to "
        f"{first['ci_high_us']:,.2f}), {space.speed.text(table.value(first))}; {counted}, {table.origin}."
    ]
    if alike:
        more = f" and {len(alike) - _NAMED} more" if len(alike) > _NAMED else ""
        named = "; ".join(_short(table, row) for row in alike[:_NAMED])
        lines.append(f"No measurable difference from it: {named}{more}.")
    rivals = [
        row for k, p in points if k in space.rivals and (row := table.row(k, p)) and row["verdict"] == "ok"
    ]
    if rivals:
        lines.append(f"For comparison: {'; '.join(_short(table, row) for row in rivals)}.")
    return Best(first, alike, len(known), n_points, "\n".join(lines))


def _slower(row: Mapping[str, Any], than: Mapping[str, Any]) -> bool:
    """Whether a time is longer than another by more than repeated measurements differ."""
    from helpers.timing.changes import Estimate, change_since

    now, then = (Estimate(r["median_us"], r["ci_low_us"], r["ci_high_us"]) for r in (row, than))
    return change_since(then, now, then.value).slower


def _named(table: Table, row: Mapping[str, Any]) -> str:
    """A row's kernel and its launch parameters."""
    own = [a for a in table.space.axes if a not in table.space.problem and row.get(a) is not None]
    point = ", ".join(f"{axis}={label(row[axis])}" for axis in own)
    return f"{row['kernel']} with {point}" if point else row["kernel"]


def _short(table: Table, row: Mapping[str, Any]) -> str:
    return f"{_named(table, row)}: {row['median_us']:,.2f} µs"


def frame(table: Table) -> pd.DataFrame:
    """Every known row as a table: kernel, point, results, facts about the compiled code, and the GPU."""
    import pandas as pd

    known = [
        row | table.counted.get(table.space.key(kernel, point), {})
        for kernel, point in table.space.points()
        if (row := table.row(kernel, point)) is not None
    ]
    found = pd.DataFrame(known)
    first = ["kernel", *table.space.axes, *RESULTS]
    order = [*(c for c in first if c in found.columns), *(c for c in found.columns if c not in first)]
    return (
        found[order]
        .convert_dtypes()
        .assign(gpu=table.spec.name, timed=table.timed, date=table.date or _today())
    )


def _today() -> str:
    return date.today().isoformat()


def _provenance(table: Table) -> str:
    """Where the figures of a table come from: GPU, day, versions."""
    if not table.live:
        return f"{table.origin}; from the workbook's records."
    if table.timed:
        return f"Measured on {live_provenance()}, driver {device.driver_version()}."
    versions = {name: device.package_version(name) for name in ("torch", "triton")}
    here = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{table.origin[0].upper()}{table.origin[1:]}; {_today()}, {here}."


_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5em auto; max-width: 68em; padding: 0 1em;
       background: light-dark(#fff, #111); color: light-dark(#222, #ddd); }
pre { overflow-x: auto; padding: .8em; background: light-dark(#f4f4f4, #1c1c1c); font-size: 13px; }
"""


def _page(shown: Explored, title: str) -> str:
    """The page: the sliders, the best position, the source and the provenance."""
    table, at = shown.now
    data = view.kernels_data({table.spec.name: table}, shown.kernels, at)
    data |= {"measures": False, "absent": "not visited"}
    drawn = page_html(data, view.still_html(table, shown.kernels, at))
    text = html.escape
    n_points = sum(1 for kernel, _ in table.space.points() if kernel in shown.kernels)
    best = text(repr(shown.best())).replace("\n", "<br>")
    sources = "".join(f"<pre>{text(s)}</pre>" for s in map(_source, table.space.sources()) if s)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{text(title)}</title><style>{_STYLE}</style></head><body>
<h1>{text(title)}</h1>
<p>{text(_provenance(table))} {len(table.rows):,} of {n_points:,} points are known; an empty cell was not
visited.</p>
{drawn}
<p>{best}</p>
<details><summary>The source</summary>{sources}</details>
<script>{page_script()}</script>
</body></html>
"""


def _source(source: Any) -> str:
    """The source of a kernel or function; "" if Python doesn't know it."""
    if isinstance(source, str):
        return source
    function = source
    while hasattr(function, "fn"):
        function = function.fn
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""


def free_name(name: str) -> str:
    """A name that no page or table in this folder has yet: `square`, else `square-2` and so on."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-") or "explored"
    found, n = plain, 1
    while any(Path(f"{found}.{ending}").exists() for ending in ("html", "csv")):
        n += 1
        found = f"{plain}-{n}"
    return found
