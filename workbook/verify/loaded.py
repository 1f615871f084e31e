"""A candidate's files in its own process: import or build them, and construct its model."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from workbook.verify.models import other_constants


class Loaded:
    """The module that a candidate's main file defines."""

    def __init__(self, folder: str, entry: str) -> None:
        """Name it.

        Args:
            folder: where its files are.
            entry: as in `problem.Candidate`.
        """
        self._folder = folder
        self._file, _, self._name = entry.partition("::")
        self._module: Any = None
        self._imported: Any = None

    def restore(self) -> None:
        """Undo `execute_it`."""
        self._module = self._imported

    def import_it(self, files: Sequence[str], options: Mapping[str, Any]) -> None:
        """Import the Python file, or compile C++ and CUDA sources, which bind their functions themselves."""
        if self._file.endswith(".py"):
            path = os.path.join(self._folder, self._file)
            name = Path(self._file).stem
            name = f"candidate_{name}" if name in (*sys.stdlib_module_names, *sys.modules) else name
            spec = importlib.util.spec_from_file_location(name, path)
            self._module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = self._module
            spec.loader.exec_module(self._module)
            self._imported = self._module
            return
        from torch.utils import cpp_extension

        sources = [os.path.join(self._folder, one) for one in files if one.endswith((".cpp", ".cc", ".cu"))]
        self._module = self._imported = cpp_extension.load(
            name="candidate_extension", sources=sources, **options
        )

    def execute_it(self) -> None:
        """Execute the Python file's text, whose code then has no `__file__` and no module."""
        path = os.path.join(self._folder, self._file)
        names: dict[str, Any] = {}
        exec(compile(Path(path).read_text(), "<string>", "exec"), names)
        self._module = SimpleNamespace(**names)

    def entry(self) -> Any:
        """The function or class that is called.

        Raises:
            AttributeError: there is none of this name.
        """
        found = self._module
        for part in self._name.split("."):
            if not hasattr(found, part):
                kind = f"{self._file} defines" if self._file.endswith(".py") else "the extension binds"
                raise AttributeError(f"{kind} no {self._name}")
            found = getattr(found, part)
        return found

    def model(
        self, init: Sequence[Any], keywords: Mapping[str, Any], state: Mapping[str, Any], seed: int,
        initial: Mapping[str, Any], how: str, constants: bool = False,
    ) -> tuple[Any, str]:  # fmt: skip
        """Construct the candidate's model.

        Args:
            state: the reference's parameters.
            initial: the parameters of a new model of the reference, by which the model's own ones can be
                recognized if they have other names; `state` holds equal numbers where these do, then.
            how: "seeded": it makes its parameters itself. "given": it gets `state` while its constructor
                runs, because that may compute something from the parameters. "loaded": it also gets
                `state` afterwards, if it has the same names and shapes.
            constants: whether the parts of a model begin with other constants, by `models.other_constants`.

        Returns:
            The model, and whether it has the parameters `state`: "named" if its own have the same names and
            shapes, "recognized" if it has those that changed with other names, otherwise "".
        """
        model_class = self.entry()
        torch.manual_seed(seed)
        if how == "seeded":
            model = model_class(*init, **keywords)
            return model, "named" if _holds(model, state) else ""
        with (
            _given(model_class, state, initial) as recognized,
            other_constants() if constants else nullcontext(),
        ):
            model = model_class(*init, **keywords)
        shapes = [{name: one.shape for name, one in of.items()} for of in (model.state_dict(), state)]
        if how == "loaded" and state and shapes[0] == shapes[1]:
            model.load_state_dict(state)
        if state and _holds(model, state):
            return model, "named"
        wanted = {
            name for name, one in initial.items()
            if one.is_floating_point() and not torch.equal(one, state[name])
        }  # fmt: skip
        return model, "recognized" if wanted and recognized >= wanted else ""


@contextmanager
def _given(model_class: Any, state: Mapping[str, Any], initial: Mapping[str, Any]) -> Iterator[set[str]]:
    """Give parameters their values as soon as a constructor of the candidate's own classes assigns them.

    The constructor may compute something from them, such as a transposed weight. Those of the model have the
    reference's names; those of its parts are only recognized by their numbers.

    Yields:
        The names in `initial` whose numbers some of the parameters had.
    """
    assign = torch.nn.Module.__setattr__
    recognized: set[str] = set()

    def assigned(module: Any, name: str, value: Any) -> None:
        assign(module, name, value)
        if str(type(module).__module__).partition(".")[0] == "torch":
            return
        parts = {name: value} if isinstance(value, torch.nn.Parameter) else {}
        if isinstance(value, torch.nn.Module):
            parts = {f"{name}.{key}": one for key, one in value.state_dict().items()}
        for key, one in parts.items():
            if type(module) is model_class and key in state and state[key].shape == one.shape:
                one.data.copy_(state[key])
                recognized.update(other for other in initial if other == key)
            elif same := [other for other, number in initial.items() if _is_same(number, one)]:
                one.data.copy_(state[same[0]])
                recognized.update(same)

    torch.nn.Module.__setattr__ = assigned
    try:
        yield recognized
    finally:
        torch.nn.Module.__setattr__ = assign


def _holds(model: Any, state: Mapping[str, Any]) -> bool:
    """Whether a model's parameters and buffers are those of `state`."""
    own = model.state_dict()
    return own.keys() == state.keys() and all(_is_same(state[name], one) for name, one in own.items())


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.to(b.device), b.detach())
