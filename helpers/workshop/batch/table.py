"""A batch as a table, a row a point: `results.csv`, what `workbook results` prints, and a DataFrame.

The notebooks of a batch have different parameters and find different things, so the table is read in groups: the points
of one notebook, the parameters that vary among them, and the figures.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.workshop.batch.figures import Figure
from helpers.workshop.batch.parameters import for_json
from helpers.workshop.batch.results import NotebookRun
from helpers.workshop.usage import UsageError, first_line

if TYPE_CHECKING:
    import pandas as pd

_BEFORE, _MIDDLE, _AFTER = (
    ("name", "notebook", "status"),
    ("seconds", "gpu", "gpu_alone"),
    ("figures_from", "failure"),
)


def load_results(out: Path | str) -> pd.DataFrame:
    """What a batch found, also while it runs: a row a point.

    Args:
        out: The folder of its outputs.

    Returns:
        The columns `name`, `notebook`, `status`, one for each parameter, `seconds`, `gpu` (the UUID that it was given),
        `gpu_alone`, one for each figure (the unit stands in its name; NaN where a point failed, did not find it, or has
        it from a record of other parameters), `figures_from` and `failure`.

    Raises:
        UsageError: The folder has no report.json that can be read.
    """
    import pandas as pd

    columns, rows = rows_of(read_report(out))
    return pd.DataFrame(rows, columns=columns)


def read_report(out: Path | str) -> list[NotebookRun]:
    """The rows of a batch's `report.json`.

    Raises:
        UsageError: There is none that can be read.
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
    """The table's columns and its rows; a value that a row lacks is None.

    A parameter called like a column of ours is `parameter_…`, a figure called like a column is `figure_…`.
    """
    taken = {*_BEFORE, *_MIDDLE, *_AFTER}
    parameters = _named(dict.fromkeys(p for run in runs for p in run.parameters), "parameter_", taken)
    figures = _named(dict.fromkeys(f.name for run in runs for f in run.figures), "figure_", taken)
    columns = [*_BEFORE, *parameters.values(), *_MIDDLE, *figures.values(), *_AFTER]
    rows = []
    for run in runs:
        row: dict[str, Any] = dict.fromkeys(columns)
        row |= {"name": run.name, "notebook": run.source, "status": run.status}
        row |= {parameters[name]: value for name, value in run.parameters.items()}
        row |= {"seconds": run.seconds or None, "gpu": run.gpu or None, "gpu_alone": run.gpu_alone}
        if finished(run):
            row |= {figures[f.name]: f.here for f in run.figures}
            row["figures_from"] = run.where + "".join(
                f"; {nearest} was recorded, not this point"
                for nearest in dict.fromkeys(f.nearest for f in run.figures if f.nearest)
            )
        row["failure"] = str(run.failure) if run.failure else None
        rows.append(row)
    return columns, rows


def finished(run: NotebookRun) -> bool:
    """Whether what it found counts: a point that failed has a status and no number."""
    return run.status in ("ok", "kept")


def csv_text(runs: Sequence[NotebookRun]) -> str:
    """The whole table as CSV; lists and dicts are JSON."""
    columns, rows = rows_of(runs)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[column]) for column in columns] for row in rows)
    return text.getvalue()


def can_write_parquet() -> bool:
    """Whether pyarrow is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def write_parquet(runs: Sequence[NotebookRun], path: Path) -> None:
    """Write the whole table as Parquet; a column whose values are of several types is one of texts."""
    import pyarrow as arrow
    from pyarrow import parquet

    columns, rows = rows_of(runs)
    table = {}
    for column in columns:
        values = [row[column] for row in rows]
        try:
            table[column] = arrow.array([for_json(v) if isinstance(v, (list, dict)) else v for v in values])
        except (arrow.ArrowInvalid, arrow.ArrowTypeError):  # values of several types
            table[column] = arrow.array([None if v is None else str(_cell(v)) for v in values])
    parquet.write_table(arrow.table(table), path)


@dataclass(frozen=True)
class Group:
    """The points of one notebook.

    Attributes:
        runs: Its rows, in order.
        axes: The parameters that have several values among them.
        fixed: What says nothing about a point: figures that are replayed, and the same at every point that has them.
        names: The other figures' names, in the order in which they were found.
    """

    runs: tuple[NotebookRun, ...]
    axes: tuple[str, ...]
    fixed: tuple[Figure, ...]
    names: tuple[str, ...]

    def at(self, run: NotebookRun) -> dict[str, Figure]:
        """The figures that one point found, by name."""
        return {f.name: f for f in run.figures} if finished(run) else {}

    def values(self, name: str) -> list[Any]:
        """A figure at each point; None where there is none."""
        return [found[name].here if name in (found := self.at(run)) else None for run in self.runs]


def groups(runs: Sequence[NotebookRun]) -> list[Group]:
    """The points by notebook, in the order of their first ones."""
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
    """The table to be read in a terminal: a block for each notebook."""
    return "\n\n".join(_block(group) for group in groups(runs))


def _block(group: Group) -> str:
    first = group.runs[0]
    if len(group.runs) == 1:
        given = "".join(f", {name} = {value!r}" for name, value in first.parameters.items())
        lines = [f"{first.name}{given}: {first.status}" + (f", {first.where}" if finished(first) else "")]
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
    """That a figure is no result of the points."""
    n = sum(figure.name in group.at(run) for run in group.runs)
    of = f"of {figure.nearest}; " if figure.nearest else ""
    return f"{figure.name} = {in_short(figure.value)}, {figure.source}: {of}the same at {n} points, it does not depend on them"


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
    """A value for people: a float with four digits, "" for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def _cell(value: Any) -> Any:
    return json.dumps(for_json(value)) if isinstance(value, (list, dict)) else value


def _named(names: Mapping[str, None], prefix: str, taken: set[str]) -> dict[str, str]:
    """Each name as a column that is not taken, which it then is."""
    found = {}
    for name in names:
        column = name
        while column in taken:
            column = prefix + column
        taken.add(column)
        found[name] = column
    return found
