"""Is everything there that `make record` keeps? Compared with the sets that are kept already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from helpers.workshop.offered.reading import Offer, Problem

# What scripts of their own measure and `make record` does not: a set may lack it (CONTRIBUTING, "Measurements").
_BY_SCRIPTS = ("timer/", "builds/", "fusion/hints", "fusion/league", "host_cuda/")
_COUNTERS = "-sweep-counters"  # of the sliders' points
_MADE_HERE = ("fusion/league-here",)  # by a lesson, though it begins like one of them
_FEWEST_ROWS = 0.5  # of what another GPU has: a point may be refused on this one, but not most of them


def optional(record: str) -> bool:
    """Whether a set may lack this record: a script of its own makes it, not `make record`."""
    if record.endswith(_COUNTERS):
        return True
    return record.startswith(_BY_SCRIPTS) and not record.startswith(_MADE_HERE)


def expected(beside: Sequence[Offer]) -> list[str]:
    """The records that any of these sets has, sorted."""
    return sorted({record for one in beside for record in one.records})


def left_out(offer: Offer, beside: Sequence[Offer]) -> list[str]:
    """The records of scripts that another set has and this one may lack."""
    return [record for record in expected(beside) if record not in offer.records and optional(record)]


def problems(offer: Offer, beside: Sequence[Offer]) -> Iterator[Problem]:
    """What another set has and this one lacks, and files that are missing, empty or left over."""
    for record in offer.damaged:
        yield Problem(
            "file",
            record,
            f"{record}.json is damaged or no record: measure it again, and delete what else lies there.",
        )
    for record in expected(beside):
        if record not in offer.records:
            if record not in offer.damaged and not optional(record):
                has = ", ".join(one.name for one in beside if record in one.records)
                yield Problem(
                    "missing",
                    record,
                    f"{record} is missing ({has} {'has' if ',' not in has else 'have'} it): run `make record` once more, "
                    "or say in reasons.yaml why this GPU has none.",
                )
            continue
        yield from _against(offer, record, [one.records[record] for one in beside if record in one.records])
    yield from _files(offer)


def _against(offer: Offer, record: str, others: Sequence[list[dict[str, Any]]]) -> Iterator[Problem]:
    """Cases, columns and rows that each of the other sets has of a record."""
    for params in [case["params"] for case in others[0]]:
        theirs = [case for cases in others for case in cases if case["params"] == params]
        mine = [case for case in offer.records[record] if case["params"] == params]
        if len(theirs) < len(others):
            continue  # not every set has it, so it is no part of the course
        if not mine:
            said = ", ".join(f"{name}={value}" for name, value in params.items()) or "no parameters"
            yield Problem(
                "incomplete",
                record,
                f"{record} has no case with {said}, which the other sets have: run its notebook with the parameters "
                "that stand in it.",
            )
            continue
        lacking = set.intersection(*(set(case.get("columns") or ()) for case in theirs)) - set(
            mine[0].get("columns") or ()
        )
        if lacking:
            yield Problem(
                "incomplete",
                record,
                f"{record} lacks the columns {', '.join(sorted(lacking))}: record it with this version of the workbook.",
            )
        rows, fewest = len(mine[0].get("rows") or ()), min(len(case.get("rows") or ()) for case in theirs)
        if rows < _FEWEST_ROWS * fewest:
            yield Problem(
                "incomplete",
                record,
                f"{record} has {rows} rows where the other sets have {fewest} and more: the measurement was broken off; "
                "record it again.",
            )


def _files(offer: Offer) -> Iterator[Problem]:
    """Files that a record names and that are not there, and files that no record names."""
    named = {offer.folder / f"{record}.json" for record in (*offer.records, *offer.damaged)}
    for record, case in offer.cases():
        if "file" not in case:
            if not case.get("rows") or not case.get("columns"):
                yield Problem(
                    "file", record, f"{record} has a case with neither rows nor a file: record it again."
                )
            continue
        path = offer.file_of(record, case)
        if path is None:
            yield Problem(
                "file",
                record,
                f"{record} names the file {case['file']!r}, which is no name of a file beside it.",
            )
            continue
        named.add(path)
        if not path.is_file() or not path.stat().st_size:
            state = "is empty" if path.is_file() else "is not there"
            yield Problem("file", record, f"{record} names {path.name}, which {state}: record it again.")
    for path in offer.files():
        if path not in named:
            where = path.relative_to(offer.folder).as_posix()
            yield Problem("file", where, f"{where} belongs to no record: delete it.")
