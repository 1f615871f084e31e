"""A set of records as it lies in a folder, and what is found wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.records.files import read_cases
from helpers.workshop.usage import UsageError


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a set.

    Attributes:
        kind: "missing", "incomplete", "file", "provenance", "text", "size", "figure" or "private".
        record: the record's name, "lesson/what", or a file's path in the set; "" where it is about the whole set.
        sentence: what is wrong, where, and what to do about it.
    """

    kind: str
    record: str
    sentence: str


@dataclass(frozen=True)
class Offer:
    """A set of records: a folder that is named after its GPU.

    Attributes:
        folder: where it lies.
        records: the cases of each record that can be read, by its name.
        damaged: the names of those that cannot.
    """

    folder: Path
    records: dict[str, list[dict[str, Any]]]
    damaged: tuple[str, ...]

    @property
    def name(self) -> str:
        """The set's name, such as "h200"."""
        return self.folder.name

    def cases(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each case of each record, with the record's name."""
        for record, cases in self.records.items():
            for case in cases:
                yield record, case

    def files(self) -> list[Path]:
        """Every file of the set, sorted."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def file_of(self, record: str, case: dict[str, Any]) -> Path | None:
        """The file that a case names, beside its record; None where the case is a table, or names no plain file."""
        name = case.get("file")
        plain = isinstance(name, str) and name and Path(name).name == name
        return (self.folder / record).parent / name if plain else None


def read(folder: Path) -> Offer:
    """Read a set.

    Raises:
        UsageError: there is no such folder, or no record in it.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is no folder: name that of one GPU's records, such as helpers/records/h200."
        )
    found, damaged = {}, []
    for path in sorted(folder.rglob("*.json")):
        record = path.relative_to(folder).with_suffix("").as_posix()
        try:
            cases = read_cases(path)
        except (ValueError, OSError):
            cases = []
        if cases and all(isinstance(case[key], dict) for case in cases for key in ("params", "provenance")):
            found[record] = cases
        else:
            damaged.append(record)
    if not found and not damaged:
        raise UsageError(
            f"There is no record in {folder}: run `make record` on a GPU; it keeps them in helpers/records."
        )
    if not any(record.count("/") == 1 for record in (*found, *damaged)):
        raise UsageError(
            f"{folder} is no set of records, which has a folder for each lesson: name the folder of one GPU, "
            "such as helpers/records/h200."
        )
    return Offer(folder, found, tuple(damaged))
