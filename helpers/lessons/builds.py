"""Inspects builds with torch's `load_inline`, `load` or `setup.py`: their flags, steps and build times."""

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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from helpers import device
from helpers.cuda import BuildError, cache, readable_errors

if TYPE_CHECKING:
    import pandas as pd
    import torch


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[Path]:
    """Locks a build folder for this process, and removes what an interrupted build left in it.

    In torch 2.13, the `lock` file remains when a build is killed, and the next build then waits forever. In
    2.15, the file always remains but has no meaning, because the build relies on the operating system's lock
    on it.

    Raises:
        helpers.cuda.BuildError: Another process holds the folder for longer than `cuda.cache.LOCK_TIMEOUT_S`.
            The message names that process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with cache.build_lock(folder):
        (folder / "lock").unlink(missing_ok=True)
        yield folder


def folder_for(name: str) -> Path:
    """Returns a build folder that is specific to the versions of Python and torch and to whether there is a
    GPU.
    """
    import torch

    python = "{}.{}".format(*sys.version_info)
    where = "cuda" if device.has_gpu() else "cpu"
    return cache.build_folder() / f"{name}-torch{torch.__version__}-python{python}-{where}".replace("+", "-")


def write(path: Path, text: str) -> str:
    """Writes a file and returns its path as a string.

    If the file already has this text, it isn't touched, because ninja compares modification times.
    """
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return str(path)


def flags(folder: Path, variable: str) -> str:
    """Returns a variable of build.ninja ("cflags", "ldflags" or "cuda_cflags") without include and library
    paths.

    Raises:
        ValueError: build.ninja doesn't set the variable.
    """
    line = re.search(rf"^{variable} = (.*)$", (folder / "build.ninja").read_text(), re.M)
    if line is None:
        raise ValueError(f"{folder / 'build.ninja'} does not set {variable}.")
    words = [word for word in line[1].split() if word.startswith("-")]
    return " ".join(word for word in words if not word.startswith(("-I", "-isystem", "-L")))


def steps(folder: Path) -> pd.DataFrame:
    """Returns the steps of the last build from ninja's log, with their `seconds`."""
    import pandas as pd

    rows = [line.split("\t") for line in (folder / ".ninja_log").read_text().splitlines()[1:]]
    last = {step: (int(end) - int(start)) / 1e3 for start, end, _, step, _ in rows}
    return pd.DataFrame({"step": last.keys(), "seconds": last.values()})


def reading(folder: Path) -> tuple[int, float]:
    """Returns how many files the compiler reads for main.cpp, and how many seconds reading alone takes.

    The files include the headers of PyTorch and of the system. The result is cached in the build folder.
    """
    cache_file = folder / "reading.json"
    if cache_file.exists():
        n_files, seconds = json.loads(cache_file.read_text())
        return n_files, seconds
    if (folder / "build.ninja").exists():
        line = re.search(r"^cflags = (.*)$", (folder / "build.ninja").read_text(), re.M)[1]
        command = [str(device.find_tool("c++")), *shlex.split(line), "-M", "main.cpp"]
    else:  # without PyTorch's headers, helpers.cuda stores its commands
        compile_main = json.loads((folder / "built.json").read_text())["commands"][0]
        command = [*compile_main[: compile_main.index("-c")], "-M", "main.cpp"]
    start = time.perf_counter()
    dependencies = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    seconds = time.perf_counter() - start
    n_files = len(dependencies.replace("\\\n", " ").split()) - 1
    cache_file.write_text(json.dumps([n_files, seconds]))
    return n_files, seconds


def seconds_of(run) -> float:
    """Returns the seconds that a call takes on the host's clock."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def import_from(path: Path, name: str) -> ModuleType:
    """Imports a shared object as module `name`."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def import_seconds(module: ModuleType) -> float:
    """Returns the seconds that importing a finished build takes.

    It imports a copy, because the system doesn't load the same library twice.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(module.__file__, folder))
        return seconds_of(lambda: import_from(copy, module.__name__))


def run_setup_py(folder: Path, files: Mapping[str, str], name: str) -> ModuleType:
    """Writes the files of a package, builds it with `python setup.py build_ext --inplace`, and imports it.

    It prints how long the build took and which files it left.

    Args:
        folder: The folder of the package. Unchanged files are not rewritten, so a second build is fast.
        files: File names and their text, including setup.py.
        name: The name of the extension module, which is returned.

    Raises:
        helpers.cuda.BuildError: setup.py failed. The message has the compiler's errors with their lines.
    """
    with alone_in(folder):
        for file, text in files.items():
            write(folder / file, text)
        command = [sys.executable, "setup.py", "build_ext", "--inplace"]
        start = time.perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        seconds = time.perf_counter() - start
        if done.returncode:
            raise BuildError(readable_errors(done.stdout + done.stderr, dict(files)))
    print(
        f"python setup.py build_ext --inplace took {seconds:.1f} s this time and left",
        *sorted(p.name for p in folder.iterdir()),
    )
    return import_from(next(folder.glob(f"{name}*.so")), name)


def timed_square(label: str, kernel: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> dict:
    """Checks a kernel that squares a matrix, also at the size of `x`, then times it and returns a row."""
    import torch

    from helpers import check, timing

    check.assert_matches(kernel, torch.square, shapes=[(17, 33)], timed_shape=tuple(x.shape), name=label)
    timed = timing.time_gpu(lambda: kernel(x))
    low, high = timed.ci95_us
    row = {"kernel": label, "median_us": timed.median_us, "ci_low_us": low, "ci_high_us": high}
    return {**row, "gb_per_s": timed.gb_per_s(2 * x.nbytes), "n_rows": x.shape[0], "n_cols": x.shape[1]}
