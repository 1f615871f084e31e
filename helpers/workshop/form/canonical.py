"""The one canonical form of a notebook, so that a diff shows what a person changed and nothing else.

`canonical` turns any notebook into that form and says in sentences where its file differs from it. The form:

* nbformat 4.5, keys sorted, one-space indent, a newline at the end, the same notebook metadata everywhere
  (kernel `python3`; Colab opens it with a T4);
* cell ids are words; cell metadata holds tags and nothing else; no empty cells;
* a cell tagged `hide-input` has the metadata that folds its code in JupyterLab and in Colab;
* a cell tagged `nbval-check-output` keeps its outputs (nbval compares them) and the execution count 1, every other
  cell keeps neither; nbval passes a checked cell without an execution count silently, so that is a problem here;
* the cell tagged `setup` holds `setup_source`, and the cell `title` a Colab badge with the notebook's address: both take
  the repository from `[project.urls]` in pyproject.toml;
* a cell tagged `kernel:NAME` shows the block of that name in helpers/kernels, which stands there between the lines
  `# [kernel:NAME]` and `# [/kernel:NAME]` (`//` in C++ and CUDA).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from helpers.kernels.source import kernel_cell
from helpers.workshop.project import UNPUBLISHED, Project

CHECKED = "nbval-check-output"
HIDDEN = "hide-input"
# How JupyterLab and Colab keep a cell's code folded.
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
# In Colab pip leaves torch, triton, IPython and ipywidgets as they are: they satisfy pyproject's ranges.
_INSTALL = '%pip install --quiet "kernel-workbook @ git+https://github.com/@REPOSITORY@"'
# Until it is published. Of SystemExit IPython shows the sentence and no traceback, and runs no cell after it.
_NO_ADDRESS = (
    'raise SystemExit("The workbook is missing: upload its folder and %pip install it, or publish it.")'
)

_BADGE = re.compile(
    r"\[!\[Open in Colab\]\([^)]*\)\]\(https://colab\.research\.google\.com/github/[^)]*\)", re.IGNORECASE
)
_BADGE_IMAGE = "https://colab.research.google.com/assets/colab-badge.svg"
_WORDS = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_HEX_ID = re.compile(r"(?=.*\d)[0-9a-f]{6,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# What differs from machine to machine and so cannot stand in an output that nbval compares.
_UNSTABLE = (
    (re.compile(r"\b0x[0-9a-f]{9,}\b"), "a memory address"),
    (re.compile(r"(?<![\w.])/(?:tmp|home|root|Users|work|usr|content)/[\w./-]+"), "a path of this machine"),
)
# Never compared by nbval, or random: keeping them would only make diffs.
_UNCOMPARED = ("application/vnd.jupyter.widget-view+json", "image/png", "image/jpeg")
_INCOMPARABLE = ("application/vnd.plotly.v1+json", "application/vnd.kernel-workbook.provenance+json")


@dataclass(frozen=True)
class Formed:
    """A notebook in canonical form.

    Attributes:
        path: The notebook's file.
        text: The whole canonical file.
        differences: Where the file differs from `text`, one sentence each; empty when it does not.
        problems: What the form cannot repair by itself, one sentence each.
    """

    path: Path
    text: str
    differences: tuple[str, ...]
    problems: tuple[str, ...]


def setup_source(repository: str) -> str:
    """The text of every setup cell: it installs the workbook from `repository` where it is missing, or says that it is."""
    install = _NO_ADDRESS if repository == UNPUBLISHED else _INSTALL.replace("@REPOSITORY@", repository)
    return SETUP.replace("@INSTALL@", install)


def badge(repository: str, path: str) -> str:
    """The Colab badge, in Markdown, of the notebook at `path` in the repository."""
    target = f"https://colab.research.google.com/github/{repository}/blob/main/{path}"
    return f"[![Open in Colab]({_BADGE_IMAGE})]({target})"


def shown_name(path: Path, project: Project) -> str:
    """How messages call a notebook: a lesson by its file name, a lab with its folder, since its solution has the same name."""
    in_labs = project.starter_of(path) or project.solution_of(path)
    return path.resolve().relative_to(project.root.resolve()).as_posix() if in_labs else path.name


def tags(cell: NotebookNode) -> list[str]:
    """The cell's tags; an empty list where it has none."""
    return list(cell.metadata.get("tags", []))


def canonical(path: Path, project: Project, text: str | None = None) -> Formed:
    """Bring one notebook into its canonical form, in memory.

    Args:
        path: The notebook's file.
        project: The checkout that it belongs to.
        text: What to take for the file's content instead of reading it (`--execute` has new outputs).

    Raises:
        ValueError: The file is no notebook.
    """
    before = path.read_text("utf-8") if text is None else text
    try:
        notebook = nbformat.reads(before, as_version=4)
        original = nbformat.reads(before, as_version=4)
    except Exception as error:
        raise ValueError(f"{path.name} is no notebook that nbformat can read: {error}") from error
    shown = shown_name(path, project)
    problems: list[str] = []
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = nbformat.from_dict(METADATA)
    cells = [cell for cell in notebook.cells if cell.source.strip() or tags(cell)]
    taken: set[str] = set()
    for cell in cells:
        cell.source = cell.source.strip("\n").replace("\r\n", "\n")
        if cell.cell_type != "markdown" or not any(line.endswith("  ") for line in cell.source.splitlines()):
            cell.source = "\n".join(line.rstrip() for line in cell.source.splitlines())
        cell.id = _word_id(cell, taken)
        taken.add(cell.id)
        cell.metadata = nbformat.from_dict(_metadata(cell))
        if cell.cell_type == "code":
            _form_code(cell, shown, project, problems)
    notebook.cells = cells
    _form_lesson(notebook, path, shown, project, problems)
    formed = nbformat.writes(notebook, version=4) + "\n"
    on_disk = path.read_text("utf-8") if path.exists() else ""
    differences = () if formed == on_disk else tuple(_differences(original, notebook, shown))
    return Formed(path, formed, differences, tuple(problems))


def _metadata(cell: NotebookNode) -> dict:
    """The metadata that a cell's tags ask for, and no other."""
    folded = FOLDED if cell.cell_type == "code" and HIDDEN in tags(cell) else {}
    return {**folded, "tags": sorted(set(tags(cell)))} if tags(cell) else {}


def _form_code(cell: NotebookNode, shown: str, project: Project, problems: list[str]) -> None:
    """Fill in what a code cell's tags ask for, and keep or strip its outputs."""
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
                    f"{shown}: cell {cell.id} shows kernel:{name}, which helpers/kernels does not mark (there: {known})."
                )
    if CHECKED not in tags(cell):
        cell.outputs, cell.execution_count = [], None
        return
    ran = cell.execution_count is not None
    cell.outputs = _stable_outputs(cell.outputs)
    cell.execution_count = 1 if ran else None
    if not ran or not cell.outputs:
        problems.append(
            f"{shown}: cell {cell.id} is checked but has no stored output, so nbval would pass it whatever it prints; "
            f"run `workbook form --execute {shown}`."
        )
    problems.extend(f"{shown}: checked cell {cell.id} {what}." for what in _instabilities(cell.outputs))


def _stable_outputs(outputs: Iterable[NotebookNode]) -> list[NotebookNode]:
    """The outputs with what nbval compares and nothing else, streams joined as nbval joins them."""
    kept: list[NotebookNode] = []
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
        kept.append(output)
    return kept


def _instabilities(outputs: Iterable[NotebookNode]) -> list[str]:
    """What in a checked cell's outputs would differ on another machine, each as the end of a sentence."""
    found = []
    for output in outputs:
        if output.output_type == "stream":
            if output.name == "stderr":
                found.append(
                    "writes to stderr, which holds warnings of this machine: print to stdout instead"
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
    notebook: NotebookNode, path: Path, shown: str, project: Project, problems: list[str]
) -> None:
    """What holds for the notebook as a whole: one setup cell, a badge with the right address."""
    setups = [cell for cell in notebook.cells if "setup" in tags(cell)]
    if len(setups) != 1:
        problems.append(f"{shown}: {len(setups)} cells are tagged setup; there must be exactly one.")
    try:
        relative = path.resolve().relative_to(project.root.resolve()).as_posix()
    except ValueError:
        relative = f"notebooks/{path.name}"
    badges = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source, n = _BADGE.subn(lambda _: badge(project.repository, relative), cell.source)
            badges += n
    title = next((c for c in notebook.cells if c.id == "title" and c.cell_type == "markdown"), None)
    if badges == 0 and title is not None:
        heading, _, rest = title.source.partition("\n")
        title.source = "\n\n".join(
            part for part in (heading, badge(project.repository, relative), rest.strip("\n")) if part
        )
        badges = 1
    if badges != 1:
        problems.append(
            f"{shown}: {badges} Colab badges; the title cell must have exactly one: {badge(project.repository, relative)}"
        )


def _word_id(cell: NotebookNode, taken: set[str]) -> str:
    """The cell's own id if it is made of words and free; else words from its first telling line."""
    own = cell.get("id", "")
    if _WORDS.fullmatch(own) and not _HEX_ID.fullmatch(own) and own not in taken:
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
    while name in taken:
        n += 1
        name = f"{base}-{n}"
    return name


def _differences(before: NotebookNode, after: NotebookNode, shown: str) -> list[str]:
    """Sentences for what `canonical` changed; one that says only the layout differs where nothing else does."""
    found = []
    if (before.nbformat, before.nbformat_minor) != (4, 5):
        found.append(f"{shown}: it is nbformat {before.nbformat}.{before.nbformat_minor}, not 4.5.")
    if before.metadata != after.metadata:
        found.append(f"{shown}: the notebook's metadata is not the canonical one.")
    kept = [cell for cell in before.cells if cell.source.strip() or tags(cell)]
    if len(kept) < len(before.cells):
        found.append(f"{shown}: it has {len(before.cells) - len(kept)} empty cells.")
    for old, new in zip(kept, after.cells, strict=True):
        cell = f"{shown}: cell {new.id}"
        if old.get("id") != new.id:
            found.append(f"{cell} is called {old.get('id')!r}, which is not words of its own.")
        if old.source != new.source:
            kernel = next((tag for tag in tags(new) if tag.startswith("kernel:")), None)
            if "setup" in tags(new):
                found.append(f"{cell} is not the setup cell that every notebook has.")
            elif kernel:
                found.append(f"{cell} is not the {kernel.removeprefix('kernel:')} of helpers/kernels.")
            elif _BADGE.search(new.source):
                found.append(f"{cell} has no badge, one with another address, or blanks at line ends.")
            else:
                found.append(f"{cell} has blanks at line ends or blank lines around it.")
        if old.metadata != new.metadata:
            found.append(f"{cell} has metadata other than sorted tags and what folds a cell tagged {HIDDEN}.")
        if (
            new.cell_type == "code"
            and CHECKED not in tags(new)
            and (old.outputs or old.execution_count is not None)
        ):
            found.append(f"{cell} has a stored output or execution count but is not checked.")
        elif new.cell_type == "code" and (old.outputs, old.execution_count) != (
            new.outputs,
            new.execution_count,
        ):
            found.append(f"{cell} has outputs stored otherwise than the canonical form keeps them.")
    return found or [
        f"{shown}: the file's layout differs from the canonical JSON, or its outputs were made anew."
    ]
