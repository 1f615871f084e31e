"""Load the files of a GPU MODE task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from workbook.usage import UsageError
from workbook.verify.formats.files import Modules, text_of

SUBMISSION = "@SUBMISSION@"  # the source of the file that is handed in
# Fields without a meaning for a verification, or with one that is read.
_KNOWN = {
    "files", "lang", "description", "config", "templates", "tests", "benchmarks", "test_timeout",
    "benchmark_timeout", "ranked_timeout", "ranking_by", "gpus", "multi_gpu", "seed",
}  # fmt: skip
_NOT_RUN = ("eval.py",)  # the benchmark's own harness


@dataclass(frozen=True)
class Task:
    """A task, loaded.

    Attributes:
        name: its folder's name.
        submission: the name of the file that is handed in, such as "submission.py".
        texts: file -> text, of all other Python files but the harness.
        arguments: the arguments of `generate_input`, first of the tests and then of the benchmarks.
        modules: the files as modules.
        reference: the module reference.py.
        notes: sentences about what we ignore.
    """

    name: str
    submission: str
    texts: Mapping[str, str]
    arguments: tuple[Mapping[str, Any], ...]
    modules: Modules
    reference: ModuleType
    notes: tuple[str, ...]


def load(folder: Path) -> Task:
    """Load a task from the folder with its task.yml, or from that file.

    Raises:
        UsageError: a file is missing or malformed, or the task can't be verified.
    """
    path = folder if folder.is_file() else folder / "task.yml"
    about = _about(path)
    if about.get("lang") != "py":
        raise UsageError(
            f'{path} has the lang {about.get("lang")!r}; tasks with the lang "py" can be verified.'
        )
    cases = [*_arguments(about, "tests", path), *_arguments(about, "benchmarks", path)]
    if about.get("multi_gpu") or any("world_size" in one for one in cases):
        raise UsageError(f"{path} describes a task for several GPUs; tasks for one GPU can be verified.")
    if not cases:
        raise UsageError(f"{path} has neither tests nor benchmarks, so there is nothing to try.")
    submission, texts, filenames = _files(about, path)
    if "reference.py" not in texts:
        raise UsageError(f"{path} lists no reference.py among its files.")
    names = {name: name.removesuffix(".py") for name in texts}
    modules = Modules(
        {names[name]: text for name, text in texts.items()},
        {names[name]: filenames[name] for name in texts},
    )
    reference = modules.load("reference")
    for name in ("generate_input", "ref_kernel", "check_implementation"):
        if not callable(getattr(reference, name, None)):
            raise UsageError(f"{filenames['reference.py']} defines no function {name}.")
    ignored = [name for name in about if name not in _KNOWN]
    notes = [f"task.yml also has {', '.join(ignored)}, which the verifier ignores."] if ignored else []
    return Task(path.resolve().parent.name, submission, texts, tuple(cases), modules, reference, tuple(notes))


def _about(path: Path) -> dict[str, Any]:
    try:
        about = yaml.safe_load(text_of(path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise UsageError(f"{path} isn't YAML{where}: {getattr(error, 'problem', error)}.") from None
    if not isinstance(about, dict):
        raise UsageError(f"{path} must have fields such as files and tests.")
    return about


def _arguments(about: Mapping[str, Any], name: str, path: Path) -> Sequence[Mapping[str, Any]]:
    cases = about.get(name) or []
    if not isinstance(cases, list) or not all(isinstance(one, dict) for one in cases):
        raise UsageError(f"{name} in {path} must be a list of the arguments of generate_input.")
    return cases


def _files(about: Mapping[str, Any], path: Path) -> tuple[str, dict[str, str], dict[str, str]]:
    """The submission's name, the texts of the other Python files, and where they are."""
    listed = about.get("files")
    if not isinstance(listed, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("source"), str)
        for one in listed
    ):
        raise UsageError(f"files in {path} must be a list of objects with a name and a source.")
    submission, texts, filenames = "submission.py", {}, {}
    for one in listed:
        name, source = one["name"], one["source"]
        if source == SUBMISSION:
            submission = name
        elif name.endswith(".py") and name not in _NOT_RUN:
            found = _found(path.parent, name, source)
            if found is None:
                raise UsageError(
                    f"{path} lists {name} from {source}, which is missing; copy it into {path.parent}."
                )
            texts[name], filenames[name] = text_of(found), str(found)
    return submission, texts, filenames


def _found(folder: Path, name: str, source: str) -> Path | None:
    """A file of a task, where the task says or in its folder or the one above."""
    places = (folder / source, folder / name, folder.resolve().parent / name)
    return next((one for one in places if one.is_file()), None)
