"""The checkout that notebooks belong to: its folder, its repository's address, its marked kernels."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from helpers.kernels.source import read_kernels

FOLDERS = ("notebooks", "labs", "labs/solutions")
_LESSONS, _LABS, _SOLUTIONS = FOLDERS
# What stands for the repository's address until `workbook publish` writes one.
UNPUBLISHED = "OWNER/REPO"


@dataclass(frozen=True)
class Project:
    """The checkout that notebooks belong to.

    Attributes:
        root: The folder of pyproject.toml.
        repository: `OWNER/REPO` on GitHub, from `[project.urls] Repository`.
        kernels: Kernel name to (suffix of its source file, the text of its block).
    """

    root: Path
    repository: str
    kernels: dict[str, tuple[str, str]]

    def notebooks(self) -> list[Path]:
        """Every notebook that the form applies to, sorted: lessons, labs, solutions."""
        return [path for folder in FOLDERS for path in sorted((self.root / folder).glob("*.ipynb"))]

    def lessons(self) -> list[Path]:
        """Every lesson, sorted."""
        return sorted((self.root / _LESSONS).glob("*.ipynb"))

    def solutions(self) -> list[Path]:
        """Every lab's solution, from which its starter is derived."""
        return sorted((self.root / _SOLUTIONS).glob("*.ipynb"))

    def starter_of(self, path: Path) -> Path | None:
        """The starter of a solution; None for every other notebook."""
        inside = path.resolve().parent == (self.root / _SOLUTIONS).resolve()
        return self.root / _LABS / path.name if inside else None

    def solution_of(self, path: Path) -> Path | None:
        """The solution of a starter, whether or not it is there; None for every other notebook."""
        inside = path.resolve().parent == (self.root / _LABS).resolve()
        return self.root / _SOLUTIONS / path.name if inside else None


def find_root(start: Path | None = None) -> Path:
    """The checkout's folder: the nearest one upwards from `start` (default: here) whose pyproject is ours.

    Raises:
        RuntimeError: `start` lies in no checkout of the workbook.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        pyproject = folder / "pyproject.toml"
        if (
            pyproject.is_file()
            and tomllib.loads(pyproject.read_text("utf-8")).get("project", {}).get("name")
            == "kernel-workbook"
        ):
            return folder
    raise RuntimeError(
        f"{start} lies in no checkout of kernel-workbook: run this command in the folder that holds its pyproject.toml."
    )


def load_project(root: Path) -> Project:
    """Read the repository's address and the kernels' sources of the checkout at `root`.

    Raises:
        ValueError: `[project.urls] Repository` is no GitHub address, or a kernel's markers do not pair up.
    """
    urls = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"].get("urls", {})
    address = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?", urls.get("Repository", ""))
    if not address:
        raise ValueError(
            f"pyproject.toml: [project.urls] Repository is {urls.get('Repository')!r}; "
            "write https://github.com/OWNER/REPO, or run `workbook publish OWNER/REPO`."
        )
    return Project(root, address[1], read_kernels(root / "helpers" / "kernels"))
