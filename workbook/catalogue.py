"""`workbook records`: list the records of each GPU, and whether their kernels have changed since."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers import kernels, records
from helpers.kernels.source import read_kernels
from helpers.records.files import read_cases
from helpers.records.sets import record_names
from workbook.usage import UsageError

CURRENT, CHANGED, UNKNOWN, NONE = "current", "changed", "unknown", "–"
_MEANING = f"""\
kernels  {CURRENT}: every kernel that was measured is in this checkout, unchanged
         {CHANGED}: a Triton kernel or Python function of that name has changed; a GPU would measure it again
         {UNKNOWN}: a kernel's source was not found: it was changed or deleted, or a notebook assembles it
         {NONE}: the record names no kernel"""


@dataclass(frozen=True)
class RecordSummary:
    """One record of one GPU.

    Attributes:
        date, torch, triton: the date and versions of its newest case.
        kernels: "current", "changed", "unknown", or "–" if the record names no kernel.
        changed, not_found: the names of the kernels that have changed, and of those that were not found.
    """

    date: str
    torch: str
    triton: str
    kernels: str
    changed: tuple[str, ...] = ()
    not_found: tuple[str, ...] = ()


@dataclass
class KernelSources:
    """The source of today's kernels.

    Attributes:
        shas: the sha256 of each source text, as computed by `records.fingerprint`.
        functions: the names of the Triton kernels and Python functions in `helpers.kernels` and in notebooks.
            Only for these does a different hash mean that the kernel has changed, because CUDA source is
            often assembled from several parts.
    """

    shas: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)

    def read(self, text: str, *, named: bool = False) -> None:
        """Add the functions and the string constants of a Python source; `named` adds the functions' names.

        A function's text includes its decorators, like that of `inspect.getsource`.
        """
        try:
            tree = ast.parse(text)
        except SyntaxError:  # a cell with a magic
            return
        lines = text.splitlines(keepends=True)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                self.add("".join(lines[first - 1 : node.end_lineno]))
                self.functions |= {node.name} if named else set()
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "(" in node.value:
                self.add(node.value)  # every kernel has parentheses, but few other strings have

    def add(self, text: str) -> None:
        """Add one source text."""
        self.shas.add(records.fingerprint(text)[1])


def current_sources(root: Path | None) -> KernelSources:
    """Collect the source of every kernel in the package.

    Args:
        root: a checkout, whose notebooks, solutions and benchmarks are read as well.
    """
    found = KernelSources()
    here = Path(kernels.__file__).parent
    for _, block in read_kernels(here).values():
        found.add(block)
    python = list(here.parent.rglob("*.py"))
    if root is not None:
        python += sorted((root / "benchmarks").rglob("*.py"))
        for path in [*(root / "notebooks").glob("*.ipynb"), *(root / "labs" / "solutions").glob("*.ipynb")]:
            for cell in json.loads(path.read_text("utf-8"))["cells"]:
                if cell["cell_type"] == "code":
                    found.read("".join(cell["source"]), named=True)
    for path in python:
        found.read(path.read_text("utf-8"), named=path.parent == here)
    return found


def summaries(gpus: Sequence[str], name: str, current: KernelSources) -> dict[str, dict[str, RecordSummary]]:
    """Summarize the records, by their name and then by GPU.

    Args:
        gpus: the sets to list; all sets if empty.
        name: only records whose names contain this are listed.
        current: the source of today's kernels, from `current_sources`.

    Raises:
        UsageError: there is no such set or no such record, or a record is damaged.
    """
    available = records.sets()
    for gpu in gpus:
        if gpu not in available:
            raise UsageError(
                f"There is no set of records {gpu!r} in {records.folder()}; available: "
                f"{', '.join(available) or 'none'}."
            )
    table: dict[str, dict[str, RecordSummary]] = {}
    for gpu in gpus or sorted(available):
        for record in record_names(gpu):
            if name in record:
                try:
                    cases = read_cases(records.folder() / gpu / f"{record}.json")
                except ValueError as error:
                    raise UsageError(str(error)) from error
                table.setdefault(record, {})[gpu] = _summary(cases, current)
    if not table:
        raise UsageError(
            f"There is no record {f'with {name!r} in its name ' if name else ''}in {records.folder()}."
        )
    return dict(sorted(table.items()))


def changed_kernels(cases: Sequence[dict[str, Any]], current: KernelSources) -> list[str]:
    """The names of a record's kernels that have changed since it was measured, sorted."""
    return sorted(_outdated(cases, current) & current.functions - {records.UNNAMED})


def _outdated(cases: Sequence[dict[str, Any]], current: KernelSources) -> set[str]:
    """The names of the kernels whose recorded source is not among today's."""
    sources = [item for case in cases for item in (case["provenance"].get("sources") or {}).items()]
    return {kernel for kernel, sha in sources if sha not in current.shas}


def _summary(cases: Sequence[dict[str, Any]], current: KernelSources) -> RecordSummary:
    changed = changed_kernels(cases, current)
    not_found = sorted(_outdated(cases, current) - {*changed})
    has_kernels = any(case["provenance"]["sources"] for case in cases)
    newest = max((case["provenance"] for case in cases), key=lambda provenance: provenance["date"])
    state = NONE if not has_kernels else CHANGED if changed else UNKNOWN if not_found else CURRENT
    versions = (str(newest[package] or NONE).partition("+")[0] for package in ("torch", "triton"))
    return RecordSummary(newest["date"], *versions, state, tuple(changed), tuple(not_found))


def listing(table: Mapping[str, Mapping[str, RecordSummary]]) -> str:
    """Format the records for a terminal: one row per record, a group of columns per GPU, then the changes."""
    gpus = list(dict.fromkeys(gpu for by_gpu in table.values() for gpu in by_gpu))
    head = ("day", "torch", "triton", "kernels")
    widths = (10, 7, 7, 7)
    first = max(len("record"), *map(len, table))

    def line(name: str, groups: Iterable[Sequence[str]]) -> str:
        cells = ("  ".join(f"{c:<{w}}" for c, w in zip(group, widths, strict=True)) for group in groups)
        return "   ".join([f"{name:<{first}}", *cells]).rstrip()

    lines = [line("", ((gpu, "", "", "") for gpu in gpus)), line("record", (head for _ in gpus))]
    for name, by_gpu in table.items():
        groups = (
            (s.date, s.torch, s.triton, s.kernels) if (s := by_gpu.get(gpu)) else (NONE, "", "", "")
            for gpu in gpus
        )
        lines.append(line(name, groups))
    notes = [
        f"{name} of {gpu}: {', '.join(names)} {what}."
        for name, by_gpu in table.items()
        for gpu, summary in by_gpu.items()
        for names, what in ((summary.changed, "changed since"), (summary.not_found, "not found here"))
        if names
    ]
    return "\n".join([*lines, "", *notes, *([""] if notes else []), _MEANING])
