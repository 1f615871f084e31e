"""A build cache with one folder per version of the sources; a half-finished build is never visible.

The folder is named after a hash of everything that goes into the build. The lock belongs to the operating
system, so a killed build can't leave it behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from helpers import device
from helpers.cuda.errors import BuildError, readable_errors

LOCK_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class BuildInfo:
    """How a module was built.

    Attributes:
        seconds: the duration of the build, even if `cached` says that it wasn't repeated.
        emulated: whether its kernels run in the emulator instead of on a GPU.
    """

    name: str
    directory: Path
    seconds: float
    cached: bool
    emulated: bool = False

    def __repr__(self) -> str:
        how = "loaded from the cache; it took" if self.cached else "built in"
        where = (
            ", for the CPU emulator: it computes and checks, but its speed says nothing about a GPU"
            if self.emulated
            else ""
        )
        return f"{self.name}: {how} {self.seconds:.1f} s{where}"


_loaded: dict[str, ModuleType] = {}


def build_folder() -> Path:
    """Returns the folder that holds the builds, one subfolder each."""
    return device.cache_folder() / "build"


def info(module: ModuleType) -> BuildInfo:
    """Returns how a module of `load_cpp` or `load_cuda` was built.

    Raises:
        ValueError: the module wasn't built by `helpers.cuda`.
    """
    found = getattr(module, "__workbook_build__", None)
    if found is None:
        raise ValueError(
            f"{module!r} was not built by helpers.cuda: info() takes what load_cpp or load_cuda returned."
        )
    return found


def load_cached(
    name: str,
    build_inputs: dict,
    make: Callable[[Path, io.StringIO], tuple[ModuleType, dict]],
    texts: dict[str, str | None],
    *,
    emulated: bool,
) -> ModuleType:
    """Imports the finished build of exactly these sources, or builds it in a folder of its own.

    Args:
        name: the module's name.
        build_inputs: everything that goes into the build except the name, Python, torch and the C++
            compiler, as plain values.
        make: builds in the folder that it is given, writes the compilers' output to the text stream that it
            is given, and imports the module. Returns the module and what to store about the build.
        texts: the sources by the file name that the compiler uses for them.
        emulated: whether the module's kernels run in the emulator.

    Raises:
        BuildError: `make` failed. The message has the relevant lines of the compilers' output.
        ValueError: the name isn't an identifier.
    """
    import torch

    if not name.isidentifier():
        raise ValueError(f"A module's name must be a Python identifier; {name!r} is not.")
    build_inputs = {
        **build_inputs,
        "name": name,
        "torch": torch.__version__,
        "python": sys.version,
        "compiler": compiler_identity("c++"),
    }
    key = hashlib.sha256(json.dumps(build_inputs, sort_keys=True).encode()).hexdigest()[:16]
    if key in _loaded:
        return _loaded[key]
    folder = build_folder() / f"{name}-{key}"
    module, cached = None, _ready(folder)
    if not cached:
        with build_lock(folder):
            # Another process may have built it while this one waited.
            cached = _ready(folder)
            if not cached:
                module = _build(build_inputs, folder, make, texts, emulated)
    built = json.loads((folder / "built.json").read_text())
    module = module or import_built(folder, built["module"])
    module.__workbook_build__ = BuildInfo(name, folder, built["seconds"], cached, emulated)
    _loaded[key] = module
    return module


def compiler_identity(tool: str) -> str | None:
    """Returns a compiler's path, size and modification time, which change with the compiler."""
    path = device.find_tool(tool)
    if path is None:
        return None
    stat = path.resolve().stat()
    return f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}"


def _ready(folder: Path) -> bool:
    return (folder / "built.json").is_file()


def import_built(folder: Path, module_name: str) -> ModuleType:
    """Imports the shared object of a build."""
    spec = importlib.util.spec_from_file_location(module_name, folder / f"{module_name}.so")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def build_lock(folder: Path, timeout_s: float | None = None) -> Iterator[None]:
    """Holds the lock of a build. The operating system releases it when its holder ends, for
    whatever reason.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    path = folder.with_name(folder.name + ".lock")
    deadline = time.monotonic() + (LOCK_TIMEOUT_S if timeout_s is None else timeout_s)
    with path.open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    file.seek(0)
                    owner = file.read().strip() or "an unknown process"
                    raise BuildError(
                        f"Another build of {folder.name} is still running: {owner}. End it, or wait and run "
                        "this again."
                    ) from None
                time.sleep(0.1)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%H:%M:%S')}")
        file.flush()
        yield


def _build(
    build_inputs: dict, folder: Path, make: Callable, texts: dict[str, str | None], emulated: bool
) -> ModuleType:
    """Builds in a private folder and then moves the result into place."""
    # Remove what killed builds left behind; nothing else uses it, since this process holds the lock.
    for leftover in folder.parent.glob(f"{folder.name}.[0-9]*"):
        shutil.rmtree(leftover, ignore_errors=True)
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    output = io.StringIO()
    start = time.perf_counter()
    try:
        module, build_facts = make(partial, output)
        built = {
            "what": build_inputs,
            "seconds": time.perf_counter() - start,
            "module": Path(module.__file__).stem,
        }
        (partial / "built.json").write_text(json.dumps(built | build_facts))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
    except Exception as error:
        messages = f"{output.getvalue()}\n{error}"
        if emulated:
            # Drop the column numbers, because they refer to the translated source.
            messages = re.sub(r"(\.cu:\d+):\d+:", r"\1:", messages)
        raise BuildError(readable_errors(messages, texts)) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    module.__file__ = str(folder / Path(module.__file__).name)
    return module
