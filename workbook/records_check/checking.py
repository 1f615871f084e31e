"""Check a set of records and report its problems."""

from __future__ import annotations

from pathlib import Path

import yaml

from helpers import records
from workbook import catalogue
from workbook.records_check import complete, plausible, privacy
from workbook.usage import UsageError

_EXPLAINABLE = ("missing", "incomplete", "text")


def check(folder: Path, *, root: Path | None = None, names: tuple[str, ...] | None = None) -> tuple[int, str]:
    """Check a set of records: is it complete, plausible, and free of personal data?

    Args:
        folder: the set, in a folder that is named after its GPU.
        root: the checkout whose kernels count as today's; only the installed package's if None.
        names: words that identify the machine and the user; by default those of this machine.

    Returns:
        The number of problems, and a report with a sentence for each of them.

    Raises:
        UsageError: the folder is not a set of records, or reasons.yaml is malformed.
        ValueError: a record is damaged.
    """
    folder = folder.resolve()
    own = complete.read_set(folder)
    others = [complete.read_set(records.folder() / name) for name in records.sets() if name != folder.name]
    found = [
        *complete.problems(folder, own, others),
        *plausible.problems(folder, own, catalogue.current_sources(root)),
        *privacy.problems(folder, privacy.names_of_this_machine() if names is None else names),
    ]
    reasons = _read_reasons(records.folder() / "reasons.yaml", folder.name)
    known = [reasons[kind, record] for kind, record, _ in found if (kind, record) in reasons]
    problems = [sentence for kind, record, sentence in found if (kind, record) not in reasons]
    for kind, record in sorted(reasons.keys() - {(kind, record) for kind, record, _ in found}):
        problems.append(f"reasons.yaml says that {record} is {kind}, but it is not; remove the entry.")
    explained = [f"Known problem of {known.count(why)} records: {why}" for why in dict.fromkeys(known)]
    counted = f"{folder}: {len(own)} records, {len(problems) or 'no'} problem{'s' * (len(problems) != 1)}."
    return len(problems), "\n".join([*problems, *explained, counted])


def _read_reasons(path: Path, name: str) -> dict[tuple[str, str], str]:
    """The explanation of each known problem of a set, by the problem's kind and record."""
    if not path.is_file():
        return {}
    try:
        entries = yaml.safe_load(path.read_text("utf-8")).get(name, [])
        found = {(one["kind"], record): one["why"] for one in entries for record in one["records"]}
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} is malformed. Below the name of a set it must have a list of entries with `kind`, "
            "`records` and `why`."
        ) from error
    return {key: why for key, why in found.items() if key[0] in _EXPLAINABLE}
