"""Which functions of torch, of Python and of the verifier a candidate has replaced.

An `Originals` is made in the candidate's process before the candidate is loaded.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

# Holders of functions by which results are timed, made or compared.
_WATCHED = (
    "builtins", "time", "gc", "torch", "torch.cuda", "torch.cuda.random", "torch.cuda.streams",
    "torch.cuda.memory", "torch.random", "torch.testing", "torch.testing._comparison", "torch.nn.functional",
    "torch.autograd.profiler", "torch.profiler", "torch.profiler.profiler", "torch.utils.benchmark",
    "torch.library", "triton.testing", "triton.runtime.driver", "numpy", "numpy.testing", "random",
    "statistics", "timeit", "math", "io", "os", "sys",
)  # fmt: skip
_WATCHED_CLASSES = (
    ("torch", "Tensor"), ("torch", "Generator"), ("torch.cuda", "Event"), ("torch.cuda", "Stream"),
    ("torch.cuda", "CUDAGraph"), ("torch.nn", "Module"), ("torch.profiler", "profile"),
)  # fmt: skip
_NOISY = {"sys": {"argv", "path", "modules", "last_type", "last_value", "last_traceback", "meta_path",
                  "path_importer_cache", "ps1", "ps2", "stdout", "stderr", "stdin"},
          "builtins": {"_"}}  # fmt: skip
# Packages in which no function may be the candidate's, not even in those that `_WATCHED` doesn't name.
_PACKAGES = ("torch", "triton", "numpy", "helpers", "workbook")
# Modules whose functions look up numbers, such as tolerances, that code can replace.
_WITH_TABLES = ("torch.testing._comparison", "triton.testing", "timeit", "torch.utils.benchmark.utils.timer")
_FUNCTIONS = (FunctionType, BuiltinFunctionType)
_CLASS_DATA = ("__doc__", "__module__", "__dict__", "__weakref__", "__annotations__")
_KINDS = (staticmethod, classmethod, property, ModuleType)
_MISSING = object()


class Originals:
    """What modules and classes held before a candidate was loaded."""

    def __init__(self, folder: str) -> None:
        """Remember them.

        Args:
            folder: where the candidate's files are, ending in a slash.
        """
        self._folder = folder
        self._values = list(_functions())
        self._codes = {id(value): _inside(value) for *_, value in self._values}
        self._others = list(_other_functions({id(holder) for _, holder, *_ in self._values}))
        self._other_codes = {id(value): _inside(value) for *_, value in self._others}
        self._tables = {name: repr(value) for name, value in _tables()}
        self._classes = [(f"{module}.{name}", getattr(importlib.import_module(module), name))
                         for module, name in _WATCHED_CLASSES]  # fmt: skip
        self._names = {name: set(vars(holder)) for name, holder in self._classes}
        self._modules = {name: sys.modules[name] for name in _WATCHED if name in sys.modules}
        self._lists = _lists_of_callbacks()
        self._operators = _operators()

    def replaced(self) -> list[str]:
        """The functions that are no longer what they were, such as "torch.cuda.Event.elapsed_time"."""
        found = {f"sys.modules[{name!r}]" for name, module in self._modules.items()
                 if sys.modules.get(name) is not module}  # fmt: skip
        for name, holder, attribute, before in self._values:
            now = vars(holder).get(attribute, _MISSING)
            if now is not before:
                found |= set() if _is_reloaded(before, now) else {f"{name}.{attribute}"}
            elif changed := _changed(now, self._codes.get(id(before))):
                found.add(f"{name}.{attribute}.{changed}")
        for name, holder, attribute, before in self._others:
            now = vars(holder).get(attribute, _MISSING)
            if now is before and (changed := _changed(now, self._other_codes.get(id(before)))):
                found.add(f"{name}.{attribute}.{changed}")
            elif now is not before and now is not _MISSING and _is_strange(before, now):
                found.add(f"{name}.{attribute}")
        found |= {name for name, value in _tables() if repr(value) != self._tables.get(name)}
        for name, holder in self._classes:
            added = {one for one in set(vars(holder)) - self._names[name] if callable(vars(holder)[one])}
            found |= {f"{name}.{attribute}" for attribute in added}
        for name, now in _lists_of_callbacks().items():
            known = {id(one) for one in self._lists[name]}
            found |= {name for one in now if id(one) not in known and self._is_candidates(one)}
        found |= {f"torch.ops.{name.replace('::', '.')}" for name in self._overridden()}
        return sorted(found | set(self._planted()))

    def _overridden(self) -> Iterator[str]:
        """Operators of torch that have an implementation which isn't torch's."""
        for name, now in _operators().items():
            if any(map(_is_foreign, now - self._operators.get(name, frozenset()))):
                yield name

    def _planted(self) -> Iterator[str]:
        """Functions of the candidate that are attributes of a library's modules and classes."""
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] not in _PACKAGES or not isinstance(module, ModuleType):
                continue
            for attribute, value in list(vars(module).items()):
                if issubclass(type(value), type) and value.__module__ == name:
                    of_class = list(vars(value).items())
                    yield from (f"{name}.{attribute}.{one}" for one, method in of_class
                                if self._is_candidates(method))  # fmt: skip
                elif self._is_candidates(value):
                    yield f"{name}.{attribute}"

    def _is_candidates(self, value: Any) -> bool:
        """Whether the code of a function, a method or an object is in the candidate's files."""
        kind = type(value)  # `isinstance` would ask objects that only pretend to be of another class
        if kind in (staticmethod, classmethod):
            value = value.__func__
        elif kind is property:
            value = value.fget
        elif kind is functools.partial:
            value = value.func
        elif kind is MethodType:
            value = value.__func__
        if type(value) is FunctionType:
            file = value.__code__.co_filename
        else:
            module = sys.modules.get(str(type(value).__module__))
            file = vars(module).get("__file__") if type(module) is ModuleType else None
        return isinstance(file, str) and file.startswith(self._folder)


def _operators() -> dict[str, frozenset[str]]:
    """The implementations of each of torch's own operators, name -> lines that say where each comes from.

    Code can register others in Python, in C++ and through functions that nobody documents.
    """
    import torch

    names = [one for one in torch._C._dispatch_get_all_op_names() if one.startswith("aten::")]
    return {name: frozenset(torch._C._dispatch_dump(name).splitlines()) for name in names
            if not name.endswith("out") and "backward" not in name}  # fmt: skip


def _is_foreign(implementation: str) -> bool:
    """Whether an implementation that wasn't there before isn't one of torch's own."""
    place = implementation.partition("registered at ")[2]
    is_torchs = any(one in place for one in ("/aten/src/", "/torch/csrc/", "/site-packages/torch/"))
    return bool(place) and "(inactive)" not in implementation and not is_torchs


def _lists_of_callbacks() -> dict[str, list[Any]]:
    """Lists of what Python calls at every import, and around every collection of garbage."""
    return {"sys.meta_path": list(sys.meta_path), "sys.path_hooks": list(sys.path_hooks),
            "gc.callbacks": list(gc.callbacks)}  # fmt: skip


def _functions() -> Iterator[tuple[str, Any, str, Any]]:
    """Every function and class of the watched modules and classes: (name, holder, attribute, value)."""
    holders = []
    for name in _WATCHED:
        try:
            holders.append((name, importlib.import_module(name)))
        except ImportError:  # Triton is for Linux only
            continue
    holders += [(f"{module}.{name}", getattr(importlib.import_module(module), name))
                for module, name in _WATCHED_CLASSES]  # fmt: skip
    holders += [(name, module) for name, module in list(sys.modules.items())
                if name.partition(".")[0] in ("helpers", "workbook") and module is not None]  # fmt: skip
    for name, holder in holders:
        for attribute, value in list(vars(holder).items()):
            is_special = attribute.startswith("__") and name != "builtins"
            if attribute in _NOISY.get(name, ()) or (is_special and not isinstance(holder, type)):
                continue
            if attribute not in _CLASS_DATA and (callable(value) or isinstance(value, _KINDS)):
                yield name, holder, attribute, value


def _other_functions(known: set[int]) -> Iterator[tuple[str, Any, str, Any]]:
    """The functions of all loaded modules of the libraries and of Python, and of the classes in them, that
    aren't watched already: (name, holder, attribute, value).
    """
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        if package not in _PACKAGES and package not in sys.stdlib_module_names:
            continue
        if not isinstance(module, ModuleType) or name == "__main__":
            continue
        for attribute, value in list(vars(module).items()):
            if type(value) in _FUNCTIONS and id(module) not in known:
                yield name, module, attribute, value
            elif issubclass(type(value), type) and vars(value).get("__module__") == name:
                if id(value) in known:
                    continue
                for one, method in list(vars(value).items()):
                    if type(method) in (*_FUNCTIONS, staticmethod, classmethod, property):
                        yield f"{name}.{attribute}", value, one, method


def _inside(value: Any) -> tuple[Any, Any, Any]:
    """A function's code, its defaults and a copy of its keyword defaults, which can be replaced in place."""
    value = value.__func__ if type(value) in (staticmethod, classmethod) else value
    keywords = getattr(value, "__kwdefaults__", None)
    found = (getattr(value, "__code__", None), getattr(value, "__defaults__", None))
    return (*found, dict(keywords) if type(keywords) is dict else None)


def _changed(value: Any, before: tuple[Any, Any, Any] | None) -> str:
    """What of a function was replaced in place; "" if nothing was."""
    if before is None:
        return ""
    names = ("__code__", "__defaults__", "__kwdefaults__")
    return next(
        (name for name, a, b in zip(names, _inside(value), before, strict=True)
         if a is not b and (name != "__kwdefaults__" or not _same_values(a, b))),
        "",
    )  # fmt: skip


def _same_values(a: Any, b: Any) -> bool:
    """Whether two dicts hold the same objects."""
    return type(a) is dict and type(b) is dict and a.keys() == b.keys() and all(a[k] is b[k] for k in a)


def _is_strange(before: Any, now: Any) -> bool:
    """Whether a library's function was replaced by one that no library defines, or by another library's
    class or function in C.
    """
    if type(now) in (staticmethod, classmethod):
        now = now.__func__
    elif type(now) is property:
        now = now.fget
    if type(now) is FunctionType:
        return not now.__code__.co_filename.startswith(_library_places())
    names = [str(getattr(one, "__module__", None)).partition(".")[0] for one in (before, now)]
    # Triton's interpreter puts Python's `print` in the place of a function of its own.
    return type(now) in (BuiltinFunctionType, type) and names[0] not in (names[1], "triton")


@functools.cache
def _library_places() -> tuple[str, ...]:
    """Where the code of Python and of installed packages is."""
    import helpers
    import workbook

    packages = [one for one in sys.path if one.rstrip("/").endswith(("site-packages", "dist-packages"))]
    own = [os.path.dirname(one.__file__) for one in (helpers, workbook)]
    found = [*packages, *own, os.path.dirname(os.__file__), sys.prefix, sys.base_prefix]
    return (*(place for one in found for place in {one.rstrip("/") + "/", os.path.realpath(one) + "/"}),
            "<frozen ")  # fmt: skip


def _tables() -> Iterator[tuple[str, Any]]:
    """The numbers, and the tables of numbers, that functions which compare and time look up."""
    for name in _WITH_TABLES:
        module = sys.modules.get(name)
        for attribute, value in list(vars(module).items()) if module else ():
            if type(value) in (int, float, str, tuple, list, dict) and not attribute.startswith("__"):
                yield f"{name}.{attribute}", value


def _is_reloaded(before: Any, now: Any) -> bool:
    """Whether a library itself has put another object of its own there, as lazy imports do."""
    if now is _MISSING:
        return False
    where = getattr(before, "__module__", None), getattr(now, "__module__", None)
    packages = [one.partition(".")[0] if isinstance(one, str) else None for one in where]
    file = getattr(getattr(now, "__code__", None), "co_filename", "")
    own = getattr(sys.modules.get(packages[0] or ""), "__file__", None)
    return bool(own) and packages[0] == packages[1] and file.startswith(os.path.dirname(own))
