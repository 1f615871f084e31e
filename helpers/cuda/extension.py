"""Compile C++ and CUDA sources: fast the second time, with errors that can be read.

`load_cpp` and `load_cuda` go through torch's own `load_inline`, or, without PyTorch's headers, straight to the
compilers (`light`). Both have a build folder named by the hash of everything that goes into the build; a lock
that a killed build cannot leave behind; and compiler errors cut to the lines that matter.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import io
import json
import os
import platform
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from helpers import device
from helpers.cuda import light
from helpers.cuda.errors import BuildError, readable_errors
from helpers.cuda.host import checked, translate

LOCK_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class BuildInfo:
    """How a module came to be.

    Attributes:
        seconds: what the build took, also when `cached` says it was not repeated.
        host: whether its kernels run on the host instead of a GPU.
    """

    name: str
    directory: Path
    seconds: float
    cached: bool
    host: bool = False

    def __repr__(self) -> str:
        how = "loaded from the cache; it took" if self.cached else "built in"
        where = ", for the host: it computes and checks, and says nothing about speed" if self.host else ""
        return f"{self.name}: {how} {self.seconds:.1f} s{where}"


_loaded: dict[str, ModuleType] = {}


def build_folder() -> Path:
    """Where builds are kept, a folder each."""
    return device.cache_folder() / "build"


def info(module: ModuleType) -> BuildInfo:
    """How a module of `load_cpp` or `load_cuda` was built.

    Raises:
        ValueError: a module that was not built here.
    """
    found = getattr(module, "__workbook_build__", None)
    if found is None:
        raise ValueError(
            f"{module!r} was not built by helpers.cuda: info() takes what load_cpp or load_cuda returned."
        )
    return found


def load_cpp(
    name: str,
    source: str,
    functions: Sequence[str],
    *,
    torch_headers: bool = True,
    flags: Sequence[str] = ("-O2",),
) -> ModuleType:
    """Build a C++ extension and import it; live on every machine with a C++ compiler.

    Args:
        name: the module's name, a Python identifier.
        source: C++ text. With `torch_headers` it may use `torch::Tensor` without an include.
        functions: the functions to bind to Python.
        torch_headers: False leaves `torch/extension.h` and torch's `load_inline` out (a second or two instead of half a
            minute). Arguments and results are numbers, bool and text then: pass addresses (`tensor.data_ptr()`) as
            `int64_t`. A text that includes pybind11 itself is bound by pybind11, as `load_inline` does it.
        flags: for the C++ compiler.

    Returns:
        The imported module; `info(module)` tells seconds and folder.

    Raises:
        BuildError: the compiler's complaint, cut to what matters.
        helpers.device.Missing: no C++ compiler or no ninja.
        ValueError: a name that is not an identifier, or no function.
    """
    _require(torch_headers, source)
    return _load(
        name, functions, cpp=source, torch_headers=torch_headers, flags={"extra_cflags": list(flags)}
    )


def load_cuda(
    name: str,
    cuda_source: str,
    functions: Sequence[str],
    *,
    cpp_source: str = "",
    torch_headers: bool = True,
    flags: Sequence[str] = ("-O2",),
    device: str = "auto",
) -> ModuleType:
    """Build a CUDA extension and import it: for this machine's GPU, or, where there is none, for the host.

    On the host the same text is built by the C++ compiler and runs thread by thread on CPU tensors, for correctness
    and understanding, never for timing; what a kernel must not do raises `helpers.cuda.host.checked.HostCudaError`.

    Args:
        name: the module's name, a Python identifier.
        cuda_source: kernels and the functions that launch them.
        functions: the functions to bind to Python. For a GPU they need a declaration in `cpp_source`.
        cpp_source: C++ text beside the CUDA source, at least the declarations of `functions`.
        torch_headers: False leaves torch's headers out, in both texts: see `load_cpp`. On an H100's machine a cold build
            then takes a tenth of the time.
        flags: for nvcc, to which the architecture of this GPU is added; the host's compiler takes of them
            -O, -D, -I and -std.
        device: "cuda", "host", or "auto": "cuda" where torch can use a GPU, else "host".

    Returns:
        The imported module.

    Raises:
        BuildError: the compiler's complaint, or the name of a construct that the host does not run.
        ValueError: as in `load_cpp`, or another device.
        helpers.device.Missing: no GPU, nvcc, C++ compiler or ninja.
    """
    load = _load_for_gpu if resolve_device(device) == "cuda" else _load_for_host
    return load(name, cuda_source, functions, cpp_source=cpp_source, torch_headers=torch_headers, flags=flags)


def resolve_device(choice: str) -> str:
    """Where a kernel is to run, "cuda" or "host", by the argument `device` of `load_cuda` and `load_kernel`.

    Raises:
        ValueError: neither "auto" nor one of the two.
    """
    if choice not in ("auto", "cuda", "host"):
        raise ValueError(f'`device` is "auto", "cuda" or "host"; it was given {choice!r}.')
    if choice == "auto":
        return "cuda" if device.has_gpu() else "host"
    return choice


def _load_for_gpu(
    name: str,
    cuda_source: str,
    functions: Sequence[str],
    *,
    cpp_source: str,
    torch_headers: bool,
    flags: Sequence[str],
) -> ModuleType:
    """`load_cuda` for this machine's GPU."""
    device.require("gpu", "nvcc")
    _require(torch_headers, cpp_source)
    return _load(
        name,
        functions,
        cpp=cpp_source,
        cuda=cuda_source,
        torch_headers=torch_headers,
        flags={"extra_cuda_cflags": list(flags)},
    )


def _load_for_host(
    name: str,
    cuda_source: str,
    functions: Sequence[str],
    *,
    cpp_source: str,
    torch_headers: bool,
    flags: Sequence[str],
) -> ModuleType:
    """`load_cuda` for the host: the text translated to C++, and its functions checked whenever they are called."""
    _require(torch_headers, cpp_source)
    try:
        text = translate.cpp_file(cuda_source, f"{name}.cu")
    except translate.Unsupported as error:
        code = cuda_source.splitlines()[error.line - 1].strip()
        raise BuildError(f"{name}.cu, line {error.line}: {error}.\n    {code}") from None
    kept = [flag for flag in flags if re.match(r"-(O[0-3s]?$|D|I|std=)", flag)]
    if platform.machine() == "x86_64" and "g++" in device.find_tool("c++").resolve().name:
        # threadIdx and its like are thread-local; this makes them cheap to reach.
        kept.append("-mtls-dialect=gnu2")
    module = _load(
        name,
        functions,
        cpp=cpp_source,
        torch_headers=torch_headers,
        flags={"extra_cflags": kept},
        host=(cuda_source, text),
    )
    if not hasattr(module, "__host_cuda__"):
        checked.attach(module, functions, cuda_source, torch_headers=torch_headers)
        module.__host_cuda__ = True
    return module


def _require(torch_headers: bool, cpp: str) -> None:
    """Raise `Missing` without the tools of a build."""
    without_ninja = not torch_headers and light.suits(cpp)
    device.require("c++", *([] if without_ninja else ["ninja"]))


def _load(
    name: str,
    functions: Sequence[str],
    *,
    cpp: str,
    cuda: str | None = None,
    torch_headers: bool,
    flags: dict[str, list[str]],
    host: tuple[str, str] | None = None,
) -> ModuleType:
    """Build a module, or take the finished build; `host` is a CUDA text and the C++ that it became."""
    import torch

    if not name.isidentifier():
        raise ValueError(f"A module's name must be a Python identifier; {name!r} is not.")
    if isinstance(functions, str) or not functions:
        raise ValueError(
            f"`functions` is a list with at least one function's name; it was given {functions!r}."
        )
    arch = device.gpu_spec().target if cuda else ""
    what = {
        "name": name,
        "cpp": cpp,
        "cuda": cuda,
        "functions": list(functions),
        "torch_headers": torch_headers,
        "flags": flags,
        "torch": torch.__version__,
        "python": sys.version,
        "arch": arch,
        "compilers": [_compiler_identity("c++"), _compiler_identity("nvcc") if cuda else None],
    }
    if not torch_headers and light.suits(cpp):
        what["bind"] = light.BIND.read_text()
    if host:
        what["host"], what["host_text"], what["host_headers"] = *host, _host_headers()
    key = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
    if key in _loaded:
        return _loaded[key]
    home = build_folder() / f"{name}-{key}"
    module, cached = None, _ready(home)
    if not cached:
        with build_lock(home):
            # Another process may have built it while this one waited.
            cached = _ready(home)
            if not cached:
                module = _build(what, home, arch)
    built = json.loads((home / "built.json").read_text())
    module = module or _import(home, built["module"])
    module.__workbook_build__ = BuildInfo(name, home, built["seconds"], cached, host is not None)
    _loaded[key] = module
    return module


@functools.cache
def _host_headers() -> str:
    """A hash of the headers that translated text includes."""
    texts = b"".join(path.read_bytes() for path in sorted(translate.HEADERS.glob("*.h")))
    return hashlib.sha256(texts).hexdigest()


def _compiler_identity(tool: str) -> str | None:
    """A compiler's path, size and time: another when the compiler is another, and no process is needed to ask."""
    path = device.find_tool(tool)
    if path is None:
        return None
    stat = path.resolve().stat()
    return f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}"


def _ready(home: Path) -> bool:
    return (home / "built.json").is_file()


def _import(home: Path, module_name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(module_name, home / f"{module_name}.so")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def build_lock(home: Path, timeout_s: float | None = None) -> Iterator[None]:
    """Hold a build's lock. The operating system drops it when its holder ends, however it ends."""
    home.parent.mkdir(parents=True, exist_ok=True)
    path = home.with_name(home.name + ".lock")
    deadline = time.monotonic() + (LOCK_TIMEOUT_S if timeout_s is None else timeout_s)
    with path.open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    file.seek(0)
                    holder = file.read().strip() or "an unknown process"
                    raise BuildError(
                        f"Another build of {home.name} is still running: {holder}. End it, or wait and run this again."
                    ) from None
                time.sleep(0.1)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%H:%M:%S')}")
        file.flush()
        yield


def _build(what: dict, home: Path, arch: str) -> ModuleType:
    """Build in a folder of this process's own, then put the whole in place: nobody ever sees half a build."""
    # What killed builds left: nobody works on it, since this process holds the lock.
    for leftover in home.parent.glob(f"{home.name}.[0-9]*"):
        shutil.rmtree(leftover, ignore_errors=True)
    partial = home.with_name(f"{home.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    # With #line the compiler's line numbers are those of the learner's text, not of the generated file.
    texts = {f"{what['name']}.cpp": what["cpp"], f"{what['name']}.cu": what["cuda"]}
    cpp, cuda = (f'#line 1 "{file}"\n{text}\n' if text else "" for file, text in texts.items())
    if "host" in what:
        texts[f"{what['name']}.cu"] = what["host"]
        cpp += what["host_text"]
    output = io.StringIO()
    start = time.perf_counter()
    built = {"what": what}
    try:
        if "bind" in what:
            flags = next(iter(what["flags"].values()))
            built["commands"] = light.build(
                partial,
                what["name"],
                cpp=cpp,
                cuda=cuda,
                functions=what["functions"],
                flags=flags,
                arch=arch,
                toolkit=device.cuda_toolkit(),
            )
            module = _import(partial, what["name"])
        else:
            module = _build_with_torch(what, partial, arch, cpp, cuda, output)
        built |= {"seconds": time.perf_counter() - start, "module": Path(module.__file__).stem}
        (partial / "built.json").write_text(json.dumps(built))
        shutil.rmtree(home, ignore_errors=True)
        os.replace(partial, home)
    except Exception as error:
        said = f"{output.getvalue()}\n{error}"
        if "host" in what:
            # Without the columns: they are those of the translated text.
            said = re.sub(rf"(\b{what['name']}\.cu:\d+):\d+:", r"\1:", said)
        raise BuildError(readable_errors(said, texts)) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    module.__file__ = str(home / Path(module.__file__).name)
    return module


def _build_with_torch(
    what: dict, folder: Path, arch: str, cpp: str, cuda: str, output: io.StringIO
) -> ModuleType:
    """torch's `load_inline`; what it and the compilers print goes to `output`."""
    from torch.utils import cpp_extension

    if not what["torch_headers"]:
        cpp = f"#include <cstdint>\n#include <pybind11/pybind11.h>\n{cpp}"
        cuda = f"#include <cstdint>\n{cuda}" if cuda else ""
    ninja = device.find_tool("ninja")
    environment = {"LC_ALL": "C", "PATH": f"{ninja.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    if arch:
        number = arch.removeprefix("sm_")
        environment["TORCH_CUDA_ARCH_LIST"] = f"{number[:-1]}.{number[-1]}"
        # torch looks once, at its import; nvcc may be where only we look.
        if cpp_extension.CUDA_HOME is None:
            cpp_extension.CUDA_HOME = str(device.cuda_toolkit())
    with _environment(environment), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        return cpp_extension.load_inline(
            what["name"],
            cpp_sources=[cpp],
            cuda_sources=[cuda] if cuda else [],
            functions=what["functions"],
            build_directory=str(folder),
            no_implicit_headers=not what["torch_headers"],
            with_pytorch_error_handling=what["torch_headers"],
            **what["flags"],
        )


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
