"""A kernel's text of another day: kept with what it imports of yours, and loaded beside today's."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.abc
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from helpers import device


def entry_of(function: Callable) -> str:
    """Where a function stands, as "module:name"; "" where it stands in no file of yours under its own name, as a lambda."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    name = getattr(function, "__qualname__", "")
    if module is None or not _is_yours(module) or getattr(module, name, None) is not function:
        return ""
    return f"{module.__name__}:{name}"


def texts_of(function: Callable | None) -> dict[str, str]:
    """The texts of the function's module and of each of your modules that it imports at its top, directly or not.

    Yours are those that are not installed, and `helpers`. What a function imports when it is called is not among them, nor
    are packages' `__init__` files and files that are no Python.

    Returns:
        Module name to text; empty where the function cannot be run again from texts: see `entry_of`, and a module that
        registers operators with torch can be loaded only once.
    """
    texts: dict[str, str] = {}
    if function is not None and entry_of(function):
        _collect(sys.modules[function.__module__], texts)
    return {} if any("torch.library" in text for text in texts.values()) else texts


def _collect(module: ModuleType, texts: dict[str, str]) -> None:
    texts[module.__name__] = text = inspect.getsource(module)
    for node in ast.parse(text).body:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = (module.__package__ or "").split(".")
            base = (
                ".".join([*above[: len(above) - node.level + 1], node.module or ""])
                if node.level
                else node.module
            )
            base = (base or "").strip(".")
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            found = sys.modules.get(name)
            if found is not None and name not in texts and _is_yours(found):
                _collect(found, texts)


def _is_yours(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None) or ""
    if not file.endswith(".py") or file.endswith("__init__.py"):
        return False
    if module.__name__.split(".")[0] == "helpers":
        return True
    installed = (sysconfig.get_path(kind) for kind in ("stdlib", "platlib", "purelib"))
    return not any(Path(file).resolve().is_relative_to(Path(folder).resolve()) for folder in installed)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules in a folder of files that are called by their whole names."""

    def __init__(self, folder: Path, names: Mapping[str, Any]):
        self.folder, self.names = folder, names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname not in self.names:
            return None
        return importlib.util.spec_from_file_location(fullname, self.folder / f"{fullname}.py")


def load(texts: Mapping[str, str]) -> dict[str, ModuleType]:
    """Load modules from texts under their own names, beside today's, which stay what the rest of the process imports.

    The texts are run: load only what you trust.
    """
    sha = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:16]
    folder = device.cache_folder() / "bench" / sha
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    parents = {name: sys.modules.get(name.rpartition(".")[0]) for name in texts}
    today = {name: sys.modules.pop(name, None) for name in texts}
    for name, parent in parents.items():  # `from package import module` takes the package's attribute first
        if parent is not None:
            vars(parent).pop(name.rpartition(".")[2], None)
    finder = _Finder(folder, texts)
    sys.meta_path.insert(0, finder)
    try:
        return {name: importlib.import_module(name) for name in texts}
    finally:
        sys.meta_path.remove(finder)
        for name, module in today.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
                if parents[name] is not None:
                    setattr(parents[name], name.rpartition(".")[2], module)


def function_at(modules: Mapping[str, ModuleType], entry: str) -> Callable | None:
    """The function that an entry ("module:name") names in loaded modules, or None."""
    module, _, name = entry.partition(":")
    return getattr(modules.get(module), name, None)
