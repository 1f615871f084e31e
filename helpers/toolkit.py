"""Finds the NVRTC and CUDA headers that match the CUDA version torch was built for.

They come as wheels (the ones that torch's CUDA builds depend on), with conda, or with NVIDIA's CUDA toolkit.
Several versions can be installed side by side. torch's CUDA version decides between them, because a driver
for CUDA 12 may refuse the output of CUDA 13's NVRTC.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Their folders inside site-packages (CUDA 13's wheels, CUDA 12's), and inside a toolkit or a conda
# environment.
_WHEEL_LIBRARIES = ("nvidia/cu[0-9]*/lib", "nvidia/cuda_nvrtc/lib")
_WHEEL_HEADERS = ("nvidia/cu[0-9]*/include", "nvidia/cuda_runtime/include")
_HOME_LIBRARIES = ("lib64", "lib", "targets/*/lib", "lib/*-linux-gnu")
_HOME_HEADERS = ("include", "targets/*/include")
# The first CUDA toolkit that compiles for sm_100 (CUDA 12.8, release notes).
_BLACKWELL = (12, 8)


@dataclass(frozen=True)
class Nvrtc:
    """An installed NVRTC.

    Attributes:
        library: libnvrtc.so.N.
        builtins: the library in the same folder that it loads by name.
        version: the CUDA version, such as (12, 8).
        include: the folder of CUDA's headers (cuda_fp16.h, …) of the same major version, or None.
        torch_cuda: the CUDA version that torch was built for, such as "12.8"; None for a CPU build.
    """

    library: Path
    builtins: Path
    version: tuple[int, int]
    include: Path | None
    torch_cuda: str | None

    def __str__(self) -> str:
        return f"NVRTC {named(self.version)}"

    @property
    def problem(self) -> str:
        """What doesn't fit this machine, in a sentence with the command that fixes it; "" if
        everything fits.
        """
        wanted = parsed(self.torch_cuda)
        if wanted and wanted[0] != self.version[0]:
            why = ", and a driver for that CUDA may refuse its output" if self.version > wanted else ""
            return (
                f"torch is built for CUDA {self.torch_cuda}, but only {self} is installed{why}: "
                f"{install_line(self.torch_cuda)}"
            )
        if self.include is None:
            line = install_line(self.torch_cuda or named(self.version))
            return f"CUDA's headers (cuda_fp16.h and others) for {self} are missing: {line}"
        if self.version < _BLACKWELL:
            return (
                f"{self} doesn't know Blackwell (sm_100), for which a lab compiles: install a torch build "
                "for "
                f"CUDA {named(_BLACKWELL)} or newer."
            )
        return ""


def named(version: tuple[int, int]) -> str:
    """Returns "12.8" for (12, 8)."""
    return f"{version[0]}.{version[1]}"


def parsed(cuda: str | None) -> tuple[int, int] | None:
    """Returns torch.version.cuda, such as "12.8", as numbers; None for a build without CUDA."""
    match = re.match(r"(\d+)\.(\d+)", cuda or "")
    return match and (int(match[1]), int(match[2]))


def find_nvrtc(cuda: str | None, home: Path | None = None) -> Nvrtc | None:
    """Returns the NVRTC to compile with, and the matching headers.

    Args:
        cuda: the CUDA version that torch was built for, such as "12.8"; None for a CPU build, for which any
            NVRTC will do.
        home: the folder of the CUDA toolkit, if there is one.

    Returns:
        An NVRTC of the same CUDA version, else of the same major version, else the newest. Wheels take
        precedence over conda and the toolkit. None if none is installed.
    """
    best = _closest(_libraries(home), parsed(cuda))
    if best is None:
        return None
    version, (library, builtins) = best
    headers = _closest(_headers(home), version)
    fits = headers is not None and headers[0][0] == version[0]
    return Nvrtc(library, builtins, version, headers[1] if fits else None, cuda)


def install_line(cuda: str | None) -> str:
    """Returns the command that installs NVRTC and the headers for torch's CUDA version, such as "12.8".

    For a CPU build (None) it installs the newest.
    """
    version = parsed(cuda)
    # Quoted, because [ and * are patterns to a shell.
    return f'pip install "cuda-toolkit[cudart,nvrtc]{f"=={named(version)}.*" if version else ""}"'


def _closest(found: Iterable[tuple[tuple[int, int], object]], wanted: tuple[int, int] | None):
    """Returns the (version, thing) closest to the wanted version, else the newest; the first of equals."""

    def rank(one: tuple) -> tuple:
        version = one[0]
        return wanted is not None and version[0] == wanted[0], version == wanted, version

    return max(found, key=rank, default=None)


def _folders(wheels: tuple[str, ...], below: tuple[str, ...], home: Path | None) -> Iterator[Path]:
    for entry in dict.fromkeys(sys.path):
        for pattern in wheels:
            yield from sorted(Path(entry or ".").glob(pattern))
    for root in filter(None, (Path(sys.prefix), home)):
        for pattern in below:
            yield from sorted(root.glob(pattern))


def _libraries(home: Path | None) -> Iterator[tuple[tuple[int, int], tuple[Path, Path]]]:
    """Yields (version, (NVRTC, its builtins)) for each installation."""
    named_by_user = [Path(f) for f in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if f]
    for folder in (*_folders(_WHEEL_LIBRARIES, _HOME_LIBRARIES, home), *named_by_user):
        # Only the name of the builtins has the minor version: every CUDA 12 has a libnvrtc.so.12.
        for builtins in folder.glob("libnvrtc-builtins.so.*"):
            match = re.fullmatch(r"libnvrtc-builtins\.so\.(\d+)\.(\d+)", builtins.name)
            if match and (library := folder / f"libnvrtc.so.{match[1]}").is_file():
                yield (int(match[1]), int(match[2])), (library, builtins)


def _headers(home: Path | None) -> Iterator[tuple[tuple[int, int], Path]]:
    """Yields (version, folder) for each set of CUDA headers."""
    for folder in _folders(_WHEEL_HEADERS, _HOME_HEADERS, home):
        if (folder / "cuda_fp16.h").is_file() and (version := _header_version(folder)):
            yield version, folder


@functools.cache
def _header_version(folder: Path) -> tuple[int, int] | None:
    try:
        text = (folder / "cuda_runtime_api.h").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"#define CUDART_VERSION\s+(\d+)", text)
    return match and (int(match[1]) // 1000, int(match[1]) % 1000 // 10)
