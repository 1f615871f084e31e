"""What a process knows of the exercises: a clean one all, a learner's only what is called how."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbook.sandbox.bubblewrap import HELPERS

_FURTHER = "further_exercises"


def without_answers() -> list[Path]:
    """The files and folders of `helpers` without the labs' modules and the records that know answers."""
    from helpers.exercises import ADAPTERS, KEPT_BACK

    own = HELPERS / "exercises"
    kept_back = {HELPERS / "records" / name for name in KEPT_BACK}
    above = {folder for path in kept_back for folder in path.parents if HELPERS in folder.parents}
    hidden = {own, *above, *kept_back, *(own / package for package in ADAPTERS)}
    found = [path for folder in (HELPERS, own, *above) for path in folder.iterdir() if path not in hidden]
    for package, modules in ADAPTERS.items():
        found += [own / package / f"{module}.py" for module in ("__init__", *modules)]
    return sorted(path for path in found if path.name != "__pycache__")


def stubs_of(exercises: Iterable[Any]) -> list[dict[str, Any]]:
    """What a learner's process is told of exercises: what is called how, and no case, no reference, no judge.

    Raises:
        ValueError: A function that has to run beside the learner's object cannot be imported by its name.
    """
    plain = ("id", "lab", "title", "name", "minutes", "guarded", "must_launch", "rearranges", "on_gpu")
    plain += ("poison_masked",)
    found = []
    for exercise in exercises:
        prepare = None if exercise.text else exercise.prepare
        found.append(
            {name: getattr(exercise, name) for name in plain}
            | {"adapters": {name: _path(function) for name, function in exercise.adapters.items()}}
            | {
                name: function and _path(function)
                for name, function in (("text", exercise.text), ("prepare", prepare))
            }
        )
        if exercise.text:  # its adapters are called where the text is built
            found[-1]["adapters"] = {}
    return found


def _path(function: Any) -> str:
    if "<" in function.__qualname__:
        says = (
            f"{function.__qualname__} of {function.__module__} runs beside the learner's code: define it "
            "at the top"
        )
        raise ValueError(f"{says} of a module, so that the grader finds it by its name.")
    return f"{function.__module__}:{function.__qualname__}"


def as_told(descriptions: Iterable[dict[str, Any]], further: str) -> dict[str, Any]:
    """Exercises without cases and judges, from what `stubs_of` gives, by id."""
    from helpers.exercises.model import Exercise, graded_elsewhere

    def function(path: str | None) -> Any:
        if not path:
            return None
        module, _, name = path.partition(":")
        if module == _FURTHER and module not in sys.modules:
            _load_further(further)
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))

    found = {}
    for description in descriptions:
        rest = dict(description)
        adapters = {name: function(path) for name, path in rest.pop("adapters").items()}
        rest |= {name: function(rest[name]) for name in ("text", "prepare")}
        found[rest["id"]] = Exercise(
            **rest, adapters=adapters, cases=graded_elsewhere, judge=graded_elsewhere
        )
    return found


def known(lab: str, extra: str = "", *, every_lab: bool = False) -> dict[str, Any]:
    """A lab's exercises by id: the course's, and those of a Python file's `EXERCISES` where one is named.

    Other labs' exercises stay unimported, for one of them may import Triton before a notebook has chosen its
    interpreter. With `every_lab` all exercises of the file are there, whatever their lab.
    """
    from helpers import exercises

    found = {e.id: e for e in (exercises.of_lab(lab) if lab in exercises.LABS else ())}
    if extra:
        found.update({e.id: e for e in _load_further(extra).EXERCISES if every_lab or e.lab == lab})
    return found


def _load_further(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(_FURTHER, path)
    module = sys.modules[_FURTHER] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
