"""Read a notebook's results from its outputs.

`helpers.records` displays headlines and provenance. Other people's notebooks may contain scraps, which the
`glue` of scrapbook displays.
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
# scrapbook has one type for numbers and lists and one for texts: see "Notebook data format" on
# nteract-scrapbook.readthedocs.io.
_SCRAP = re.compile(r"application/scrapbook\.scrap\.(json|text)\+json")
_NUMBER = re.compile(r"(?<![\w.,])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w]*\d)")
_UNIT = re.compile(
    r"\s*((?:[kMGT]i?)?B(?:/s)?|[kMGT]?FLOPS?(?:/s)?|[num\N{MICRO SIGN}\N{GREEK SMALL LETTER "
    r"MU}]?s|min|h|%|×|x|[kMG]?Hz"
    r"|[KMGT]?iB|[mk]?W|°C)(?![\w/])"
)
_LONGEST = 200  # the most characters of a text that becomes a figure


@dataclass(frozen=True)
class Figure:
    """One result of a notebook.

    Attributes:
        name: The name of its column, with its unit.
        value: A finite number, or a short text.
        source: "live, GPU", "replayed, GPU", or "" if the notebook doesn't say.
        nearest: The parameters of the record that it comes from if they are others than the notebook's, or
            "".
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
        """The value if it belongs to the notebook's own parameters, else None."""
        return None if self.nearest else self.value


def bundles(notebook: NotebookNode) -> list[Mapping[str, Any]]:
    """The MIME bundles that an executed notebook displayed, in order."""
    return [
        output.data
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type in ("display_data", "execute_result")
    ]


def figures_of(displayed: Iterable[Mapping[str, Any]]) -> tuple[Figure, ...]:
    """The figures in the MIME bundles that a notebook displayed.

    If a headline's figure has the name of an earlier one, a number is appended to its name. A scrap replaces
    an earlier scrap of the same name, as in scrapbook.
    """
    found: dict[str, Figure] = {}
    scraps: dict[str, Figure] = {}
    for data in displayed:
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
    """Whether a value is a finite number and not a bool."""
    # A comparison instead of math.isfinite, because an int may be larger than any float.
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    )


def unit_of(name: str) -> str:
    """The unit in a figure's name, such as "GB/s" in `square_gb_per_s` and in "copy (GB/s)", or ""."""
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
    """Read the numbers and units in a headline's text, such as "266 µs · 2,959 GB/s".

    A part with several numbers, or with a number inside a word, is ignored.
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
