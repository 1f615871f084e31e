"""What a build of torch's `load_inline`, `load` or `setup.py` leaves in its folder, and what it read."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from helpers import device
from helpers.cuda import BuildError, cache, readable_errors

if TYPE_CHECKING:
    import pandas as pd


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[Path]:
    """Hold a build folder for this process, and clear what a killed build left in it.

    The `lock` file of torch 2.13 stays behind when a build is killed, and then the next build waits for ever. In 2.15 it
    always stays behind and means nothing: there the operating system's lock on it counts.

    Raises:
        helpers.cuda.BuildError: another process, which is named, holds the folder for longer than `cuda.cache.LOCK_TIMEOUT_S`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with cache.build_lock(folder):
        (folder / "lock").unlink(missing_ok=True)
        yield folder


def folder_for(name: str) -> Path:
    """A folder for a build that must not be shared between versions of Python or torch, or with and without a GPU."""
    import torch

    python = "{}.{}".format(*sys.version_info)
    where = "cuda" if device.has_gpu() else "cpu"
    return cache.build_folder() / f"{name}-torch{torch.__version__}-python{python}-{where}".replace("+", "-")


def write(path: Path, text: str) -> str:
    """Write a file unless it has this text already, since ninja goes by its date; returns the path as a string."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return str(path)


def flags(folder: Path, variable: str) -> str:
    """One of build.ninja's variables ("cflags", "ldflags", "cuda_cflags"), without its include and library paths."""
    line = re.search(rf"^{variable} = (.*)$", (folder / "build.ninja").read_text(), re.M)
    if line is None:
        raise ValueError(f"{folder / 'build.ninja'} sets no {variable}.")
    words = [word for word in line[1].split() if word.startswith("-")]
    return " ".join(word for word in words if not word.startswith(("-I", "-isystem", "-L")))


def steps(folder: Path) -> pd.DataFrame:
    """What ninja remembers of the build that made these files: `step` and its own `seconds`."""
    import pandas as pd

    rows = [line.split("\t") for line in (folder / ".ninja_log").read_text().splitlines()[1:]]
    last = {step: (int(end) - int(start)) / 1e3 for start, end, _, step, _ in rows}
    return pd.DataFrame({"step": last.keys(), "seconds": last.values()})


def reading(folder: Path) -> tuple[int, float]:
    """How many files the compiler reads for main.cpp, and the seconds that it takes to read them alone.

    PyTorch's and the system's headers are among them. What was found is kept in the folder, beside what was built.
    """
    kept = folder / "reading.json"
    if kept.exists():
        n_files, seconds = json.loads(kept.read_text())
        return n_files, seconds
    if (folder / "build.ninja").exists():
        line = re.search(r"^cflags = (.*)$", (folder / "build.ninja").read_text(), re.M)[1]
        command = [str(device.find_tool("c++")), *shlex.split(line), "-M", "main.cpp"]
    else:  # helpers.cuda without PyTorch's headers keeps its commands
        compile_main = json.loads((folder / "built.json").read_text())["commands"][0]
        command = [*compile_main[: compile_main.index("-c")], "-M", "main.cpp"]
    start = time.perf_counter()
    listed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    seconds = time.perf_counter() - start
    n_files = len(listed.replace("\\\n", " ").split()) - 1
    kept.write_text(json.dumps([n_files, seconds]))
    return n_files, seconds


def seconds_of(run) -> float:
    """Seconds on the host's clock that a call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def import_from(path: Path, name: str) -> ModuleType:
    """Import a shared object as module `name`."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def import_seconds(module: ModuleType) -> float:
    """Seconds for importing a copy of a finished build: the system keeps a library that it has loaded."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(module.__file__, folder))
        return seconds_of(lambda: import_from(copy, module.__name__))


def run_setup_py(folder: Path, files: Mapping[str, str], name: str) -> ModuleType:
    """Write a package's files and build it with `python setup.py build_ext --inplace`; prints the seconds and the files.

    Args:
        folder: where; unchanged files are left alone, so a second build is quick.
        files: file name to text, setup.py among them.
        name: of the extension module, which is imported and returned.

    Raises:
        helpers.cuda.BuildError: setup.py failed; the compiler's errors with their lines.
    """
    with alone_in(folder):
        for file, text in files.items():
            write(folder / file, text)
        command = [sys.executable, "setup.py", "build_ext", "--inplace"]
        start = time.perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        took = time.perf_counter() - start
        if done.returncode:
            raise BuildError(readable_errors(done.stdout + done.stderr, dict(files)))
    print(
        f"python setup.py build_ext --inplace took {took:.1f} s this time and left",
        *sorted(p.name for p in folder.iterdir()),
    )
    return import_from(next(folder.glob(f"{name}*.so")), name)
