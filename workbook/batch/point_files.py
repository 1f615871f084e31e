"""Read points and parameters from files: `--sweep points.csv` or `points.yaml`, and `-f parameters.yaml`."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbook.usage import UsageError, first_line


def read_points(path: Path) -> list[dict[str, Any]]:
    """Read the points of a sweep, in order.

    A CSV file has the names of the parameters in its first line and one point per other line; an empty cell
    does not set its parameter. A YAML (or JSON) file is a list of mappings.

    Raises:
        UsageError: There is no such file, or it is not a file of points.
    """
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        points = _yaml(path, "--sweep")
        shape = isinstance(points, list) and all(isinstance(p, Mapping) for p in points)
        if not shape:
            raise UsageError(
                f"--sweep {path} is not a list of mappings; write one point per line: "
                "- {n_rows: 512, dtype: float16}."
            )
        found = [_named(p, f"--sweep {path}") for p in points]
    elif path.suffix.lower() == ".csv":
        found = _csv(path)
    else:
        raise UsageError(f"--sweep {path}: its name must end in .csv, .yaml, .yml or .json.")
    if not any(found):
        raise UsageError(f"--sweep {path} contains no point.")
    return found


def read_parameters(path: Path) -> dict[str, Any]:
    """Read the parameters of `-f`: a YAML (or JSON) file with one mapping.

    Raises:
        UsageError: There is no such file, or it is not a mapping.
    """
    found = _yaml(path, "-f")
    if not isinstance(found, Mapping):
        raise UsageError(f"-f {path} is not a mapping of names to values; write for example n_rows: 512.")
    return _named(found, f"-f {path}")


def _csv(path: Path) -> list[dict[str, Any]]:
    try:
        rows = list(csv.reader(_text(path, "--sweep").splitlines(keepends=True), strict=True))
    except csv.Error as error:
        raise UsageError(f"--sweep {path} is not a CSV file ({error}).") from error
    names = [name.strip() for name in rows[0]] if rows else []
    for name in names:
        if not name.isidentifier() or names.count(name) > 1:
            what = "appears twice" if name.isidentifier() else "is not a valid name"
            raise UsageError(f"--sweep {path}: the first line names the parameters, but {name!r} {what}.")
    points = []
    for number, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) != len(names):
            raise UsageError(
                f"--sweep {path}: row {number} has {len(row)} cells, but the first has {len(names)}; "
                "put a value that contains a comma in double quotes."
            )
        points.append({name: text.strip() for name, text in zip(names, row, strict=True) if text.strip()})
    return points


def _yaml(path: Path, option: str) -> Any:
    import yaml

    text = _text(path, option)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{option} {path} is not a YAML file ({reason[:160]}).") from error


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        raise UsageError(f"{option} {path} can't be read ({reason}).") from error


def _named(values: Mapping[Any, Any], where: str) -> dict[str, Any]:
    for name in values:
        if not isinstance(name, str) or not name.isidentifier():
            raise UsageError(f"{where}: {name!r} is not a valid name of a parameter.")
    return dict(values)
