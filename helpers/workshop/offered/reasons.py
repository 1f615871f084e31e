"""What is known to be missing or outdated in a set that is kept, each with its reason: `reasons.yaml` beside the sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from helpers.workshop.offered.reading import Problem
from helpers.workshop.usage import UsageError

NAME = "reasons.yaml"
_KINDS = ("missing", "incomplete", "text")  # what can have a reason; a wrong figure or a name has none


@dataclass(frozen=True)
class Reason:
    """Why a set lacks something: the kind of problem, the records, and a sentence."""

    kind: str
    records: tuple[str, ...]
    why: str


def of_set(folder: Path, name: str) -> list[Reason]:
    """The reasons for a set.

    Args:
        folder: where the sets are.
        name: the set's, such as "h100".

    Raises:
        UsageError: the file has not its form: by set, a list of reasons, each with `kind`, `records` and `why`.
    """
    path = folder / NAME
    if not path.is_file():
        return []
    try:
        given = (yaml.safe_load(path.read_text("utf-8")) or {}).get(name, [])
        found = [Reason(one["kind"], tuple(one["records"]), one["why"]) for one in given]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} has not its form: the name of a set, under it a list, and in each entry `kind`, `records` and `why`."
        ) from error
    for one in found:
        if one.kind not in _KINDS or not one.why.strip():
            raise UsageError(
                f"{path}: a reason needs a sentence and a kind out of {', '.join(_KINDS)}; it has {one.kind!r}."
            )
    return found


def sort(
    problems: Sequence[Problem], reasons: Sequence[Reason]
) -> tuple[list[Problem], dict[Reason, int], list[str]]:
    """Problems without a reason, how many each reason explains, and sentences on what is explained but not so."""
    explained: dict[tuple[str, str], Reason] = {
        (reason.kind, record): reason for reason in reasons for record in reason.records
    }
    open_, count = [], dict.fromkeys(reasons, 0)
    unused = dict(explained)
    for problem in problems:
        key = (problem.kind, problem.record)
        if key in explained:
            count[explained[key]] += 1
            unused.pop(key, None)
        else:
            open_.append(problem)
    gone = [
        f"{NAME} explains that {record} is {kind if kind != 'text' else 'of another text'}, and it is not: take it out there."
        for kind, record in unused
    ]
    return open_, count, gone
