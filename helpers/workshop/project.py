"""The checkout that notebooks belong to: its folder, its repository's address, its marked kernels.

A kernel that lessons show stands in helpers/kernels between the lines `# [kernel:NAME]` and `# [/kernel:NAME]` (`//` in
C++ and CUDA).
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDERS = ("notebooks", "labs", "labs/solutions")
_LABS, _SOLUTIONS = FOLDERS[1:]
_MARKER = re.compile(r"^\s*(?:#|//)\s*\[(/?)kernel:([A-Za-z_]\w*)\]\s*$")


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


def read_kernels(folder: Path) -> dict[str, tuple[str, str]]:
    """Every marked block under `folder`: kernel name to (file suffix, text without the markers).

    Raises:
        ValueError: A marker without its partner, a block inside a block, or one name in two places.
    """
    kernels: dict[str, tuple[str, str]] = {}
    for path in sorted(p for p in folder.glob("*") if p.suffix in {".py", ".cu", ".cpp"}):
        name, block = None, []
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            marker = _MARKER.match(line)
            where = f"{path.name}, line {number}"
            if not marker:
                block.append(line)
            elif marker[1]:
                if marker[2] != name:
                    raise ValueError(f"{where}: [/kernel:{marker[2]}] closes a block that is not open.")
                kernels[name] = (path.suffix, "\n".join(block).strip("\n"))
                name = None
            else:
                if name is not None:
                    raise ValueError(f"{where}: [kernel:{marker[2]}] opens before [kernel:{name}] is closed.")
                if marker[2] in kernels:
                    raise ValueError(
                        f"{where}: the kernel {marker[2]} is already marked elsewhere; names are unique."
                    )
                name, block = marker[2], []
        if name is not None:
            raise ValueError(f"{path.name}: [kernel:{name}] is never closed; end it with [/kernel:{name}].")
    return kernels


def kernel_cell(name: str, suffix: str, block: str) -> str:
    """The source of the cell that shows a kernel: the block itself, or a raw string that holds it."""
    if suffix == ".py":
        return block
    return f'{name.upper()}_{"CUDA" if suffix == ".cu" else "CPP"} = r"""\n{block}\n"""'
