"""The checkout that notebooks belong to: its folder, its address on GitHub, and its marked kernels."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from helpers.kernels.source import read_kernels

FOLDERS = ("notebooks", "labs", "labs/solutions")
_LESSONS, _LABS, _SOLUTIONS = FOLDERS
MINUTES = f"{_LESSONS}/minutes.json"  # `workbook minutes` writes it
# The placeholder for the repository's address until `workbook publish` sets it.
UNPUBLISHED = "OWNER/REPO"


@dataclass(frozen=True)
class Project:
    """The checkout that notebooks belong to.

    Attributes:
        root: The folder that holds pyproject.toml.
        repository: The repository on GitHub as `OWNER/REPO`, from `[project.urls] Repository`.
        kernels: For each kernel name, the suffix of its source file and the text of its block.
        minutes: For each lesson the minutes of its parts, from notebooks/minutes.json.
    """

    root: Path
    repository: str
    kernels: dict[str, tuple[str, str]]
    minutes: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def published(self) -> bool:
        """Whether the repository has an address, so that links and badges to it work."""
        return self.repository != UNPUBLISHED

    def notebooks(self) -> list[Path]:
        """Every notebook that `workbook form` looks after: lessons, labs and solutions, each sorted."""
        return [path for folder in FOLDERS for path in sorted((self.root / folder).glob("*.ipynb"))]

    def lessons(self) -> list[Path]:
        """Every lesson, sorted."""
        return sorted((self.root / _LESSONS).glob("*.ipynb"))

    def solutions(self) -> list[Path]:
        """The solution of every lab, from which its starter is derived."""
        return sorted((self.root / _SOLUTIONS).glob("*.ipynb"))

    def starter_of(self, path: Path) -> Path | None:
        """The starter that belongs to a solution, or None for any other notebook."""
        inside = path.resolve().parent == (self.root / _SOLUTIONS).resolve()
        return self.root / _LABS / path.name if inside else None

    def solution_of(self, path: Path) -> Path | None:
        """The solution that belongs to a starter, even if it is missing, or None for any other notebook."""
        inside = path.resolve().parent == (self.root / _LABS).resolve()
        return self.root / _SOLUTIONS / path.name if inside else None


def find_root(start: Path | None = None) -> Path:
    """Find the checkout around `start` (default: the current folder) by its pyproject.toml.

    Raises:
        RuntimeError: `start` is not inside a checkout of the workbook.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        pyproject = folder / "pyproject.toml"
        if not pyproject.is_file():
            continue
        if tomllib.loads(pyproject.read_text("utf-8")).get("project", {}).get("name") == "kernel-workbook":
            return folder
    raise RuntimeError(
        f"{start} is not inside a checkout of kernel-workbook: run this command in the folder that holds its "
        "pyproject.toml."
    )


def load_project(root: Path) -> Project:
    """Read the address and the marked kernels of the checkout at `root`.

    Raises:
        ValueError: `[project.urls] Repository` is not a GitHub address, or a kernel's markers don't pair up.
    """
    urls = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"].get("urls", {})
    address = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?", urls.get("Repository", ""))
    if not address:
        raise ValueError(
            f"pyproject.toml: [project.urls] Repository is {urls.get('Repository')!r}; "
            "write https://github.com/OWNER/REPO, or run `workbook publish OWNER/REPO`."
        )
    stored = root / MINUTES
    minutes = json.loads(stored.read_text("utf-8")) if stored.is_file() else {}
    return Project(root, address[1], read_kernels(root / "helpers" / "kernels"), minutes)
