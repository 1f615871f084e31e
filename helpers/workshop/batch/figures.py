"""What a notebook found: the headlines, provenance and numbers in its outputs, ours and those of foreign notebooks.

Headlines and provenance are what `helpers.records` puts out. scrapbook's `glue` puts out scraps.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nbformat import NotebookNode

from helpers.plots import axis_title

HEADLINE = "application/vnd.kernel-workbook.headline+json"
PROVENANCE = "application/vnd.kernel-workbook.provenance+json"
# scrapbook writes a number or a list as JSON and a text as text: nteract-scrapbook.readthedocs.io, "Notebook data format".
_SCRAP = re.compile(r"application/scrapbook\.scrap\.(json|text)\+json")
_NUMBER = re.compile(r"(?<![\w.,])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w]*\d)")
_UNIT = re.compile(
    r"\s*((?:[kMGT]i?)?B(?:/s)?|[kMGT]?FLOPS?(?:/s)?|[num\N{MICRO SIGN}\N{GREEK SMALL LETTER MU}]?s|min|h|%|×|x|[kMG]?Hz"
    r"|[KMGT]?iB|[mk]?W|°C)(?![\w/])"
)
_LONGEST = 200  # characters of a text that is a figure: a row of a batch is small


@dataclass(frozen=True)
class Figure:
    """One thing that a notebook found.

    Attributes:
        name: Its column's name; the unit stands in it.
        value: A finite number, or a short text.
        source: Where it comes from, "live, GPU" or "replayed, GPU"; "" where the notebook does not tell.
        nearest: The parameters of the recorded case, where it was replayed from one with other parameters; or "".
        label: The label of the headline that it belongs to, or "".
    """

    name: str
    value: float | int | str
    source: str = ""
    nearest: str = ""
    label: str = ""

    @property
    def replayed(self) -> bool:
        """Whether it comes from a record."""
        return self.source.startswith("replayed")

    @property
    def here(self) -> float | int | str | None:
        """Its value at the parameters of its notebook; None where the record is of other ones."""
        return None if self.nearest else self.value


def bundles(notebook: NotebookNode) -> list[Mapping[str, Any]]:
    """The data of everything that an executed notebook displayed, in order."""
    return [
        output.data
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type in ("display_data", "execute_result")
    ]


def figures_of(shown: Iterable[Mapping[str, Any]]) -> tuple[Figure, ...]:
    """The figures in what a notebook displayed.

    A name that comes again gets a number behind it, but a scrap that comes again replaces the one before, as scrapbook
    has it.
    """
    found: dict[str, Figure] = {}
    scraps: dict[str, Figure] = {}
    for data in shown:
        if isinstance(headline := data.get(HEADLINE), Mapping):
            for figure in _of_headline(headline):
                name, number = figure.name, 2
                while name in found:
                    name, number = f"{figure.name} #{number}", number + 1
                found[name] = Figure(name, figure.value, figure.source, figure.nearest, figure.label)
        for kind, scrap in data.items():
            if _SCRAP.fullmatch(kind) and isinstance(scrap, Mapping):
                scraps.update({figure.name: figure for figure in _of_scrap(scrap)})
    return (*found.values(), *(figure for name, figure in scraps.items() if name not in found))


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, and no bool."""
    # Compared and not converted: an int may be above every float.
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    )


def unit_of(name: str) -> str:
    """The unit that a figure's name holds, such as "GB/s" of `square_gb_per_s` and of "copy (GB/s)"; "" where none."""
    match = re.search(r"\(([^()]+)\)$", axis_title(re.sub(r" #\d+$", "", name)))
    return match[1] if match else ""


def _of_headline(headline: Mapping[str, Any]) -> Iterator[Figure]:
    label, value = str(headline.get("label", "")), str(headline.get("value", ""))
    source, nearest = str(headline.get("source", "")), str(headline.get("nearest", ""))
    given = headline.get("figures")
    numbers = given if isinstance(given, Mapping) and given else _read(label, value)
    for name, number in numbers.items():
        if is_number(number):
            yield Figure(str(name), number, source, nearest, label)


def _of_scrap(scrap: Mapping[str, Any]) -> Iterator[Figure]:
    name, data = str(scrap.get("name", "")).strip(), scrap.get("data")
    values = {name: data}
    if isinstance(data, Mapping):
        values = {f"{name}.{key}": value for key, value in data.items()}
    for key, value in values.items():
        if isinstance(value, bool) or (isinstance(value, str) and len(value) <= _LONGEST):
            yield Figure(key, str(value))
        elif is_number(value):
            yield Figure(key, value)


def _read(label: str, value: str) -> dict[str, float]:
    """The numbers of a headline that gives none: those of "266 µs · 2,959 GB/s" with their units.

    A part with several numbers, or with one inside a word, is a text.
    """
    numbers: dict[str, float] = {}
    for part in re.split(r" · |[,;] ", value):
        found = list(_NUMBER.finditer(part))
        if len(found) != 1:
            continue
        unit = _UNIT.match(part, found[0].end())
        around = [part[: found[0].start()], part[unit.end() if unit else found[0].end() :]]
        if any(c.isdigit() for c in "".join(around)):
            continue
        name = ", ".join(filter(None, [label, *(words.strip(" :=") for words in around)]))
        name += f" ({unit[1]})" if unit else ""
        numbers.setdefault(name, float(found[0][0].replace(",", "")))
    return numbers
