"""What goes into the book: the executed lessons, the labs' starters, and the checkout's own documents.

README's table has each lesson's title, minutes and question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import yaml
from nbformat import NotebookNode

from workbook.project import Project
from workbook.usage import UsageError

# The pages that are written by hand, and the data of those that are computed.
SOURCES = "docs/book"
GUIDE = "docs/guide"
CHANGELOG = "CHANGELOG.md"
# A row of README's table: [name](notebooks/name.ipynb) | minutes | what it shows | [lab](labs/…), 90 min |
_ROW = re.compile(
    r"^\| \[([^\]]+)\]\(notebooks/([\w.-]+)\.ipynb\) \| (\d+) \| (.*?) \|(?:.*\]\(labs/[^)]*\), (\d+) min)?",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Entry:
    """A lesson or a lab.

    Attributes:
        path: From the checkout, "notebooks/01_profiling.ipynb".
        name: Its short title, "01 Profiling".
        minutes: How long it takes; None if README doesn't have it.
        answers: What the lesson shows, a line of Markdown; "" for a lab.
        notebook: The lesson as executed, or the lab's starter.
    """

    path: str
    name: str
    minutes: int | None
    answers: str
    notebook: NotebookNode

    @property
    def stem(self) -> str:
        """`01_profiling`, which a lesson and its lab share."""
        return Path(self.path).stem

    @property
    def listed(self) -> str:
        """Its line in a toctree."""
        return f"{self.name} <{self.path.removesuffix('.ipynb')}>"

    def colab(self, repository: str) -> str:
        """The address at which Colab opens the notebook."""
        return f"https://colab.research.google.com/github/{repository}/blob/main/{self.path}"


@dataclass(frozen=True)
class Course:
    """Everything that the book shows.

    Attributes:
        project: The checkout.
        lessons, labs: By stem, in order.
        guide: The pages in `docs/guide`, in order, from the checkout.
        stale: A sentence for each lesson that has changed since it was executed.
    """

    project: Project
    lessons: dict[str, Entry]
    labs: dict[str, Entry]
    guide: list[str]
    stale: list[str]

    @property
    def paths(self) -> set[str]:
        """The files of the checkout that have a page in the book."""
        notebooks = {entry.path for entry in (*self.lessons.values(), *self.labs.values())}
        return notebooks | {*self.guide, CHANGELOG}


def read_course(project: Project, executed: Path) -> Course:
    """Read the executed lessons and what belongs to them.

    Args:
        project: The checkout.
        executed: The folder of `workbook run notebooks`.

    Raises:
        UsageError: A lesson was not executed, a notebook cannot be read, or one of its cells failed.
    """
    root = project.root
    rows = _readme(root)
    _require_executed(project, executed)
    lessons, labs, stale = {}, {}, []
    for path in project.lessons():
        notebook = _read(executed / path.name)
        if failed := _failed_cell(notebook):
            raise UsageError(
                f"{executed / path.name}: cell {failed} failed. Fix the lesson, run it again with "
                f"`workbook run notebooks/{path.name} --out {executed}`, then build the book."
            )
        if _sources(_read(path)) != _sources(notebook):
            stale.append(
                f"{path.name} has changed since it was executed; the book shows the executed version."
            )
        name, minutes, answers, _ = rows.get(path.stem, (_name(path.stem), None, "", None))
        lessons[path.stem] = Entry(f"notebooks/{path.name}", name, minutes, answers, notebook)
    for path in sorted((root / "labs").glob("*.ipynb")):
        name, _, _, minutes = rows.get(path.stem, (_name(path.stem), None, "", None))
        labs[path.stem] = Entry(f"labs/{path.name}", name, minutes, "", _read(path))
    return Course(project, lessons, labs, _guide(root), stale)


def _require_executed(project: Project, executed: Path) -> None:
    sources = project.lessons()
    if not sources:
        raise UsageError(f"{project.root / 'notebooks'} has no lessons to build a book from.")
    if missing := [path.name for path in sources if not (executed / path.name).is_file()]:
        raise UsageError(
            f"{executed} lacks {', '.join(missing)}: the book is built from executed lessons. "
            f"Run `workbook run notebooks --out {executed}` first, or choose another folder with --executed."
        )


def _guide(root: Path) -> list[str]:
    """The guide's pages: its index, those that the index links in their order, and then the others."""
    index = root / GUIDE / "index.md"
    linked = re.findall(r"\]\(([\w-]+)\.md\)", index.read_text("utf-8")) if index.is_file() else []
    others = sorted(path.stem for path in index.parent.glob("*.md"))
    names = [name for name in dict.fromkeys(("index", *linked, *others)) if name in others]
    return [f"{GUIDE}/{name}.md" for name in names]


def read_yaml(path: Path) -> Any:
    """A YAML file's content; None if there is no such file."""
    return yaml.safe_load(path.read_text("utf-8")) if path.is_file() else None


def cell_link(cell: str) -> str:
    """A Markdown link from the book's top folder to a cell, "01_profiling/picture"; Sphinx resolves it."""
    lesson, name = cell.split("/")
    return f"[Lesson {lesson[:2]}](notebooks/{lesson}.ipynb#cell-id={name})"


def _readme(root: Path) -> dict[str, tuple[str, int, str, int | None]]:
    """By stem: a lesson's name, minutes and sentence, and its lab's minutes."""
    readme = root / "README.md"
    text = readme.read_text("utf-8") if readme.is_file() else ""
    return {m[2]: (m[1], int(m[3]), m[4], int(m[5]) if m[5] else None) for m in _ROW.finditer(text)}


def _name(stem: str) -> str:
    number, _, words = stem.partition("_")
    return f"{number} {words.replace('_', ' ').capitalize()}".strip()


def _read(path: Path) -> NotebookNode:
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises whatever JSON, its schema or the file raises
        raise UsageError(f"{path} cannot be read as a notebook: {error}") from error


def _sources(notebook: NotebookNode) -> list[str]:
    """The cells' sources, without the cell that papermill adds for parameters."""
    return [cell.source for cell in notebook.cells if "injected-parameters" not in tags(cell)]


def _failed_cell(notebook: NotebookNode) -> str | None:
    for cell in notebook.cells:
        allowed = "raises-exception" in tags(cell)
        if not allowed and any(output.output_type == "error" for output in cell.get("outputs", [])):
            return cell.get("id") or "without an id"
    return None


def tags(cell: NotebookNode) -> Iterable[str]:
    """A cell's tags."""
    return cell.metadata.get("tags", [])
