"""Read the files of a problem, and say in one sentence what is wrong with them."""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import json
import linecache
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from helpers import device
from workbook.usage import UsageError, first_line
from workbook.verify.portable import on_cpu

# Bytes of a case's inputs without a GPU, where a kernel runs in the interpreter or the emulator.
_WANTED, _MOST = 1 << 18, 16 << 20


def fits_cpu(n_bytes: int, *, is_needed: bool) -> bool:
    """Whether inputs are small enough for a machine without a GPU.

    Args:
        n_bytes: their size in bytes.
        is_needed: whether there is nothing smaller to try, so that it may take long.
    """
    return n_bytes <= (_MOST if is_needed else _WANTED)


def text_of(path: Path) -> str:
    """A file's text.

    Raises:
        UsageError: it is missing or isn't UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path} isn't a text file; pass a file in UTF-8.") from None
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from None


def object_of(text: str, what: str) -> dict[str, Any]:
    """A JSON object.

    Args:
        text: the JSON.
        what: what a message calls it, such as "definition.json".

    Raises:
        UsageError: it isn't JSON, or isn't an object.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{what} isn't JSON: {error.msg} in line {error.lineno}.") from None
    if not isinstance(value, dict):
        raise UsageError(f"{what} holds a JSON {type(value).__name__}, where an object is needed.")
    return value


def field_of(record: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    """A required field of a JSON object.

    Raises:
        UsageError: it is missing or has another type.
    """
    if name not in record:
        raise UsageError(f'{where} has no "{name}"; the format requires it.')
    if not isinstance(record[name], kind):
        names = {str: "a string", dict: "an object", list: "a list"}
        raise UsageError(f'"{name}" of {where} is {record[name]!r}; it must be {names[kind]}.')
    return record[name]


def portable(source: str, filename: str) -> str:
    """Python source that runs on this machine: without a GPU, the device in it is the CPU.

    Raises:
        UsageError: it isn't Python.
    """
    try:
        ast.parse(source, filename)
        return source if device.has_gpu() else on_cpu(source, filename)
    except SyntaxError as error:
        raise UsageError(f"{filename} isn't valid Python: {error.msg} in line {error.lineno}.") from None


class Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of a trusted problem that import each other by short names, such as `utils`.

    They are in `sys.modules` only while one of them runs, so that they don't hide modules of the same name.
    """

    def __init__(self, texts: Mapping[str, str], filenames: Mapping[str, str]) -> None:
        """Nothing is imported yet.

        Args:
            texts: module -> source.
            filenames: module -> what messages and tracebacks call its file.
        """
        self._texts, self._filenames = dict(texts), dict(filenames)
        self._loaded: dict[str, ModuleType] = {}

    def load(self, name: str) -> ModuleType:
        """Import a module.

        Raises:
            UsageError: it isn't Python, or it or one that it imports raises an error.
        """
        with self.importable():
            return importlib.import_module(name)

    @contextmanager
    def importable(self) -> Iterator[None]:
        """Let `import` find the modules inside the block; call their functions inside it too."""
        hidden = {name: sys.modules.pop(name) for name in self._texts if name in sys.modules}
        sys.modules.update(self._loaded)
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            self._loaded |= {name: sys.modules.pop(name) for name in self._texts if name in sys.modules}
            sys.modules.update(hidden)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """As `import` asks for it."""
        return ModuleSpec(fullname, self) if fullname in self._texts else None

    def exec_module(self, module: ModuleType) -> None:
        """Run a module's source; `inspect` finds it."""
        filename = self._filenames[module.__name__]
        source = portable(self._texts[module.__name__], filename)
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        try:
            exec(compile(source, filename, "exec"), vars(module))
        except UsageError:
            raise
        except Exception as error:
            says = f"{type(error).__name__}: {first_line(error)}"
            raise UsageError(f"{filename} can't be imported here: {says.rstrip('.')}.") from error
