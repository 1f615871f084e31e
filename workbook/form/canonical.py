"""The canonical form of a notebook, which keeps diffs down to what a person changed.

`canonical` brings a notebook into this form and lists where its file differs from it:

* The file is nbformat 4.5 with sorted keys, an indent of one space and a newline at the end. Every notebook
  has the same metadata: the kernel `python3`, and a T4 in Colab.
* Cell ids are words, cell metadata has nothing but tags, and there are no empty cells.
* A cell that is tagged `hide-input`, or that only asks or reveals, also has the metadata that folds its code
  in JupyterLab and Colab, so that no answer is on screen before its cell runs.
* A cell tagged `nbval-check-output` keeps its outputs and the execution count 1, so that nbval compares them.
  All other cells lose both. nbval silently passes a checked cell without an execution count, so the form
  reports such a cell as a problem.
* The cell tagged `setup` holds `setup_source`. Once the repository has an address in pyproject.toml, the cell
  `title` has a Colab badge below its heading; until then no cell has one.
* A lesson's cell tagged `exercise` shows the starter, and the text cell after it the solution, that
  `workbook.form.exercises` reads from notebooks/solutions.
* A cell tagged `kernel:NAME` shows the code between the lines `# [kernel:NAME]` and `# [/kernel:NAME]` in
  helpers/kernels (`//` in C++ and CUDA).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from helpers.kernels.source import kernel_cell
from workbook.form import exercises
from workbook.form.source import only_questions
from workbook.project import UNPUBLISHED, Project

CHECKED = "nbval-check-output"
HIDDEN = "hide-input"
# The metadata with which JupyterLab and Colab fold a cell's code.
FOLDED = {"cellView": "form", "jupyter": {"source_hidden": True}}
METADATA = {
    "accelerator": "GPU",
    "colab": {"gpuType": "T4"},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SETUP = """\
import importlib.util  # the setup, the same in every notebook

if not importlib.util.find_spec("helpers"):
    @INSTALL@
from helpers import device

device.prepare()"""
# Colab's own torch, triton, IPython and ipywidgets satisfy pyproject's ranges, so pip doesn't replace them.
# The time is that of a few small packages and a copy of the repository, which holds 16 MB.
_INSTALL = """\
print("Installing Kernel Workbook and a few small packages. It takes about a minute.")
    %pip install --quiet "kernel-workbook @ git+https://github.com/@REPOSITORY@\""""
# IPython prints the message of a SystemExit without a traceback and runs no further cell.
_NO_ADDRESS = '''\
raise SystemExit("""\\
Kernel Workbook isn't installed. On your own machine, run `make lab`, or choose the kernel in .venv.
In Colab, ask whoever gave you this notebook for its ZIP file.
1. Click the folder icon on the left, and drag the file there.
2. Run %pip install FILE.zip in a new cell, with your file's name: about a minute.
3. Run this cell again.""")'''

_BADGE = re.compile(
    r"\n*(\[!\[Open in Colab\]\([^)]*\)\]\(https://colab\.research\.google\.com/github/[^)]*\))\n*",
    re.IGNORECASE,
)
_BADGE_IMAGE = "https://colab.research.google.com/assets/colab-badge.svg"
# What a title states: "**Part A, about 35 minutes:**", or "about 45 minutes" for a lesson without parts.
_STATED = re.compile(r"(?:(?<=\*\*Part )(?P<part>[A-Z]), )?about \d+ minutes")
_WORDS = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_HEX_ID = re.compile(r"(?=.*\d)[0-9a-f]{6,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Text that differs between machines, so nbval cannot compare it.
_UNSTABLE = (
    (re.compile(r"\b0x[0-9a-f]{9,}\b"), "a memory address"),
    (re.compile(r"(?<![\w.])/(?:tmp|home|root|Users|work|usr|content)/[\w./-]+"), "a path of this machine"),
)
# nbval doesn't compare these, or they are random, so storing them would only make diffs.
_UNCOMPARED = ("application/vnd.jupyter.widget-view+json", "image/png", "image/jpeg")
_INCOMPARABLE = ("application/vnd.plotly.v1+json", "application/vnd.kernel-workbook.provenance+json")


@dataclass(frozen=True)
class Formed:
    """A notebook in canonical form.

    Attributes:
        path: The notebook's file.
        text: The content of the file in canonical form.
        differences: One sentence for each difference between the file and `text`; empty if there is none.
        problems: One sentence for each problem that only a person can fix.
    """

    path: Path
    text: str
    differences: tuple[str, ...]
    problems: tuple[str, ...]


def setup_source(repository: str) -> str:
    """The source of every setup cell, which installs the workbook from `repository` if it is missing.

    Until the repository has an address, the cell stops and tells the learner how to install it instead.
    """
    install = _NO_ADDRESS if repository == UNPUBLISHED else _INSTALL.replace("@REPOSITORY@", repository)
    return SETUP.replace("@INSTALL@", install)


def badge(repository: str, path: str) -> str:
    """The Colab badge, in Markdown, of the notebook at `path` in the repository."""
    target = f"https://colab.research.google.com/github/{repository}/blob/main/{path}"
    return f"[![Open in Colab]({_BADGE_IMAGE})]({target})"


def without_badge(source: str) -> str:
    """The source of a text cell without its Colab badge."""
    return _BADGE.sub("\n\n", source).strip("\n")


def shown_name(path: Path, project: Project) -> str:
    """The notebook's name in messages: its file name, and for a lab the folder too, because a lab and its
    solution have the same file name.
    """
    in_labs = project.starter_of(path) or project.solution_of(path)
    return path.resolve().relative_to(project.root.resolve()).as_posix() if in_labs else path.name


def stated_minutes(title: str, minutes: Mapping[str, int]) -> str:
    """A title's text with the minutes of each part, or of the whole lesson if it has no parts ("")."""

    def one(match: re.Match[str]) -> str:
        n = minutes.get(match["part"] or "")
        return match[0] if n is None else re.sub(r"\d+", str(n), match[0])

    return _STATED.sub(one, title)


def tags(cell: NotebookNode) -> list[str]:
    """The cell's tags, or an empty list."""
    return list(cell.metadata.get("tags", []))


def canonical(path: Path, project: Project, text: str | None = None) -> Formed:
    """Bring one notebook into its canonical form, in memory.

    Args:
        path: The notebook's file.
        project: The checkout that it belongs to.
        text: The notebook's content, if it is not to be read from the file (for example after a run).

    Raises:
        ValueError: The file is not a notebook.
    """
    before = path.read_text("utf-8") if text is None else text
    try:
        notebook = nbformat.reads(before, as_version=4)
        original = nbformat.reads(before, as_version=4)
    except Exception as error:
        raise ValueError(f"{path.name} is not a notebook that nbformat can read: {error}") from error
    filename = shown_name(path, project)
    problems: list[str] = []
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(METADATA)
    cells = [cell for cell in notebook.cells if cell.source.strip() or tags(cell)]
    used_ids: set[str] = set()
    for cell in cells:
        cell.source = cell.source.strip("\n").replace("\r\n", "\n")
        if cell.cell_type != "markdown" or not any(line.endswith("  ") for line in cell.source.splitlines()):
            cell.source = "\n".join(line.rstrip() for line in cell.source.splitlines())
        cell.id = _word_id(cell, used_ids)
        used_ids.add(cell.id)
        cell.metadata = nbformat.from_dict(_metadata(cell))
        if cell.cell_type == "code":
            _form_code(cell, filename, project, problems)
    notebook.cells = cells
    if path.resolve().parent == (project.root / "notebooks").resolve():
        problems += exercises.fill(notebook, exercises.solutions_of(path), filename)
        lesson_minutes = project.minutes.get(path.stem, {})
        for cell in notebook.cells:
            if cell.id == "title":
                cell.source = stated_minutes(cell.source, lesson_minutes)
    _form_lesson(notebook, path, filename, project, problems)
    formed = nbformat.writes(notebook, version=4) + "\n"
    on_disk = path.read_text("utf-8") if path.exists() else ""
    differences = () if formed == on_disk else tuple(_differences(original, notebook, filename))
    return Formed(path, formed, differences, tuple(problems))


def _metadata(cell: NotebookNode) -> dict:
    """The metadata that a cell has in canonical form: its tags, and what folds its code."""
    is_folded = cell.cell_type == "code" and (HIDDEN in tags(cell) or only_questions(cell.source))
    named = {"tags": sorted(set(tags(cell)))} if tags(cell) else {}
    return {**(FOLDED if is_folded else {}), **named}


def _form_code(cell: NotebookNode, filename: str, project: Project, problems: list[str]) -> None:
    """Fill in the source that a code cell's tags ask for, and store or strip its outputs."""
    for tag in tags(cell):
        if tag == "setup":
            cell.source = setup_source(project.repository)
        elif tag.startswith("kernel:"):
            name = tag.removeprefix("kernel:")
            if name in project.kernels:
                cell.source = kernel_cell(name, *project.kernels[name])
            else:
                known = ", ".join(sorted(project.kernels)) or "none"
                problems.append(
                    f"{filename}: cell {cell.id} shows kernel:{name}, but helpers/kernels marks no such "
                    f"kernel (it has {known})."
                )
    if CHECKED not in tags(cell):
        cell.outputs, cell.execution_count = [], None
        return
    ran = cell.execution_count is not None
    cell.outputs = _stable_outputs(cell.outputs)
    cell.execution_count = 1 if ran else None
    if not ran or not cell.outputs:
        problems.append(
            f"{filename}: cell {cell.id} is checked but has no stored output, so nbval would accept whatever "
            f"it prints. Run `workbook form --execute {filename}`."
        )
    problems.extend(f"{filename}: checked cell {cell.id} {what}." for what in _instabilities(cell.outputs))


def _stable_outputs(outputs: Iterable[NotebookNode]) -> list[NotebookNode]:
    """Only what nbval compares in the outputs, with streams joined as nbval joins them."""
    stable: list[NotebookNode] = []
    streams: dict[str, NotebookNode] = {}
    for output in outputs:
        output = nbformat.from_dict(output)
        if output.output_type == "stream":
            if output.name in streams:
                streams[output.name].text += output.text
                continue
            streams[output.name] = output
        elif output.output_type == "error":
            output.traceback = []
        else:
            output.metadata = {}
            output.data = {mime: value for mime, value in output.data.items() if mime not in _UNCOMPARED}
            if output.output_type == "execute_result":
                output.execution_count = 1
        stable.append(output)
    return stable


def _instabilities(outputs: Iterable[NotebookNode]) -> list[str]:
    """What in a checked cell's outputs would differ on another machine, as ends of sentences."""
    found = []
    for output in outputs:
        if output.output_type == "stream":
            if output.name == "stderr":
                found.append(
                    "writes to stderr, where this machine's warnings go too: print to stdout instead"
                )
            texts = [output.text]
        elif output.output_type == "error":
            texts = [output.evalue]
        else:
            found += [
                f"shows {mime}, which nbval cannot compare" for mime in _INCOMPARABLE if mime in output.data
            ]
            texts = [value for mime, value in output.data.items() if isinstance(value, str)]
        for text in texts:
            for pattern, what in _UNSTABLE:
                if match := pattern.search(text):
                    found.append(f"prints {what} ({match[0]})")
    return list(dict.fromkeys(found))


def _form_lesson(
    notebook: NotebookNode, path: Path, filename: str, project: Project, problems: list[str]
) -> None:
    """Check that there is one setup cell, and put the badge where it belongs."""
    setups = [cell for cell in notebook.cells if "setup" in tags(cell)]
    if len(setups) != 1:
        problems.append(f"{filename}: {len(setups)} cells are tagged setup; there must be exactly one.")
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = without_badge(cell.source)
    if not project.published:
        return
    title = next((c for c in notebook.cells if c.id == "title" and c.cell_type == "markdown"), None)
    if title is None:
        problems.append(f"{filename}: no text cell has the id title, which gets the Colab badge.")
        return
    try:
        relative = path.resolve().relative_to(project.root.resolve()).as_posix()
    except ValueError:
        relative = f"notebooks/{path.name}"
    heading, _, rest = title.source.partition("\n")
    parts = heading, badge(project.repository, relative), rest.strip("\n")
    title.source = "\n\n".join(part for part in parts if part)


def _word_id(cell: NotebookNode, used_ids: set[str]) -> str:
    """The cell's own id if it is made of words and still free, otherwise words from its first line."""
    own = cell.get("id", "")
    if _WORDS.fullmatch(own) and not _HEX_ID.fullmatch(own) and own not in used_ids:
        return own
    lines = [line for line in cell.source.splitlines() if re.search(r"[A-Za-z]{2}", line)] or [cell.cell_type]
    named = next(
        (m for line in lines if (m := re.match(r"\s*(?:async\s+)?(?:def|class)\s+(\w+)", line))), None
    )
    words = re.findall(r"[a-z][a-z0-9]*", (named[1] if named else lines[0]).lower().replace("_", "-"))[:5]
    base = "-".join(words) or cell.cell_type
    if _HEX_ID.fullmatch(base):
        base = f"cell-{base}"
    name, n = base, 1
    while name in used_ids:
        n += 1
        name = f"{base}-{n}"
    return name


def _differences(before: NotebookNode, after: NotebookNode, filename: str) -> list[str]:
    """One sentence for each change that `canonical` made, or one about the layout if nothing else changed."""
    found = []
    if (before.nbformat, before.nbformat_minor) != (4, 5):
        found.append(f"{filename}: it is nbformat {before.nbformat}.{before.nbformat_minor}, not 4.5.")
    if before.metadata != after.metadata:
        found.append(f"{filename}: the notebook's metadata is not the canonical one.")
    filled = [cell for cell in before.cells if cell.source.strip() or tags(cell)]
    if len(filled) < len(before.cells):
        found.append(f"{filename}: it has {len(before.cells) - len(filled)} empty cells.")
    for old, new in zip(filled, after.cells, strict=True):
        found += [f"{filename}: cell {new.id} {what}." for what in _cell_differences(old, new)]
    return found or [f"{filename}: the JSON layout is not the canonical one, or its outputs are new."]


def _cell_differences(old: NotebookNode, new: NotebookNode) -> Iterator[str]:
    """What `canonical` changed in a cell, as ends of sentences."""
    if old.get("id") != new.id:
        yield f"has the id {old.get('id')!r}, which is not made of words or not unique"
    if old.source != new.source:
        yield _source_difference(old, new)
    if old.metadata != new.metadata:
        folds = new.metadata.get("jupyter") and old.metadata.get("jupyter") != new.metadata["jupyter"]
        yield "should be folded" if folds else "has metadata other than sorted tags and what folds it"
    if new.cell_type != "code":
        return
    if CHECKED not in tags(new) and (old.outputs or old.execution_count is not None):
        yield "has a stored output or execution count but is not checked"
    elif (old.outputs, old.execution_count) != (new.outputs, new.execution_count):
        yield "has outputs that are not stored in canonical form"


def _source_difference(old: NotebookNode, new: NotebookNode) -> str:
    kernel = next((tag for tag in tags(new) if tag.startswith("kernel:")), None)
    if "setup" in tags(new):
        return "is not the setup cell that every notebook has"
    if kernel:
        return f"is not the {kernel.removeprefix('kernel:')} of helpers/kernels"
    if exercises.TAG in tags(new) or new.id.endswith("-solution"):
        return "differs from the exercise's source in notebooks/solutions"
    if _BADGE.findall(old.source) != _BADGE.findall(new.source):
        return "has no Colab badge, one with another address, or one that leads nowhere yet"
    if new.id == "title" and _STATED.search(new.source):
        return "states other minutes than notebooks/minutes.json"
    return "has trailing blanks, or blank lines around it"
