"""A candidate's files in its own process: import or build them, and construct its model."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch


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

    def import_it(self, files: Sequence[str], options: Mapping[str, Any]) -> None:
        """Import the Python file, or compile C++ and CUDA sources, which bind their functions themselves."""
        if self._file.endswith(".py"):
            path = os.path.join(self._folder, self._file)
            spec = importlib.util.spec_from_file_location(Path(self._file).stem, path)
            self._module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = self._module
            spec.loader.exec_module(self._module)
            return
        from torch.utils import cpp_extension

        sources = [os.path.join(self._folder, one) for one in files if one.endswith((".cpp", ".cc", ".cu"))]
        self._module = cpp_extension.load(name="candidate_extension", sources=sources, **options)

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
        self, init: Sequence[Any], keywords: Mapping[str, Any], state: Mapping[str, Any], seed: int
    ) -> tuple[Any, bool]:
        """Construct the candidate's model.

        Returns:
            The model, and whether it has the parameters `state`, because it has some of the same names and
            shapes.
        """
        model_class = self.entry()
        torch.manual_seed(seed)
        with _given(model_class, state):
            model = model_class(*init, **keywords)
        shapes = [{name: one.shape for name, one in of.items()} for of in (model.state_dict(), state)]
        if not state or shapes[0] != shapes[1]:
            return model, False
        model.load_state_dict(state)
        return model, True


@contextmanager
def _given(model_class: Any, state: Mapping[str, Any]) -> Iterator[None]:
    """Give parameters their values as soon as a model's constructor assigns them to the model.

    The constructor may compute something from them, such as a transposed weight.
    """
    assign = torch.nn.Module.__setattr__

    def assigned(module: Any, name: str, value: Any) -> None:
        assign(module, name, value)
        if type(module) is not model_class:
            return
        parts = {name: value} if isinstance(value, torch.nn.Parameter) else {}
        if isinstance(value, torch.nn.Module):
            parts = {f"{name}.{key}": one for key, one in value.state_dict().items()}
        for key, one in parts.items():
            if key in state and state[key].shape == one.shape:
                one.data.copy_(state[key])

    torch.nn.Module.__setattr__ = assigned
    try:
        yield
    finally:
        torch.nn.Module.__setattr__ = assign
