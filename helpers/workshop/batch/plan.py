"""What a batch will run: notebooks, their parameters parsed and checked, the points of a grid, the outputs' names.

Everything that can be wrong with a command line is found here, before anything runs or is written.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import itertools
import json
import logging
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from helpers.workshop.batch.parameters import Parameter, parameters_of, parse_value
from helpers.workshop.usage import UsageError, first_line

_NAME_BYTES = 180  # of an output's name: file systems allow 255 with what is added to it
_FENCED = re.compile(r"^ {0,3}(```+|~~~+).*?(^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL)
logging.getLogger("papermill").setLevel("CRITICAL")  # what it would log is in the report


@dataclass(frozen=True)
class Job:
    """One notebook with one set of parameters.

    Attributes:
        name: The outputs' name, without a suffix; it names the grid's point.
        source: The notebook, an absolute path.
        title: Its first heading, or its file name.
        kernel: The kernelspec that runs it.
        parameters: What is injected after its parameters cell.
        content: The source file's bytes, as they were planned.
        sha256: Their hash, by which `--resume` knows them.
        refusal: Why it cannot run, or "": one notebook of a folder does not keep the others from running.
        cwd: The folder that it runs in, or None for its own.
    """

    name: str
    source: Path
    title: str
    kernel: str
    parameters: dict[str, Any] = field(default_factory=dict)
    content: bytes = field(default=b"", repr=False)
    sha256: str = ""
    refusal: str = ""
    cwd: Path | None = None

    @property
    def same_work(self) -> dict[str, Any]:
        """What must be equal for a finished output to be this job's."""
        # As a text, in which nan equals nan.
        parameters = json.dumps(self.parameters, sort_keys=True)
        work = {"sha256": self.sha256, "parameters": parameters, "kernel": self.kernel}
        return {**work, "cwd": str(self.cwd)} if self.cwd else work


def plan(
    notebooks: Sequence[Path],
    parameters: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]] | None = None,
    sweep: Sequence[Mapping[str, Any]] = (),
    defaults: Mapping[str, Any] | None = None,
    *,
    kernel: str = "",
    cwd: Path | None = None,
    recursive: bool = False,
    exclude: Sequence[str] = (),
    out: Path | None = None,
) -> list[Job]:
    """Turn a command line into jobs.

    Args:
        notebooks: Files, or folders whose notebooks are taken in the order of their names.
        parameters: Name to value; a text is parsed by the type that the notebook's parameters cell gives.
        grid: Name to values; every notebook that has such parameters runs at every point of their product.
        sweep: Points; every notebook that has such parameters runs at each of them, and of a grid at every pair.
        defaults: Name to value, where nothing else gives one.
        kernel: The kernelspec that runs all of them, instead of the one that each names.
        cwd: The folder that all of them run in, instead of each one's own.
        recursive: Whether a folder's subfolders are searched too, but for hidden ones.
        exclude: Patterns, such as "draft_*" or "old/*": of a folder's notebooks those are left out whose name, or whose path
            from that folder, fits one.
        out: The folder of the outputs, whose notebooks are none to run.

    Raises:
        UsageError: No notebook, a parameter that no notebook has, a value of the wrong type; a file that is no notebook or
            whose kernel is not installed, where it was named (in a folder it becomes a job with a `refusal`).
    """
    grid, defaults = grid or {}, defaults or {}
    swept = {name: None for point in sweep for name in point}
    for one, by, other, and_by in [
        (parameters, "-p", grid, "--grid"),
        (parameters, "-p", swept, "--sweep"),
        (grid, "--grid", swept, "--sweep"),
    ]:
        if twice := sorted(set(one) & set(other)):
            raise UsageError(f"{twice[0]} is given both by {by} and by {and_by}; give it once.")
    if kernel:
        _require_installed(kernel)
    if cwd is not None:
        if not cwd.is_dir():
            raise UsageError(f"--cwd {cwd} is no folder; name one that is there.")
        cwd = cwd.resolve()
    named, paths = _files(notebooks, recursive, exclude, out)
    names = _output_names(paths)
    known: dict[Path, dict[str, Parameter]] = {}
    documents: dict[Path, tuple[NotebookNode, str]] = {}
    contents: dict[Path, bytes] = {}
    refused: dict[Path, str] = {}
    for path in paths:
        try:
            contents[path] = _content(path)
            notebook = parse_notebook(contents[path], path)
            documents[path] = notebook, choose_kernel(notebook, path.name, kernel)
        except UsageError as error:
            if path in named:
                raise
            refused[path] = str(error).rstrip(".")
            continue
        known[path] = parameters_of(notebook)
    for name in [*parameters, *grid, *swept, *defaults]:
        if not any(name in found for found in known.values()):
            raise UsageError(_unknown(name, known))
    jobs = []
    for path in paths:
        if path in refused:
            jobs.append(Job(names[path], path, path.stem, "", refusal=refused[path]))
            continue
        notebook, chosen = documents[path]

        def value(name: str, given: Any, path: Path = path) -> Any:
            try:
                return parse_value(given, known[path][name])
            except ValueError as error:
                listed = ", ".join(str(p) for p in known[path].values())
                raise UsageError(f"{path.name}: {name} {error}; its parameters are {listed}.") from None

        given = {**defaults, **parameters}
        fixed = {name: value(name, text) for name, text in given.items() if name in known[path]}
        axes = {
            name: [value(name, v) for v in values] for name, values in grid.items() if name in known[path]
        }
        rows = [{name: value(name, v) for name, v in row.items() if name in known[path]} for row in sweep]
        if any(name not in known[path] for name in swept):
            # What this notebook does not have does not make two points of one.
            rows = list({json.dumps(row, sort_keys=True): row for row in rows}.values())
        digest, title = hashlib.sha256(contents[path]).hexdigest(), _title(notebook, path)
        for row in rows or [{}]:
            for point in itertools.product(*axes.values()):
                at = {**row, **dict(zip(axes, point, strict=True))}
                name = names[path] + "".join(f"__{axis}={_slug(v)}" for axis, v in at.items())
                jobs.append(Job(name, path, title, chosen, {**fixed, **at}, contents[path], digest, cwd=cwd))
    return _apart(jobs)


def _apart(jobs: Sequence[Job]) -> list[Job]:
    """Names of a bounded length, and different ones: what is cut, or the same for two points, gets its point's hash.

    Raises:
        UsageError: Two points are the same.
    """
    often = Counter(job.name for job in jobs)
    named, seen = [], set()
    for job in jobs:
        name, short = job.name, job.name.encode()
        if often[name] > 1 or len(short) > _NAME_BYTES:
            point = hashlib.sha256(json.dumps([name, job.parameters], sort_keys=True).encode()).hexdigest()
            name = f"{short[: _NAME_BYTES - 10].decode(errors='ignore')}__{point[:8]}"
        if name in seen:
            raise UsageError(f"Two outputs would be called {job.name}: give each point once.")
        seen.add(name)
        named.append(job if name == job.name else dataclasses.replace(job, name=name))
    return named


def split_assignment(text: str, option: str) -> tuple[str, str]:
    """`NAME=VALUE` as a pair.

    Raises:
        UsageError: It does not have that shape.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise UsageError(f"{option} {text!r} is not NAME=VALUE; write for example {option} n_rows=512.")
    return name.strip(), value.strip()


def assignments(texts: Sequence[str], option: str) -> dict[str, str]:
    """Every `NAME=VALUE` given by one option; a name given twice is a `UsageError`."""
    found: dict[str, str] = {}
    for text in texts:
        name, value = split_assignment(text, option)
        if name in found:
            raise UsageError(f"{option} gives {name} twice; give it once.")
        found[name] = value
    return found


def split_values(text: str) -> list[str]:
    """`A,B` as a list; commas inside brackets or quotes do not split.

    Raises:
        UsageError: A value is empty, or a quote or a bracket is not closed.
    """
    values, depth, quote, current = [], 0, "", ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and (depth or not current.strip()):  # not the apostrophe inside a word
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth = max(0, depth - 1)
        if character == "," and depth == 0 and not quote:
            values.append(current.strip())
            current = ""
        else:
            current += character
    values.append(current.strip())
    if quote or depth:
        what = "quote" if quote else "bracket"
        raise UsageError(
            f"--grid …={text} has a {what} that is not closed; put a value with one into quotes."
        )
    if not all(values):
        raise UsageError(f"--grid …={text} has an empty value; write for example --grid n_rows=1,8,64.")
    return values


def parse_notebook(content: bytes, path: Path) -> NotebookNode:
    """The notebook as nbformat 4.5, with the metadata that papermill needs.

    Args:
        content: The file's bytes.
        path: Where it lies, for the message.

    Raises:
        UsageError: It is no notebook.
    """
    from papermill.iorw import load_notebook_node

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old notebooks lack cell ids; they get them here
            # Read by nbformat first: papermill formats a path that has braces in it. A byte order mark is no JSON, and
            # what nbformat 3 is upgraded to has nodes of its own that papermill does not take.
            read = nbformat.reads(content.decode("utf-8-sig"), as_version=4)
            notebook = load_notebook_node(nbformat.from_dict(read))
    except Exception as error:
        raise UsageError(f"{path} is not a notebook that can be read: {first_line(error)[:120]}.") from error
    return notebook


def choose_kernel(notebook: NotebookNode, shown: str, given: str = "") -> str:
    """The installed kernelspec for a notebook; a Python notebook falls back on this environment's `python3`.

    Args:
        notebook: Its metadata are completed by what papermill and nbconvert need.
        shown: What a message calls it.
        given: The kernelspec to use, which is installed, instead of what the notebook says.

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
                f"{shown} needs the kernel {name or language!r}, which is not installed; "
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


def _unknown(name: str, known: Mapping[Path, Mapping[str, Parameter]]) -> str:
    names = sorted({n for found in known.values() for n in found})
    near = difflib.get_close_matches(name, names, 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    listed = "; ".join(
        f"{path.name}: {', '.join(map(str, found.values())) or 'none'}" for path, found in known.items()
    )
    who = "has" if len(known) == 1 else "of these notebooks has"
    what = f"{next(iter(known)).name} has no parameter" if len(known) == 1 else f"None {who} a parameter"
    return f"{what} {name}{hint}; there are {listed}."


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        link = f", a link to {path.readlink()}" if path.is_symlink() else ""
        raise UsageError(f"{path}{link} cannot be read ({error.strerror}).") from error


def _files(
    notebooks: Sequence[Path], recursive: bool, exclude: Sequence[str], out: Path | None
) -> tuple[set[Path], list[Path]]:
    """The files that were named themselves, and all files; a link stays where it lies, as Jupyter opens it."""
    if not notebooks:
        raise UsageError("No notebook is given; name at least one file or folder.")
    named: set[Path] = set()
    paths: list[Path] = []
    for given in map(Path, notebooks):
        if given.is_dir():
            inside = _inside(given, recursive, out)
            if not inside:
                deeper = "" if recursive else "; with --recursive its subfolders are searched too"
                raise UsageError(f"The folder {given} holds no notebook (*.ipynb){deeper}.")
            kept = [p for p in inside if not _excluded(p.relative_to(given), exclude)]
            if not kept:
                raise UsageError(f"The folder {given} holds no notebook but those that --exclude names.")
            paths += map(_place, kept)
        elif given.is_file():
            paths.append(_place(given))
            named.add(_place(given))
        else:
            raise UsageError(f"There is no notebook {given}.")
    return named, list(dict.fromkeys(paths))


def _inside(folder: Path, recursive: bool, out: Path | None) -> list[Path]:
    """A folder's notebooks; hidden files and folders, such as .ipynb_checkpoints, hold none, and outputs are none."""
    found = []
    for path in folder.rglob("*.ipynb") if recursive else folder.glob("*.ipynb"):
        parts = path.relative_to(folder).parts
        output = out is not None and recursive and path.resolve().is_relative_to(out.resolve())
        if not output and not any(part.startswith(".") for part in parts):
            found.append(path)
    return sorted(found)


def _excluded(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(text, pattern) for text in (path.name, path.as_posix()) for pattern in patterns)


def _place(path: Path) -> Path:
    return path.parent.resolve() / path.name


def _output_names(paths: Sequence[Path]) -> dict[Path, str]:
    """The file's own name; with as many of its folders' before it as keep files of one name apart."""

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


def _slug(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return re.sub(r"[^\w.+-]+", "_", text).strip("_") or "_"


def _title(notebook: NotebookNode, path: Path) -> str:
    headings = (
        match[1]
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        and (match := re.search(r"^#[^\S\n]+(\S.*)$", _FENCED.sub("", cell.source), re.MULTILINE))
    )
    return next(headings, path.stem).strip()
