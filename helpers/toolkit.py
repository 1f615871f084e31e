"""NVRTC and CUDA's headers: what is installed here, and which of it fits the CUDA that torch was built for.

They come as wheels (the same that torch's CUDA builds bring), with conda, or with NVIDIA's CUDA toolkit. Several may lie
side by side: a driver for CUDA 12 may refuse what CUDA 13's NVRTC makes, so torch's CUDA decides.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Where they are below a folder of packages, in CUDA 13's wheels and in CUDA 12's; below a toolkit or a conda environment.
_WHEEL_LIBRARIES = ("nvidia/cu[0-9]*/lib", "nvidia/cuda_nvrtc/lib")
_WHEEL_HEADERS = ("nvidia/cu[0-9]*/include", "nvidia/cuda_runtime/include")
_HOME_LIBRARIES = ("lib64", "lib", "targets/*/lib", "lib/*-linux-gnu")
_HOME_HEADERS = ("include", "targets/*/include")
# The first CUDA toolkit that compiles for sm_100 (CUDA 12.8, release notes).
_BLACKWELL = (12, 8)


@dataclass(frozen=True)
class Nvrtc:
    """An NVRTC that is installed.

    Attributes:
        library: libnvrtc.so.N.
        builtins: the library beside it that it loads by name.
        version: of CUDA, such as (12, 8).
        include: the folder of CUDA's headers (cuda_fp16.h, …) of the same major version; None where there is none.
        torch_cuda: the CUDA that torch was built for, such as "12.8"; None for a CPU build.
    """

    library: Path
    builtins: Path
    version: tuple[int, int]
    include: Path | None
    torch_cuda: str | None

    def __str__(self) -> str:
        return f"NVRTC {named(self.version)}"

    @property
    def misfit(self) -> str:
        """What is wrong with it here, in a sentence with the line that mends it; "" where nothing is."""
        wanted = parsed(self.torch_cuda)
        if wanted and wanted[0] != self.version[0]:
            why = ", and a driver for it may refuse what that makes" if self.version > wanted else ""
            return (
                f"torch is built for CUDA {self.torch_cuda}, but only {self} is here{why}: "
                f"{install_line(self.torch_cuda)}"
            )
        if self.include is None:
            line = install_line(self.torch_cuda or named(self.version))
            return f"CUDA's headers (cuda_fp16.h and others) for {self} are not here: {line}"
        if self.version < _BLACKWELL:
            return (
                f"{self} does not know Blackwell (sm_100), for which a lab compiles: install a torch that is built for "
                f"CUDA {named(_BLACKWELL)} or newer."
            )
        return ""


def named(version: tuple[int, int]) -> str:
    """(12, 8) as "12.8"."""
    return f"{version[0]}.{version[1]}"


def parsed(cuda: str | None) -> tuple[int, int] | None:
    """torch.version.cuda, such as "12.8", as numbers; None for a build without CUDA."""
    match = re.match(r"(\d+)\.(\d+)", cuda or "")
    return match and (int(match[1]), int(match[2]))


def find_nvrtc(cuda: str | None, home: Path | None = None) -> Nvrtc | None:
    """The NVRTC to compile with, and headers that go with it.

    Args:
        cuda: the CUDA that torch was built for, such as "12.8"; None for a CPU build, which any NVRTC suits.
        home: the CUDA toolkit's folder, if there is one.

    Returns:
        One of the same CUDA, else of the same major version, else the newest; wheels come before conda's and the
        toolkit's. None where none is installed.
    """
    best = _closest(_libraries(home), parsed(cuda))
    if best is None:
        return None
    version, (library, builtins) = best
    headers = _closest(_headers(home), version)
    fits = headers is not None and headers[0][0] == version[0]
    return Nvrtc(library, builtins, version, headers[1] if fits else None, cuda)


def install_line(cuda: str | None) -> str:
    """The line that gets NVRTC and the headers of torch's CUDA, such as "12.8"; the newest for a CPU build, None."""
    version = parsed(cuda)
    # In quotes: to a shell [ and * are patterns.
    return f'pip install "cuda-toolkit[cudart,nvrtc]{f"=={named(version)}.*" if version else ""}"'


def _closest(found: Iterable[tuple[tuple[int, int], object]], wanted: tuple[int, int] | None):
    """Of (version, thing) the one nearest to the wanted version, else the newest; of equals the first."""

    def nearness(one: tuple) -> tuple:
        version = one[0]
        return wanted is not None and version[0] == wanted[0], version == wanted, version

    return max(found, key=nearness, default=None)


def _folders(wheels: tuple[str, ...], below: tuple[str, ...], home: Path | None) -> Iterator[Path]:
    for entry in dict.fromkeys(sys.path):
        for pattern in wheels:
            yield from sorted(Path(entry or ".").glob(pattern))
    for root in filter(None, (Path(sys.prefix), home)):
        for pattern in below:
            yield from sorted(root.glob(pattern))


def _libraries(home: Path | None) -> Iterator[tuple[tuple[int, int], tuple[Path, Path]]]:
    """(version, (NVRTC, its builtins)) of each that is installed."""
    named_by_user = [Path(f) for f in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if f]
    for folder in (*_folders(_WHEEL_LIBRARIES, _HOME_LIBRARIES, home), *named_by_user):
        # Only the builtins' name has the whole version: the library is libnvrtc.so.12 in every CUDA 12.
        for builtins in folder.glob("libnvrtc-builtins.so.*"):
            match = re.fullmatch(r"libnvrtc-builtins\.so\.(\d+)\.(\d+)", builtins.name)
            if match and (library := folder / f"libnvrtc.so.{match[1]}").is_file():
                yield (int(match[1]), int(match[2])), (library, builtins)


def _headers(home: Path | None) -> Iterator[tuple[tuple[int, int], Path]]:
    """(version, folder) of each set of CUDA's headers."""
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
