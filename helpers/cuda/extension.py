"""Compile C++ and CUDA sources to a module: `load_cpp` and `load_cuda`, and what `inline` shares with them.

They go through torch's own `load_inline`, or, without PyTorch's headers, straight to the compilers (`light`).
`cache` keeps what is built.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import platform
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from helpers import device
from helpers.cuda import light
from helpers.cuda.cache import compiler_identity, import_built, load_cached
from helpers.cuda.errors import BuildError
from helpers.cuda.host import checked, translate


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
    headers = "torch" if torch_headers else "none"
    return _load(name, functions, cpp=source, headers=headers, flags={"extra_cflags": list(flags)})


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
        headers="torch" if torch_headers else "none",
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
    headers = "torch" if torch_headers else "none"
    return load_on_host(name, cuda_source, functions, cpp_source=cpp_source, headers=headers, flags=flags)


def load_on_host(
    name: str,
    cuda_source: str,
    functions: Sequence[str],
    *,
    cpp_source: str,
    headers: str,
    flags: Sequence[str],
) -> ModuleType:
    """Build a CUDA text for the host, with its functions checked whenever they are called.

    Args:
        name: the module's name.
        cuda_source: kernels and the functions that launch them.
        functions: the functions to bind.
        cpp_source: C++ text before it.
        headers: "torch" for PyTorch's own, "stand-in" for those of `light.TENSORS`, "none".
        flags: nvcc's; the host's compiler takes of them what it knows.

    Raises:
        BuildError, ValueError, helpers.device.Missing: as in `load_cuda`.
    """
    _require(headers == "torch", cpp_source)
    text = translated(cuda_source, f"{name}.cu")
    module = _load(
        name,
        functions,
        cpp=cpp_source,
        headers=headers,
        flags={"extra_cflags": host_flags(flags)},
        host=(cuda_source, text),
    )
    return checked_once(module, functions, cuda_source, takes_tensors=headers != "none")


def translated(cuda_source: str, file: str) -> str:
    """The C++ file for the host that a CUDA text becomes.

    Raises:
        BuildError: the name and the line of a construct that the host does not run.
    """
    try:
        return translate.cpp_file(cuda_source, file)
    except translate.Unsupported as error:
        code = cuda_source.splitlines()[error.line - 1].strip()
        raise BuildError(f"{file}, line {error.line}: {error}.\n    {code}") from None


def host_flags(flags: Sequence[str]) -> list[str]:
    """What the host's compiler is given of nvcc's flags, and its own."""
    kept = [flag for flag in flags if re.match(r"-(O[0-3s]?$|D|I|std=)", flag)]
    if platform.machine() == "x86_64" and "g++" in device.find_tool("c++").resolve().name:
        # threadIdx and its like are thread-local; this makes them cheap to reach.
        kept.append("-mtls-dialect=gnu2")
    return kept


def checked_once(
    module: ModuleType, functions: Sequence[str], cuda_source: str, *, takes_tensors: bool
) -> ModuleType:
    """Put the host's checks around a module's functions, unless an earlier load of it has done so."""
    if not hasattr(module, "__host_cuda__"):
        checked.attach(module, functions, cuda_source, torch_headers=takes_tensors)
        module.__host_cuda__ = True
    return module


def load_with_torch(
    name: str, functions: Sequence[str], cpp: str, cuda: str, flags: dict[str, list[str]], *, headers: str
) -> ModuleType:
    """torch's own `load_inline`, given these texts and nothing else.

    Args:
        name: the module's name.
        functions: the functions to bind.
        cpp: C++ text.
        cuda: CUDA text, or "".
        flags: extra_cflags and extra_cuda_cflags.
        headers: "torch", or "none" for `no_implicit_headers`.

    Raises:
        BuildError, ValueError, helpers.device.Missing: as in `load_cuda`.
    """
    device.require("c++", "ninja", *(["gpu", "nvcc"] if cuda else []))
    return _load(name, functions, cpp=cpp, cuda=cuda or None, headers=headers, flags=flags, as_given=True)


def load_plain(
    name: str, cpp: str, functions: Sequence[str], *, headers: str, flags: Sequence[str]
) -> ModuleType:
    """C++ without a kernel, built for the host; `headers` as in `load_on_host`.

    Raises:
        BuildError, ValueError, helpers.device.Missing: as in `load_cpp`.
    """
    _require(headers == "torch", cpp)
    return _load(name, functions, cpp=cpp, headers=headers, flags={"extra_cflags": list(flags)})


def gpu_identity() -> dict[str, str | None]:
    """What a build for this machine's GPU depends on: the architecture and nvcc."""
    return {"arch": device.gpu_spec().target, "nvcc": compiler_identity("nvcc")}


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
    headers: str,
    flags: dict[str, list[str]],
    host: tuple[str, str] | None = None,
    as_given: bool = False,
) -> ModuleType:
    """Build a module, or take the finished build.

    Args:
        name: the module's name.
        functions: the functions to bind.
        cpp: C++ text.
        cuda: CUDA text for nvcc.
        headers: as in `load_on_host`.
        flags: by the name of torch's argument.
        host: a CUDA text and the C++ that it became.
        as_given: torch's `load_inline` gets the texts without an include that its caller did not write.
    """
    if isinstance(functions, str) or not functions:
        raise ValueError(
            f"`functions` is a list with at least one function's name; it was given {functions!r}."
        )
    built_for = gpu_identity() if cuda else {"arch": "", "nvcc": None}
    what = {
        **built_for,
        "cpp": cpp,
        "cuda": cuda,
        "functions": list(functions),
        "headers": headers,
        "as_given": as_given,
        "flags": flags,
    }
    quick = headers != "torch" and not as_given and light.suits(cpp)
    if quick:
        what["bind"] = light.BIND.read_text()
    if headers == "stand-in":
        what["tensors"] = light.TENSORS.read_text()
    if host:
        what["host"], what["host_text"], what["host_headers"] = *host, host_headers()
    # With #line the compiler's line numbers are those of the learner's text, not of the generated file.
    texts = {f"{name}.cpp": cpp, f"{name}.cu": cuda}
    cpp, cuda = (f'#line 1 "{file}"\n{text}\n' if text else "" for file, text in texts.items())
    if host:
        texts[f"{name}.cu"] = host[0]
        cpp += host[1]
    if headers == "stand-in":
        cpp = f'#include "{light.TENSORS}"\n{cpp}'

    def make(folder: Path, output: io.StringIO) -> tuple[ModuleType, dict]:
        if not quick:
            return _build_with_torch(name, what, folder, cpp, cuda, output), {}
        commands = light.build(
            folder,
            name,
            cpp=cpp,
            cuda=cuda,
            functions=functions,
            flags=next(iter(flags.values())),
            arch=built_for["arch"],
            toolkit=device.cuda_toolkit(),
        )
        return import_built(folder, name), {"commands": commands}

    return load_cached(name, what, make, texts, host=host is not None)


@functools.cache
def host_headers() -> str:
    """A hash of the headers that translated text includes."""
    texts = b"".join(path.read_bytes() for path in sorted(translate.HEADERS.glob("*.h")))
    return hashlib.sha256(texts).hexdigest()


def _build_with_torch(
    name: str, what: dict, folder: Path, cpp: str, cuda: str, output: io.StringIO
) -> ModuleType:
    """torch's `load_inline`; what it and the compilers print goes to `output`."""
    from torch.utils import cpp_extension

    with_torch = what["headers"] == "torch"
    if not with_torch and not what["as_given"]:
        cpp = f"#include <cstdint>\n#include <pybind11/pybind11.h>\n{cpp}"
        cuda = f"#include <cstdint>\n{cuda}" if cuda else ""
    with building_with_torch(what["arch"], output):
        module = cpp_extension.load_inline(
            name,
            cpp_sources=[cpp],
            cuda_sources=[cuda] if cuda else [],
            functions=what["functions"],
            build_directory=str(folder),
            no_implicit_headers=not with_torch,
            with_pytorch_error_handling=with_torch,
            **what["flags"],
        )
    # torch 2.15 leaves its lock's file, 2.13 takes it away; this folder has been guarded by ours (`cache.build_lock`).
    (folder / "lock").unlink(missing_ok=True)
    return module


@contextlib.contextmanager
def building_with_torch(arch: str, output: io.StringIO) -> Iterator[None]:
    """While it is entered, torch finds the tools, builds for the GPU `arch` ("" for none), and prints to `output`."""
    from torch.utils import cpp_extension

    ninja = device.find_tool("ninja")
    environment = {"LC_ALL": "C", "PATH": f"{ninja.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    if arch:
        number = arch.removeprefix("sm_")
        environment["TORCH_CUDA_ARCH_LIST"] = f"{number[:-1]}.{number[-1]}"
        # torch looks once, at its import; nvcc may be where only we look.
        if cpp_extension.CUDA_HOME is None:
            cpp_extension.CUDA_HOME = str(device.cuda_toolkit())
    with _environment(environment), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        yield


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
