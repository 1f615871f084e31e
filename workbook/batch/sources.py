"""The notebooks of a batch: found, read, matched with a kernel, and named."""

from __future__ import annotations

import hashlib
import logging
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from workbook.batch.parameters import Parameter, parameters_of
from workbook.usage import UsageError, first_line

_FENCED = re.compile(r"^ {0,3}(```+|~~~+).*?(^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)
logging.getLogger("papermill").setLevel("CRITICAL")  # what it would log is in the report


@dataclass(frozen=True)
class Source:
    """A notebook that a batch runs.

    Attributes:
        path: Its file, absolute.
        name: What its outputs are called, without a suffix.
        title: Its first heading, or its file name.
        kernel: The kernelspec that runs it.
        content: The bytes of its file.
        parameters: What its parameters cell declares, by name.
        refusal: Why it can't run, or "".
    """

    path: Path
    name: str
    title: str
    kernel: str = ""
    content: bytes = field(default=b"", repr=False)
    parameters: dict[str, Parameter] = field(default_factory=dict)
    refusal: str = ""

    @property
    def sha256(self) -> str:
        """The hash of its bytes."""
        return hashlib.sha256(self.content).hexdigest()


def find_sources(
    notebooks: Sequence[Path],
    kernel: str = "",
    *,
    recursive: bool = False,
    exclude: Sequence[str] = (),
    out: Path | None = None,
) -> list[Source]:
    """Find and read notebooks.

    Args:
        notebooks: Files, or folders whose notebooks are taken in the order of their names.
        kernel: The kernelspec that runs all of them, instead of the one that each names.
        recursive: Whether to search subfolders too, except hidden ones.
        exclude: Patterns such as "draft_*" or "old/*". A notebook found in a folder is skipped if its name,
            or its path in that folder, matches one.
        out: The folder of the outputs, in which no notebook is looked for.

    Raises:
        UsageError: There is no notebook, or a file that was named itself is not a notebook or its kernel is
            not installed. In a folder, such a file becomes a source with a `refusal`.
    """
    if kernel:
        _require_installed(kernel)
    named, paths = _files(notebooks, recursive, exclude, out)
    sources = []
    for path, name in _output_names(paths).items():
        try:
            sources.append(_read(path, name, kernel))
        except UsageError as error:
            if path in named:
                raise
            sources.append(Source(path, name, path.stem, refusal=str(error).rstrip(".")))
    return sources


def _read(path: Path, name: str, kernel: str) -> Source:
    try:
        content = path.read_bytes()
    except OSError as error:
        link = f", a link to {path.readlink()}" if path.is_symlink() else ""
        raise UsageError(f"{path}{link} can't be read ({error.strerror}).") from error
    notebook = parse_notebook(content, path)
    chosen = choose_kernel(notebook, path.name, kernel)
    return Source(path, name, _title(notebook, path), chosen, content, parameters_of(notebook))


def parse_notebook(content: bytes, path: Path) -> NotebookNode:
    """Parse a notebook as nbformat 4.5, with the metadata that papermill needs.

    Args:
        content: The bytes of its file.
        path: The file's path, for the message.

    Raises:
        UsageError: It is not a notebook.
    """
    from papermill.iorw import load_notebook_node

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old notebooks lack cell ids; they get them here
            # nbformat reads it first, for three reasons: papermill formats a path that contains braces, JSON
            # does not allow a byte order mark, and papermill rejects the node types of upgraded nbformat 3.
            read = nbformat.reads(content.decode("utf-8-sig"), as_version=4)
            return load_notebook_node(nbformat.from_dict(read))
    except Exception as error:
        raise UsageError(f"{path} is not a notebook that can be read: {first_line(error)[:120]}.") from error


def choose_kernel(notebook: NotebookNode, label: str, given: str = "") -> str:
    """Choose an installed kernelspec; a Python notebook falls back on this environment's `python3`.

    Args:
        notebook: The metadata that papermill and nbconvert need are added to it.
        label: What messages call it.
        given: An installed kernelspec to use instead of the one that the notebook names, or "".

    Raises:
        UsageError: The notebook is in another language whose kernel is not installed.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    if given and notebook.metadata.get("kernelspec", {}).get("name") != given:
        found = KernelSpecManager().get_kernel_spec(given)
        notebook.metadata["kernelspec"] = {"name": given, "display_name": found.display_name}
        notebook.metadata["language_info"] = {"name": found.language}
    spec = notebook.metadata.get("kernelspec", {})
    name = spec.get("name", "")
    language = notebook.metadata.get("language_info", {}).get("name") or spec.get("language") or "python"
    installed = KernelSpecManager().find_kernel_specs()
    if name not in installed:
        if not language.lower().startswith(("python", "ipython")) and "python" not in name:
            raise UsageError(
                f"{label} needs the kernel {name or language!r}, which is not installed; "
                f"installed are {', '.join(sorted(installed))}."
            )
        name, language = "python3", "python"
    notebook.metadata["kernelspec"] = {**spec, "name": name, "display_name": spec.get("display_name", name)}
    notebook.metadata.setdefault("language_info", {}).setdefault("name", language)
    return name


def _require_installed(kernel: str) -> None:
    from jupyter_client.kernelspec import KernelSpecManager

    installed = sorted(KernelSpecManager().find_kernel_specs())
    if kernel not in installed:
        raise UsageError(f"--kernel {kernel} is not installed; installed are {', '.join(installed)}.")


def _files(
    notebooks: Sequence[Path], recursive: bool, exclude: Sequence[str], out: Path | None
) -> tuple[set[Path], list[Path]]:
    """The files that were named themselves, and all files."""
    if not notebooks:
        raise UsageError("No notebook is given; name at least one file or folder.")
    named: set[Path] = set()
    paths: list[Path] = []
    for given in map(Path, notebooks):
        if given.is_dir():
            paths += _files_in(given, recursive, exclude, out)
        elif given.is_file():
            paths.append(_absolute(given))
            named.add(_absolute(given))
        else:
            raise UsageError(f"There is no notebook {given}.")
    return named, list(dict.fromkeys(paths))


def _files_in(folder: Path, recursive: bool, exclude: Sequence[str], out: Path | None) -> list[Path]:
    """The notebooks of a folder, sorted, except outputs and what is in hidden files and folders, such as
    .ipynb_checkpoints.
    """
    found = []
    for path in folder.rglob("*.ipynb") if recursive else folder.glob("*.ipynb"):
        output = out is not None and recursive and path.resolve().is_relative_to(out.resolve())
        if not output and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            found.append(path)
    if not found:
        deeper = "" if recursive else "; --recursive searches its subfolders too"
        raise UsageError(f"The folder {folder} contains no notebook (*.ipynb){deeper}.")
    included = [path for path in found if not _excluded(path.relative_to(folder), exclude)]
    if not included:
        raise UsageError(f"--exclude leaves out every notebook of the folder {folder}.")
    return [_absolute(path) for path in sorted(included)]


def _excluded(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(text, pattern) for text in (path.name, path.as_posix()) for pattern in patterns)


def _absolute(path: Path) -> Path:
    """The path without links in its folder; the file itself may be a link, as in Jupyter."""
    return path.parent.resolve() / path.name


def _output_names(paths: Sequence[Path]) -> dict[Path, str]:
    """The name of each file, preceded by as many of its folders as distinguish files with the same name."""

    def named(path: Path, depth: int) -> str:
        return "-".join([*path.parts[1:-1][-depth:], path.stem] if depth else [path.stem])

    depths = dict.fromkeys(paths, 0)
    for depth in range(max(len(path.parts) for path in paths)):
        often = Counter(named(path, depths[path]) for path in paths)
        for path in paths:
            if often[named(path, depths[path])] > 1:
                depths[path] = depth + 1
    names = {path: named(path, depth) for path, depth in depths.items()}
    taken: dict[str, Path] = {}
    for path, name in names.items():
        if name in taken:
            raise UsageError(f"{taken[name]} and {path} would have the same output; run them in two batches.")
        taken[name] = path
    return names


def _title(notebook: NotebookNode, path: Path) -> str:
    headings = (
        match[1]
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        and (match := re.search(r"^#[^\S\n]+(\S.*)$", _FENCED.sub("", cell.source), re.MULTILINE))
    )
    return next(headings, path.stem).strip()
