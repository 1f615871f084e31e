"""Run a benchmark's own files in this process: problems and references, which whoever verifies trusts."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import ModuleType

from workbook.usage import UsageError, first_line


def run_source(source: str, path: Path, what: str) -> ModuleType:
    """Execute Python source as a module whose imports find files next to `path`.

    Raises:
        UsageError: it raises an error; the sentence names the file and the line.
    """
    name = f"verified_{path.stem}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses and Triton look modules up by their names
    with _importing_from(path.resolve().parent):
        try:
            exec(compile(source, str(path), "exec"), module.__dict__)
        except Exception as error:
            line = _line(error, str(path))
            where = f"{path}, line {line}" if line else str(path)
            says = f"{type(error).__name__}: {first_line(error)}"
            raise UsageError(f"{where}: the {what} can't be run ({says}).") from None
    return module


def need(module: ModuleType, path: Path, *names: str) -> list[object]:
    """Attributes of a module.

    Raises:
        UsageError: one is missing.
    """
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        raise UsageError(f"{path}: it defines no {missing[0]}; it needs {', '.join(names)}.")
    return [getattr(module, name) for name in names]


@contextlib.contextmanager
def _importing_from(folder: Path):
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _line(error: BaseException, file: str) -> int:
    if isinstance(error, SyntaxError):
        return error.lineno or 0
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
