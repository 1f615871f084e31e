"""Read a set of records, and find what it lacks compared with the other sets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from helpers.records.files import read_cases
from workbook.usage import UsageError

# `make record` doesn't measure these, so a set may lack them (CONTRIBUTING, "Measurements").
_OPTIONAL = re.compile(r"(timer|builds|host_cuda)/.*|fusion/(hints.*|league)|.*-sweep-counters")
_FEWEST_ROWS = 0.5  # of the other sets' rows: a GPU may refuse a point, but not most of them

Records = dict[str, list[dict[str, Any]]]


class Problem(NamedTuple):
    """One problem: its kind, the record (or file) that has it, and a sentence about it."""

    kind: str
    record: str
    sentence: str


def read_set(folder: Path) -> Records:
    """Read the records of one GPU: the cases of each record by its name, such as "fusion/league".

    Raises:
        UsageError: the folder is not a set of records.
        ValueError: a record is damaged.
    """
    paths = sorted(folder.glob("*/*.json"))
    if not paths:
        raise UsageError(
            f"{folder} is not a set of records; name the folder of one GPU, such as helpers/records/h200."
        )
    return {path.relative_to(folder).with_suffix("").as_posix(): read_cases(path) for path in paths}


def problems(folder: Path, own: Records, others: Sequence[Records]) -> Iterator[Problem]:
    """Find records, cases, rows and files that are missing from a set."""
    for record in sorted({record for other in others for record in other}):
        theirs = [other[record] for other in others if record in other]
        if record in own:
            yield from _incomplete(record, own[record], theirs)
        elif not _OPTIONAL.fullmatch(record):
            sentence = f"{record} is missing; run `make record` again, or add the reason to reasons.yaml."
            yield Problem("missing", record, sentence)
    for record, cases in own.items():
        for name in [case["file"] for case in cases if "file" in case]:
            if not (folder / record).with_name(name).is_file():
                yield Problem("file", record, f"{record} names the missing file {name}; record it again.")


def _incomplete(record: str, own: list[dict], others: Sequence[list[dict]]) -> Iterator[Problem]:
    """Find cases and rows that all other sets have of a record."""
    for params in [case["params"] for case in others[0]]:
        theirs = [_n_rows(cases, params) for cases in others]
        if None in theirs:
            continue
        n_rows = _n_rows(own, params)
        if n_rows is None or n_rows < _FEWEST_ROWS * min(theirs):
            rows = f"{n_rows or 'no'} rows for {params}, but other sets have at least {min(theirs)}"
            yield Problem("incomplete", record, f"{record} has {rows}; record it again.")


def _n_rows(cases: list[dict], params: dict[str, Any]) -> int | None:
    """The number of rows of the case with these parameters; None if there is no such case."""
    return next((len(case.get("rows") or ()) for case in cases if case["params"] == params), None)
