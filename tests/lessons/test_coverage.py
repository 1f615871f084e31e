"""docs/coverage.md: every subject of the course has a cell that exists and runs."""

from __future__ import annotations

import re

import nbformat
import pytest
from commands import ROOT

TEXT = (ROOT / "docs" / "coverage.md").read_text("utf-8")
SECTIONS = {part[:2]: part for part in TEXT.split("\n## ")[1:]}
_CELL = re.compile(r"`(?:(?P<lab>lab )?(?P<number>\d\d): )?(?P<cell>[a-z][a-z0-9-]*)`")


def cells(folder: str, number: str) -> dict[str, str]:
    """The ids of a notebook's cells, with their types."""
    path = next((ROOT / folder).glob(f"{number}_*.ipynb"))
    return {cell.id: cell.cell_type for cell in nbformat.read(path, as_version=4).cells}


@pytest.mark.parametrize("number", SECTIONS)
def test_every_subject_names_code_cells_that_exist(number):
    rows = re.findall(r"^\| (?!subject|---)(.+?) \| (.+?) \|$", SECTIONS[number], re.MULTILINE)
    for subject, named in rows:
        found = list(_CELL.finditer(named))
        assert found, f"lesson {number}: no cell for {subject}"
        kinds = [
            cells("labs" if m["lab"] else "notebooks", m["number"] or number).get(m["cell"]) for m in found
        ]
        assert None not in kinds, f"lesson {number}, {subject}: {named}"
        assert "code" in kinds, f"lesson {number}, {subject}: only text"
