"""`workbook records`: what is kept of each GPU, from which day and versions, and whether the kernels are still the same."""

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
from helpers.workshop.usage import UsageError

CURRENT, CHANGED, UNKNOWN, NONE = "current", "changed", "unknown", "–"
_MEANING = f"""\
kernels  {CURRENT}: each text that was measured stands in this checkout as it was
         {CHANGED}: a Triton kernel or a Python function of that name has another text today; a GPU would measure it anew
         {UNKNOWN}: a text was not found here, so it was changed, deleted, or put together by a cell
         {NONE}: the record names no kernel's text"""


@dataclass(frozen=True)
class Kept:
    """One record of one GPU.

    Attributes:
        date, torch, triton: of its newest case.
        kernels: "current", "changed", "unknown", or "–" where the record names no kernel.
        changed, not_found: the names of kernels whose text differs today, and of those that were not found.
    """

    date: str
    torch: str
    triton: str
    kernels: str
    changed: tuple[str, ...] = ()
    not_found: tuple[str, ...] = ()


@dataclass
class Texts:
    """The kernels' texts that can be found today.

    Attributes:
        shas: of each text the sha256, as `records.fingerprint` has it.
        functions: the names of the kernels and other Python functions of `helpers.kernels` and of notebooks. Only these
            are surely what a record means: CUDA texts are often put together from parts.
    """

    shas: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)

    def read(self, text: str, *, named: bool = False) -> None:
        """Add a Python text's functions, with their decorators as `inspect.getsource` has them, and its string constants."""
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
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.add(node.value)

    def add(self, text: str) -> None:
        """Add one text."""
        self.shas.add(records.fingerprint(text)[1])


def texts_today(root: Path | None) -> Texts:
    """Every kernel's text in the package and, where `root` is a checkout, in its notebooks, solutions and benchmarks."""
    found = Texts()
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


def kept(gpus: Sequence[str], name: str, today: Texts) -> dict[str, dict[str, Kept]]:
    """The records by name, and of each the sets that have it.

    Args:
        gpus: the sets to look at; all where empty.
        name: only records whose names contain it.
        today: what `texts_today` found.

    Raises:
        UsageError: no such set, no record of that name, or a damaged one.
    """
    there = records.sets()
    for gpu in gpus:
        if gpu not in there:
            raise UsageError(
                f"There is no set of records {gpu!r} in {records.folder()}; there: {', '.join(there) or 'none'}."
            )
    table: dict[str, dict[str, Kept]] = {}
    for gpu in gpus or sorted(there):
        for record in record_names(gpu):
            if name in record:
                try:
                    cases = read_cases(records.folder() / gpu / f"{record}.json")
                except ValueError as error:
                    raise UsageError(str(error)) from error
                table.setdefault(record, {})[gpu] = _of(cases, today)
    if not table:
        raise UsageError(
            f"No record {f'with {name!r} in its name ' if name else ''}is kept in {records.folder()}."
        )
    return dict(sorted(table.items()))


def _of(cases: list[dict[str, Any]], today: Texts) -> Kept:
    sources = [item for case in cases for item in case["provenance"]["sources"].items()]
    stale = {kernel for kernel, sha in sources if sha not in today.shas}
    changed = tuple(sorted(stale & today.functions - {records.UNNAMED}))
    not_found = tuple(sorted(stale - set(changed)))
    newest = max((case["provenance"] for case in cases), key=lambda provenance: provenance["date"])
    state = NONE if not sources else CHANGED if changed else UNKNOWN if not_found else CURRENT
    versions = (str(newest[package] or NONE).partition("+")[0] for package in ("torch", "triton"))
    return Kept(newest["date"], *versions, state, changed, not_found)


def listing(table: Mapping[str, Mapping[str, Kept]]) -> str:
    """The records as a table for a terminal: a row a record, a group of columns a GPU, then which kernels have changed."""
    gpus = list(dict.fromkeys(gpu for of in table.values() for gpu in of))
    head = ("day", "torch", "triton", "kernels")
    widths = (10, 7, 7, 7)
    first = max(len("record"), *map(len, table))

    def line(name: str, groups: Iterable[Sequence[str]]) -> str:
        cells = ("  ".join(f"{c:<{w}}" for c, w in zip(group, widths, strict=True)) for group in groups)
        return "   ".join([f"{name:<{first}}", *cells]).rstrip()

    lines = [line("", ((gpu, "", "", "") for gpu in gpus)), line("record", (head for _ in gpus))]
    for name, of in table.items():
        groups = (
            (k.date, k.torch, k.triton, k.kernels) if (k := of.get(g)) else (NONE, "", "", "") for g in gpus
        )
        lines.append(line(name, groups))
    notes = [
        f"{name} of {gpu}: {', '.join(names)} {said}."
        for name, of in table.items()
        for gpu, k in of.items()
        for names, said in ((k.changed, "changed since"), (k.not_found, "not found here"))
        if names
    ]
    return "\n".join([*lines, "", *notes, *([""] if notes else []), _MEANING])
