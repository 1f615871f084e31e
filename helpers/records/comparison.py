"""Join one record of several GPUs into one table."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from helpers.records.files import read_cases
from helpers.records.origin import Provenance, show
from helpers.records.sets import NoRecord, folder, record_names, sets

if TYPE_CHECKING:
    import pandas as pd

_TIME = "median_us"
# A column is a result if its name ends in a unit or is one of these words. All other columns identify a row.
_UNIT = re.compile(r"(^|_)(us|ms|s|mb|mhz|percent|gb_per_s|ratio|low|high)$|\([^)]*/s\)$")
_RESULTS = frozenset(
    (
        *("verdict", "reason", "note", "notes", "error", "message"),
        *("n_samples", "of_copy", "ratio", "low", "high", "n_bytes", "launches", "kernels"),
        *("width", "threads", "registers", "spill_bytes", "shared_bytes", "loads", "load_bytes"),
    )
)


def compare(
    name: str,
    gpus: Sequence[str] = ("h100", "h200"),
    *,
    on: Sequence[str] | None = None,
    any_kernels: bool = False,
) -> pd.DataFrame:
    """Join one record of several GPUs: one row per point, with each GPU's figures in columns of their own.

    Args:
        name: the record, "lesson/what".
        gpus: the sets by their folders' names, at least two. Speedups are relative to the first.
        on: the columns that identify a row. By default these are the columns that contain no fractions and
            whose names have no unit and are not typical of results (`median_us`, `verdict`, `registers`,
            …).
        any_kernels: compare the sets even if they measured different versions of a kernel; a difference
            then isn't only due to the GPU.

    Returns:
        A DataFrame with a row for each point of any set, NaN if a set lacks it. It has the columns of `on`,
        then each other column once for each GPU (`median_us_h100`, `median_us_h200`), and, if there is a
        `median_us`, `speedup_h200`: the first GPU's time divided by this one's, so above 1 this one is
        faster. `.attrs["provenance"]` has a `Provenance` for each GPU, `.attrs["gpus"]` and `.attrs["on"]`
        have the names.

    Raises:
        NoRecord: there is no such record or set, or a set lacks the record.
        ValueError: there are fewer than two GPUs, the record is a file, the sets measured different
            versions of a kernel, or no column identifies the rows.

    Example:
        >>> from helpers import records
        >>> both = records.compare("profiling/bandwidths", ("h100", "h200"), on=["operation"])
        Recorded, not measured here. h100: ...
        >>> [column for column in both.columns if column.startswith("gb_per_s")]
        ['gb_per_s_h100', 'gb_per_s_h200']
    """
    gpus = _required(name, gpus)
    cases = {gpu: read_cases(folder() / gpu / f"{name}.json") for gpu in gpus}
    if any("file" in case for found in cases.values() for case in found):
        raise ValueError(
            f"Record {name!r} is a file (a report, a trace or generated code), so it has no rows to compare: "
            f"{', '.join(str(folder() / gpu / name) for gpu in gpus)}."
        )
    provenances = {gpu: Provenance(**found[-1]["provenance"]) for gpu, found in cases.items()}
    if not any_kernels:
        _require_same_kernels(name, provenances)
    frames = {gpu: _frame(found) for gpu, found in cases.items()}
    keys = _keys(name, frames, on)
    table = _joined(frames, keys)
    if len(table) == sum(map(len, frames.values())):
        raise ValueError(
            f"Record {name!r}: no row of {gpus[0]} has the same {', '.join(keys)} as one of another set."
        )
    table.attrs |= {"provenance": provenances, "gpus": gpus, "on": keys}
    text = "; ".join(f"{gpu}: {provenance}" for gpu, provenance in provenances.items())
    show("replayed", name, f"Recorded, not measured here. {text}.", *provenances.values())
    return table


def _required(name: str, gpus: Sequence[str]) -> list[str]:
    """The sets' names, after checking that each set has the record."""
    available = sets()
    if isinstance(gpus, str) or len(set(gpus)) < 2:
        raise ValueError(f"compare() needs two or more GPUs, such as {tuple(available)}, not {gpus!r}.")
    for gpu in gpus:
        if gpu not in available:
            raise NoRecord(
                f"There is no set of records {gpu!r} in {folder()}; available: {', '.join(available)}."
            )
    names = {gpu: record_names(gpu) for gpu in available}
    if not any(name in found for found in names.values()):
        similar = difflib.get_close_matches(name, sorted(set().union(*names.values())), 3, 0.5)
        guess = (
            f"did you mean {' or '.join(map(repr, similar))}?"
            if similar
            else "`workbook records` lists them."
        )
        raise NoRecord(f"There is no record {name!r}; {guess}")
    for gpu in gpus:
        if name not in names[gpu]:
            others = ", ".join(g for g in available if name in names[g])
            raise NoRecord(f"The records of {gpu} have no {name!r}; those of {others} do.")
    return list(dict.fromkeys(gpus))


def _require_same_kernels(name: str, provenances: dict[str, Provenance]) -> None:
    (first, base), *others = provenances.items()
    for gpu, provenance in others:
        kernels = {**base.sources, **provenance.sources}
        changed = sorted(k for k in kernels if base.sources.get(k) != provenance.sources.get(k))
        if changed:
            raise ValueError(
                f"Record {name!r}: {first} and {gpu} measured different versions of {', '.join(changed)}, so "
                "a difference would not only be due to the GPU. Record one of them again, or pass "
                "any_kernels=True."
            )


def _frame(cases: list[dict[str, Any]]) -> pd.DataFrame:
    """The rows of all cases; parameters of a case that its rows don't have become columns."""
    import pandas as pd

    frames = []
    for case in cases:
        frame = pd.DataFrame(case["rows"], columns=case["columns"])
        new = {name: value for name, value in case["params"].items() if name not in frame}
        frames.append(pd.concat([pd.DataFrame(new, index=frame.index), frame], axis=1))
    return pd.concat(frames, ignore_index=True)


def _keys(name: str, frames: dict[str, pd.DataFrame], on: Sequence[str] | None) -> list[str]:
    """The columns that identify a row."""
    shared = [c for c in next(iter(frames.values())) if all(c in frame for frame in frames.values())]
    if on is not None:
        if unknown := [column for column in on if column not in shared]:
            raise ValueError(
                f"Record {name!r} has no column {unknown[0]!r} in every set; it has {', '.join(shared)}."
            )
        keys = list(on)
    else:
        keys = [c for c in shared if not any(_is_measured(c, frame[c]) for frame in frames.values())]
        keys = _without_outcomes(keys, frames)
    if len(keys) == len(shared) and all(len(frame.columns) == len(keys) for frame in frames.values()):
        raise ValueError(
            f"Record {name!r} has only the columns {', '.join(keys)}, and none of them is measured; pass the "
            "columns that identify a row as on=[...]."
        )
    for gpu, frame in frames.items():
        if not keys or frame.duplicated(keys).any():
            reason = f"{', '.join(keys)} do not identify its rows" if keys else "no column identifies them"
            raise ValueError(
                f"Record {name!r} of {gpu} cannot be joined: {reason}. Pass the columns that do as on=[...]. "
                "If the rows are samples, read each set by itself."
            )
    return keys


def _without_outcomes(keys: list[str], frames: dict[str, pd.DataFrame]) -> list[str]:
    """The keys, without columns that differ from GPU to GPU and that no row needs.

    Such a column is a result, for example a count or a tuner's choice.
    """
    for column in reversed(keys):
        rest = [c for c in keys if c != column]
        first, *others = ({str(value) for value in frame[column]} for frame in frames.values())
        identified = rest and not any(frame.duplicated(rest).any() for frame in frames.values())
        if identified and any(other != first for other in others):
            keys = rest
    return keys


def _is_measured(name: str, values: pd.Series) -> bool:
    if name.lower() in _RESULTS or _UNIT.search(name):
        return True
    return any(
        isinstance(value, (list, dict)) or (isinstance(value, float) and value % 1 > 0) for value in values
    )


def _joined(frames: dict[str, pd.DataFrame], keys: list[str]) -> pd.DataFrame:
    """Join the frames on `keys`, in the order of their rows; every measured column appears once per GPU."""
    import pandas as pd

    gpus = list(frames)
    table = pd.concat([frame[keys] for frame in frames.values()]).drop_duplicates(ignore_index=True)
    for gpu, frame in frames.items():
        renamed = frame.rename(columns={c: f"{c}_{gpu}" for c in frame if c not in keys})
        table = table.merge(renamed, how="left", on=keys)
    measured = dict.fromkeys(c for frame in frames.values() for c in frame if c not in keys)
    columns = [*keys]
    for column in measured:
        columns += [f"{column}_{gpu}" for gpu in gpus if column in frames[gpu]]
        if column == _TIME and all(column in frame for frame in frames.values()):
            for gpu in gpus[1:]:
                table[f"speedup_{gpu}"] = table[f"{_TIME}_{gpus[0]}"] / table[f"{_TIME}_{gpu}"]
                columns.append(f"speedup_{gpu}")
    return table[columns]
