"""What the book is made of: the lessons that were executed and the labs' starters, with what README says of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from helpers.workshop.project import UNPUBLISHED, Project
from helpers.workshop.usage import UsageError

# A row of README's tables: [name](path) | minutes | what it says |
_ROW = re.compile(
    r"^\| \[([^\]]+)\]\(((?:notebooks|labs)/[\w.-]+\.ipynb)\) \| (\d+) \| (.*?) \|", re.MULTILINE
)
_MINUTES = re.compile(r"(\d+) minutes")
_DEEPER = "### Deeper"


@dataclass(frozen=True)
class Entry:
    """A lesson or a lab.

    Attributes:
        path: From the checkout, "notebooks/01_profiling.ipynb".
        name: What a list calls it, "01 Profiling".
        minutes: How long it takes; None where nothing says it.
        says: What it answers, a line of Markdown; "" where README has none.
        deeper: It comes after the core lessons.
        notebook: As executed; a lab's starter as it is.
    """

    path: str
    name: str
    minutes: int | None
    says: str
    deeper: bool
    notebook: NotebookNode

    @property
    def page(self) -> str:
        """Its page's place in the book."""
        return self.path.removesuffix(".ipynb") + ".html"

    @property
    def stem(self) -> str:
        """`01_profiling`, which a lesson and its lab share."""
        return Path(self.path).stem

    @property
    def title(self) -> str:
        """Its first heading."""
        first = next((cell.source for cell in self.notebook.cells if cell.cell_type == "markdown"), "")
        match = re.search(r"^# (.+)$", first, re.MULTILINE)
        return match[1].strip() if match else self.name


def read_course(project: Project, executed: Path) -> tuple[list[Entry], list[Entry], list[str]]:
    """The lessons as executed, and the labs' starters.

    Args:
        project: The checkout.
        executed: The folder of `workbook run notebooks`.

    Returns:
        Lessons, labs, and a sentence for each lesson that was changed since it was executed.

    Raises:
        UsageError: A lesson was not executed, an executed notebook cannot be read, or one of its cells failed.
    """
    rows = _rows(project.root)
    sources = project.lessons()
    if not sources:
        raise UsageError(f"{project.root / 'notebooks'} holds no lesson to make a book of.")
    missing = [path.name for path in sources if not (executed / path.name).is_file()]
    if missing:
        raise UsageError(
            f"{executed} lacks {', '.join(missing)}: a book is made of executed lessons. "
            f"Run `workbook run notebooks --out {executed}` first, or name another folder with --executed."
        )
    lessons, stale = [], []
    for path in sources:
        notebook = _read(executed / path.name)
        if failed := _failed(notebook):
            raise UsageError(
                f"{executed / path.name}: cell {failed} failed. Mend the lesson, run it again with "
                f"`workbook run notebooks/{path.name} --out {executed}`, then make the book."
            )
        if _texts(_read(path)) != _texts(notebook):
            stale.append(f"{path.name} was changed since it was executed; the book shows it as it was then.")
        lessons.append(_entry(f"notebooks/{path.name}", notebook, rows))
    labs = [
        _entry(f"labs/{path.name}", _read(path), rows)
        for path in sorted((project.root / "labs").glob("*.ipynb"))
    ]
    return lessons, labs, stale


def colab(project: Project, entry: Entry) -> str | None:
    """Where a notebook opens in Colab; None before the repository has an address."""
    if project.repository == UNPUBLISHED:
        return None
    return f"https://colab.research.google.com/github/{project.repository}/blob/main/{entry.path}"


def _rows(root: Path) -> dict[str, tuple[str, int, str, bool]]:
    readme = root / "README.md"
    text = readme.read_text("utf-8") if readme.is_file() else ""
    after = text.find(_DEEPER) if _DEEPER in text else len(text)
    labs = text.find("\n## Labs")
    return {
        m[2]: (m[1], int(m[3]), m[4].strip(), m.start() > after and not 0 <= labs < m.start())
        for m in _ROW.finditer(text)
    }


def _entry(path: str, notebook: NotebookNode, rows: dict[str, tuple[str, int, str, bool]]) -> Entry:
    if path in rows:
        return Entry(path, *rows[path], notebook)
    said = _MINUTES.search(" ".join(cell.source for cell in notebook.cells[:3]))
    stem = Path(path).stem
    name = f"{stem[:2]} {stem[3:].replace('_', ' ').capitalize()}" if re.match(r"\d\d_", stem) else stem
    return Entry(path, name, int(said[1]) if said else None, "", False, notebook)


def _read(path: Path) -> NotebookNode:
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises what JSON, its schema or the file does
        raise UsageError(f"{path} cannot be read as a notebook: {error}") from error


def _texts(notebook: NotebookNode) -> list[str]:
    """The cells' texts, without the cell that papermill adds for given parameters."""
    return [c.source for c in notebook.cells if "injected-parameters" not in tags(c)]


def _failed(notebook: NotebookNode) -> str | None:
    for cell in notebook.cells:
        allowed = "raises-exception" in tags(cell)
        if not allowed and any(o.output_type == "error" for o in cell.get("outputs", [])):
            return cell.get("id") or "without an id"
    return None


def tags(cell: NotebookNode) -> Iterable[str]:
    """A cell's tags."""
    return cell.metadata.get("tags", [])
