"""The results of a batch as a table with one row per point: `results.csv`, the output of `workbook results`,
and a DataFrame.

The notebooks of a batch have different parameters and figures, so the table is also available in groups: the
points of one notebook, the parameters that vary between them, and their figures.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbook.batch.findings import Figure
from workbook.batch.notebook_runs import NotebookRun
from workbook.batch.parameters import for_json
from workbook.usage import UsageError, first_line

if TYPE_CHECKING:
    import pandas as pd

_BEFORE, _MIDDLE, _AFTER = (
    ("name", "notebook", "status"),
    ("seconds", "gpu", "gpu_alone"),
    ("figures_from", "failure"),
)


def load_results(out: Path | str) -> pd.DataFrame:
    """Load the results of a batch, which may still be running.

    Args:
        out: The folder of its outputs.

    Returns:
        One row per point, with the columns `name`, `notebook`, `status`, one per parameter (defaults
        included), `seconds`, `gpu` (the UUID of its GPU), `gpu_alone`, one per figure, `figures_from` and
        `failure`. A figure's unit is part of its name. It is NaN if the point failed, has no such figure, or
        has it from a record of other parameters.

    Raises:
        UsageError: The folder has no report.json that can be read.
    """
    import pandas as pd

    columns, rows = rows_of(read_report(out))
    return pd.DataFrame(rows, columns=columns)


def read_report(out: Path | str) -> list[NotebookRun]:
    """Read the rows in the `report.json` of a batch.

    Raises:
        UsageError: There is no such file, or it can't be read.
    """
    path = Path(out) / "report.json"
    try:
        return [NotebookRun.from_dict(row) for row in json.loads(path.read_text("utf-8"))["notebooks"]]
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}); name the --out folder of a workbook run."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no report of a workbook run ({first_line(error)[:120]}).") from error


def rows_of(runs: Sequence[NotebookRun]) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns and the rows of the table; a value that a row doesn't have is None.

    A parameter that is named like one of our columns becomes `parameter_…`, and a figure that is named like
    any other column `figure_…`.
    """
    columns_used = {*_BEFORE, *_MIDDLE, *_AFTER}
    names = dict.fromkeys(p for run in runs for p in (*run.parameters, *run.defaults))
    parameters = _named(names, "parameter_", columns_used)
    figures = _named(dict.fromkeys(f.name for run in runs for f in run.figures), "figure_", columns_used)
    columns = [*_BEFORE, *parameters.values(), *_MIDDLE, *figures.values(), *_AFTER]
    rows = []
    for run in runs:
        row: dict[str, Any] = dict.fromkeys(columns)
        row |= {"name": run.name, "notebook": run.source, "status": run.status}
        row |= {parameters[name]: value for name, value in {**run.defaults, **run.parameters}.items()}
        row |= {"seconds": run.seconds or None, "gpu": run.gpu or None, "gpu_alone": run.gpu_alone}
        if finished(run):
            row |= {figures[f.name]: f.here for f in run.figures}
            nearest = dict.fromkeys(f.nearest for f in run.figures if f.nearest)
            notes = [f"{n} was recorded, not this point" for n in nearest]
            row["figures_from"] = "; ".join(filter(None, [run.where, *notes])) or None
        row["failure"] = str(run.failure) if run.failure else None
        rows.append(row)
    return columns, rows


def finished(run: NotebookRun) -> bool:
    """Whether a point's figures count. Those of a failed point don't."""
    return run.status in ("ok", "kept")


def csv_text(runs: Sequence[NotebookRun]) -> str:
    """The table as CSV; lists and dicts are written as JSON."""
    columns, rows = rows_of(runs)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[column]) for column in columns] for row in rows)
    return text.getvalue()


@dataclass(frozen=True)
class Group:
    """The points of one notebook.

    Attributes:
        runs: The rows, in order.
        axes: The parameters that have more than one value.
        fixed: Figures that don't depend on the point: they come from a record and are the same everywhere.
        names: The names of all other figures, in order of appearance.
    """

    runs: tuple[NotebookRun, ...]
    axes: tuple[str, ...]
    fixed: tuple[Figure, ...]
    names: tuple[str, ...]

    def at(self, run: NotebookRun) -> dict[str, Figure]:
        """The figures of one point, by name."""
        return {f.name: f for f in run.figures} if finished(run) else {}

    def values(self, name: str) -> list[Any]:
        """The value of a figure at each point, or None."""
        return [found[name].here if name in (found := self.at(run)) else None for run in self.runs]


def groups(runs: Sequence[NotebookRun]) -> list[Group]:
    """Group the points by notebook, in order of appearance."""
    by_source: dict[str, list[NotebookRun]] = {}
    for run in runs:
        by_source.setdefault(run.source, []).append(run)
    return [_group(points) for points in by_source.values()]


def _group(runs: Sequence[NotebookRun]) -> Group:
    axes = []
    for name in dict.fromkeys(name for run in runs for name in run.parameters):
        if len({json.dumps(run.parameters.get(name), sort_keys=True) for run in runs}) > 1:
            axes.append(name)
    found: dict[str, list[Figure]] = {}
    for run in filter(finished, runs):
        for figure in run.figures:
            found.setdefault(figure.name, []).append(figure)
    fixed = {
        name: figures[0]
        for name, figures in found.items()
        if len(figures) > 1 and all(f.replayed for f in figures) and len({f.value for f in figures}) == 1
    }
    return Group(
        runs=tuple(runs),
        axes=tuple(axes),
        fixed=tuple(fixed.values()),
        names=tuple(name for name in found if name not in fixed),
    )


def text_table(runs: Sequence[NotebookRun]) -> str:
    """The table for a terminal, with one block per notebook."""
    return "\n\n".join(_block(group) for group in groups(runs))


def _block(group: Group) -> str:
    first = group.runs[0]
    if len(group.runs) == 1:
        given = "".join(f", {name} = {value!r}" for name, value in first.parameters.items())
        where = f", {first.where}" if finished(first) and first.where else ""
        lines = [f"{first.name}{given}: {first.status}{where}"]
        lines += [f"  {f.name}  {in_short(f.here)}{_of_other(f)}" for f in group.at(first).values()]
    else:
        lines = [f"{first.title} ({Path(first.source).name}), {len(group.runs)} points"]
        columns: dict[str, list[Any]] = {a: [run.parameters.get(a) for run in group.runs] for a in group.axes}
        columns |= {"status": [run.status for run in group.runs]}
        columns |= {"seconds": [run.seconds or None for run in group.runs]}
        if any(run.gpu for run in group.runs):
            columns |= {"gpu": [run.gpu for run in group.runs]}
        columns |= {name: group.values(name) for name in group.names}
        lines += _aligned(columns)
        lines += [fixed_in_words(group, figure) for figure in group.fixed]
    lines += [f"  {run.name}: {run.failure}" for run in group.runs if run.failure]
    return "\n".join(lines)


def fixed_in_words(group: Group, figure: Figure) -> str:
    """A sentence that says that a replayed figure was not measured at the points, and why."""
    runs = [run for run in group.runs if figure.name in group.at(run)]
    has_gpu = any(run.gpu or any(f.source.startswith("live") for f in run.figures) for run in runs)
    source = figure.source.replace("replayed, ", "replayed from ", 1)
    at = f", recorded at {figure.nearest}" if figure.nearest else ""
    value = f"{figure.name} = {in_short(figure.value)} at all {len(runs)} points"
    return f"{value}, {source}{at} ({'not measured' if has_gpu else 'not measured: no GPU'})"


def _of_other(figure: Figure) -> str:
    return f"{in_short(figure.value)} at {figure.nearest}, the nearest record" if figure.nearest else ""


def _aligned(columns: Mapping[str, Sequence[Any]]) -> list[str]:
    cells = {name: [in_short(v) for v in values] for name, values in columns.items()}
    widths = {name: max(map(len, [name, *texts])) for name, texts in cells.items()}
    right = {
        name
        for name, values in columns.items()
        if all(isinstance(v, (int, float, type(None))) for v in values)
    }

    def line(texts: Mapping[str, str]) -> str:
        parts = [t.rjust(widths[n]) if n in right else t.ljust(widths[n]) for n, t in texts.items()]
        return ("  " + "  ".join(parts)).rstrip()

    length = len(next(iter(cells.values())))
    return [line({n: n for n in cells}), *(line({n: cells[n][i] for n in cells}) for i in range(length))]


def in_short(value: Any) -> str:
    """A value in few characters: a float with four significant digits, "" for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def _cell(value: Any) -> Any:
    return json.dumps(for_json(value)) if isinstance(value, (list, dict)) else value


def _named(names: Mapping[str, None], prefix: str, columns_used: set[str]) -> dict[str, str]:
    """Map each name to a column that is not taken yet, and take it."""
    found = {}
    for name in names:
        column = name
        while column in columns_used:
            column = prefix + column
        columns_used.add(column)
        found[name] = column
    return found
