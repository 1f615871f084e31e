"""What a candidate does besides computing: functions that it replaces, places where it looks, state that it
changes.

A `Watch` is made before the candidate is loaded, in the candidate's own process. It reports what it sees; a
candidate that is determined enough can silence it, but it can't change the inputs, the expected results or
the comparison, which stay in another process.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

# Audit events that mean that code looks for something it wasn't given, and what the report calls them.
_PEEKS = {
    "sys._getframe": "walks the call stack (sys._getframe)",
    "sys._current_frames": "reads the frames of all threads (sys._current_frames)",
    "gc.get_objects": "lists all objects in memory (gc.get_objects)",
    "gc.get_referrers": "looks for the owners of an object (gc.get_referrers)",
    "gc.get_referents": "looks for what an object holds (gc.get_referents)",
}
_STARTS = {
    "subprocess.Popen": "starts a process",
    "os.fork": "forks",
    "os.forkpty": "forks",
    "os.posix_spawn": "starts a process",
    "os.exec": "replaces the process",
    "socket.connect": "opens a network connection",
}
# Modules through which code reaches these events; their frames don't say who asked.
_BETWEEN = (
    "inspect", "traceback", "subprocess", "os", "posixpath", "genericpath", "pathlib", "io", "codecs",
    "multiprocessing", "concurrent", "linecache", "tokenize", "glob", "fnmatch", "shutil", "tempfile",
)  # fmt: skip
_HARMLESS_PLACES = (
    "/usr/", "/lib", "/bin/", "/sbin/", "/etc/ld.so", "/sys/devices", "/sys/class", "/dev/null",
    "/dev/nvidia", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo", "/proc/self/maps",
)  # fmt: skip
# Holders of functions by which results are timed, made or compared.
_WATCHED = (
    "builtins", "time", "gc", "torch", "torch.cuda", "torch.cuda.random", "torch.cuda.streams",
    "torch.cuda.memory", "torch.random", "torch.testing", "torch.testing._comparison", "torch.nn.functional",
    "torch.autograd.profiler", "torch.profiler", "torch.profiler.profiler", "torch.utils.benchmark",
    "torch.library", "triton.testing", "triton.runtime.driver", "numpy", "numpy.testing", "random",
    "statistics", "math", "io", "os", "sys",
)  # fmt: skip
_WATCHED_CLASSES = (
    ("torch", "Tensor"), ("torch", "Generator"), ("torch.cuda", "Event"), ("torch.cuda", "Stream"),
    ("torch.cuda", "CUDAGraph"), ("torch.nn", "Module"), ("torch.profiler", "profile"),
)  # fmt: skip
_NOISY = {"sys": {"argv", "path", "modules", "last_type", "last_value", "last_traceback", "meta_path",
                  "path_importer_cache", "ps1", "ps2", "stdout", "stderr", "stdin"},
          "builtins": {"_"}}  # fmt: skip


class Watch:
    """Observes everything that runs from files in `folder`.

    Attributes:
        events: what the candidate did that it need not do: (kind, sentence), kind being "peeks", "processes"
            or "files". Each is reported once.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder.rstrip("/") + "/"
        home = os.path.dirname(folder.rstrip("/")) + "/"
        self._own_places = (home, "/tmp/", *_HARMLESS_PLACES, *_import_places())
        self.events: list[tuple[str, str]] = []
        self._originals = list(_functions())
        self._codes = {id(value): getattr(value, "__code__", None) for *_, value in self._originals}
        self._classes = [(f"{module}.{name}", getattr(importlib.import_module(module), name))
                         for module, name in _WATCHED_CLASSES]  # fmt: skip
        self._names = {name: set(vars(holder)) for name, holder in self._classes}
        self._state = self.state()
        self._threads = {thread.ident for thread in threading.enumerate()}
        self._frame = sys._getframe
        self._on = True
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._on or event not in _AUDITED:
            return
        self._on = False  # what is asked here is not the candidate's
        try:
            if self._is_candidate(self._frame(1)):
                self._note(event, args)
        finally:
            self._on = True

    def _is_candidate(self, frame: FrameType | None) -> bool:
        """Whether the innermost frame that isn't of `_BETWEEN` runs the candidate's code."""
        while frame is not None:
            name = frame.f_globals.get("__name__", "")
            if frame.f_code.co_filename.startswith(self._folder):
                return True
            if not isinstance(name, str) or name.partition(".")[0] not in _BETWEEN:
                return False
            frame = frame.f_back
        return False

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _PEEKS:
            found = "peeks", _PEEKS[event]
        elif event in _STARTS:
            found = "processes", _STARTS[event]
        else:
            place = args[0]
            if isinstance(place, bytes):
                place = os.fsdecode(place)
            if not isinstance(place, str) or self._is_own(os.path.abspath(place)):
                return
            found = "files", f"opens {os.path.abspath(place)}"
        if found not in self.events and len(self.events) < 20:
            self.events.append(found)

    def _is_own(self, place: str) -> bool:
        return place.startswith(self._own_places)

    def replaced(self) -> list[str]:
        """The functions that are no longer what they were, such as "torch.cuda.Event.elapsed_time"."""
        found = []
        for name, holder, attribute, before in self._originals:
            now = vars(holder).get(attribute, _MISSING)
            if now is not before:
                found += [] if _is_reloaded(before, now) else [f"{name}.{attribute}"]
            elif getattr(now, "__code__", None) is not self._codes.get(id(before)):
                found.append(f"{name}.{attribute}.__code__")
        for name, holder in self._classes:
            added = {one for one in set(vars(holder)) - self._names[name] if callable(vars(holder)[one])}
            found += [f"{name}.{attribute}" for attribute in added]
        return sorted(found)

    @staticmethod
    def state() -> dict[str, Any]:
        """Settings that a call must leave as they were, name -> value."""
        import random

        import torch

        from helpers.timing import persisting

        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        return {
            "torch.get_default_dtype()": str(torch.get_default_dtype()),
            "torch.get_default_device()": str(torch.get_default_device()),
            "torch.backends.cuda.matmul.fp32_precision": matmul.fp32_precision,
            "torch.backends.cudnn.conv.fp32_precision": cudnn.conv.fp32_precision,
            "torch.backends.cudnn.rnn.fp32_precision": cudnn.rnn.fp32_precision,
            "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": str(
                matmul.allow_fp16_reduced_precision_reduction
            ),
            "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction": str(
                matmul.allow_bf16_reduced_precision_reduction
            ),
            "torch.backends.cudnn.benchmark": cudnn.benchmark,
            "torch.backends.cudnn.deterministic": cudnn.deterministic,
            "torch.backends.cudnn.enabled": cudnn.enabled,
            "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
            "torch.is_grad_enabled()": torch.is_grad_enabled(),
            "torch.is_inference_mode_enabled()": torch.is_inference_mode_enabled(),
            "torch.is_autocast_enabled()": torch.is_autocast_enabled("cuda"),
            "torch.get_num_threads()": torch.get_num_threads(),
            "cudaLimitPersistingL2CacheSize": persisting.set_aside_bytes(),
            "torch.initial_seed()": torch.initial_seed(),
            "random.getstate()": hash(random.getstate()),
            "gc.isenabled()": gc.isenabled(),
            "the working directory": os.getcwd(),
            "sys.settrace": str(sys.gettrace()),
            "modes of torch's functions and operators": (
                torch._C._len_torch_function_stack(),
                torch._C._len_torch_dispatch_stack(),
            ),
            "implementations of torch's own operators": tuple(
                sorted(str(one) for one in torch.library._impls if str(one).startswith("aten/"))
            ),
            "os.environ": tuple(sorted((k, v) for k, v in os.environ.items() if not _is_private(k))),
        }

    def changed_state(self) -> list[str]:
        """The settings that differ from those before the candidate was loaded, as "name: before -> now"."""
        now, found = self.state(), []
        for name, before in self._state.items():
            if now[name] == before:
                continue
            if name == "os.environ":
                keys = sorted({k for k, _ in set(before) ^ set(now[name])})
                found.append(f"os.environ: {', '.join(keys[:5])}")
            elif name == "random.getstate()":
                found.append("the state of Python's random numbers")
            else:
                found.append(f"{name}: {before} -> {now[name]}")
        return found

    def new_threads(self) -> list[str]:
        """The names of Python threads that run now and did not before."""
        return [thread.name for thread in threading.enumerate() if thread.ident not in self._threads]


_BUILD_VARIABLES = (
    "TORCHINDUCTOR_", "TORCH_", "TRITON_", "KMP_", "CUDA_MODULE", "PYTORCH_", "CUDA_HOME", "CUDA_PATH",
    "PATH", "LD_LIBRARY_PATH", "MAX_JOBS", "CC", "CXX", "CXXFLAGS", "NVCC_",
)  # fmt: skip
_AUDITED = {*_PEEKS, *_STARTS, "open"}
_MISSING = object()


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
    kinds = (staticmethod, classmethod, property)
    for name, holder in holders:
        for attribute, value in list(vars(holder).items()):
            if attribute in _NOISY.get(name, ()) or (attribute.startswith("__") and name != "builtins"):
                continue
            if callable(value) or isinstance(value, kinds):
                yield name, holder, attribute, value


def _is_reloaded(before: Any, now: Any) -> bool:
    """Whether a library itself has put another object of its own there, as lazy imports do."""
    if now is _MISSING:
        return False
    where = getattr(before, "__module__", None), getattr(now, "__module__", None)
    packages = [one.partition(".")[0] if isinstance(one, str) else None for one in where]
    file = getattr(getattr(now, "__code__", None), "co_filename", "")
    own = getattr(sys.modules.get(packages[0] or ""), "__file__", None)
    return bool(own) and packages[0] == packages[1] and file.startswith(os.path.dirname(own))


def _is_private(name: str) -> bool:
    """Environment variables of builds, and those that libraries set when they are first used."""
    return name.startswith(_BUILD_VARIABLES)


def _import_places() -> list[str]:
    """The folders of Python, of installed packages, and of this workbook's packages."""
    import helpers
    import workbook

    packages = [os.path.dirname(one.__file__) for one in (helpers, workbook)]
    installed = [one for one in sys.path if one.rstrip("/").endswith(("site-packages", "dist-packages"))]
    return [os.path.realpath(one) + "/" for one in (sys.prefix, sys.base_prefix, *packages, *installed)]
