"""Compiles C++ and CUDA sources to a Python module: `load_cpp` and `load_cuda`.

The build goes through torch's own `load_inline` or, without PyTorch's headers, straight to the compilers
(`fast_build`). `cache` stores finished builds. `inline` shares the lower half of this module.
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

from helpers import aliases, device
from helpers.cuda import fast_build
from helpers.cuda.cache import compiler_identity, import_built, load_cached
from helpers.cuda.emulator import checked, translate
from helpers.cuda.errors import BuildError


def load_cpp(
    name: str,
    source: str,
    functions: Sequence[str],
    *,
    torch_headers: bool = True,
    flags: Sequence[str] = ("-O2",),
) -> ModuleType:
    """Builds a C++ extension and imports it. This works on every machine with a C++ compiler.

    Args:
        name: the module's name, a Python identifier.
        source: C++ source. With `torch_headers` it may use `torch::Tensor` without an include.
        functions: the functions to bind to Python.
        torch_headers: False leaves out `torch/extension.h` and torch's `load_inline`, so that the build takes
            a second or two instead of half a minute. Arguments and results are then numbers, bools, strings,
            and vectors of these: pass addresses (`tensor.data_ptr()`) as `int64_t`. A source that includes
            pybind11 itself is bound by pybind11, as in `load_inline`.
        flags: options for the C++ compiler.

    Returns:
        The imported module. `info(module)` has its build time and folder.

    Raises:
        BuildError: the build failed. The message has the relevant lines of the compiler's output.
        helpers.device.Missing: there is no C++ compiler or no ninja.
        ValueError: the name isn't an identifier, or `functions` is empty.
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
    """Builds a CUDA extension and imports it: for this machine's GPU or, without one, for the emulator.

    In the emulator the same source is built by the C++ compiler and runs on CPU tensors, one thread after
    another. That is for correctness and understanding, never for timing. Illegal accesses, races and the like
    raise `helpers.cuda.emulator.checked.EmulatorError`.

    Args:
        name: the module's name, a Python identifier.
        cuda_source: the kernels and the functions that launch them.
        functions: the functions to bind to Python. For a GPU they need a declaration in `cpp_source`.
        cpp_source: C++ source in addition to the CUDA source, at least the declarations of `functions`.
        torch_headers: False leaves torch's headers out of both sources, as in `load_cpp`. A cold build on an
            H100 machine then takes a tenth of the time.
        flags: options for nvcc; this GPU's architecture is added. The emulator uses -D, -I and -std of them.
        device: "cuda", "emulator" or "auto" ("cuda" if torch can use a GPU, else "emulator").

    Returns:
        The imported module.

    Raises:
        BuildError: the build failed, or the source uses a construct that the emulator doesn't support.
        ValueError: as in `load_cpp`, or an unknown device.
        helpers.device.Missing: there is no GPU, nvcc, C++ compiler or ninja.
    """
    load = _load_for_gpu if resolve_device(device) == "cuda" else _load_for_emulator
    return load(name, cuda_source, functions, cpp_source=cpp_source, torch_headers=torch_headers, flags=flags)


def resolve_device(choice: str) -> str:
    """Returns where a kernel runs, "cuda" or "emulator", for the `device` of `load_cuda` and `load_kernel`.

    Raises:
        ValueError: `choice` is none of "auto", "cuda" and "emulator".
    """
    choice = aliases.DEVICES.get(choice, choice)
    if choice not in ("auto", "cuda", "emulator"):
        raise ValueError(f'`device` is "auto", "cuda" or "emulator"; it was given {choice!r}.')
    if choice == "auto":
        return "cuda" if device.has_gpu() else "emulator"
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


def _load_for_emulator(
    name: str,
    cuda_source: str,
    functions: Sequence[str],
    *,
    cpp_source: str,
    torch_headers: bool,
    flags: Sequence[str],
) -> ModuleType:
    headers = "torch" if torch_headers else "none"
    return load_in_emulator(name, cuda_source, functions, cpp_source=cpp_source, headers=headers, flags=flags)


def load_in_emulator(
    name: str,
    cuda_source: str,
    functions: Sequence[str],
    *,
    cpp_source: str,
    headers: str,
    flags: Sequence[str],
) -> ModuleType:
    """Builds a CUDA source for the emulator, which checks every call of its functions.

    Args:
        name: the module's name.
        cuda_source: the kernels and the functions that launch them.
        functions: the functions to bind.
        cpp_source: C++ source that precedes it.
        headers: "torch" for PyTorch's own, "stand-in" for those of `fast_build.TENSORS`, or "none".
        flags: options for nvcc; the C++ compiler gets those that it knows.

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
        flags={"extra_cflags": emulator_flags(flags)},
        emulated=(cuda_source, text),
    )
    return checked_once(module, functions, cuda_source, takes_tensors=headers != "none")


def translated(cuda_source: str, file: str) -> str:
    """Returns the C++ source into which the emulator translates a CUDA source.

    Raises:
        BuildError: the source uses a construct that the emulator doesn't support. The message has its line.
    """
    try:
        return translate.cpp_file(cuda_source, file)
    except translate.Unsupported as error:
        code = cuda_source.splitlines()[error.line - 1].strip()
        raise BuildError(f"{file}, line {error.line}: {error}.\n    {code}") from None


def emulator_flags(flags: Sequence[str]) -> list[str]:
    """Returns the C++ compiler's options: -D, -I and -std of nvcc's, and the emulator's own."""
    # -Og compiles in half the time of -O2, and a kernel then takes a third longer in the emulator. Most of it
    # is compilation: 0.5 s, against 0.04 s for a million elements (two slow cores, g++ 12).
    options = ["-Og", *(flag for flag in flags if re.match(r"-(D|I|std=)", flag))]
    if platform.machine() == "x86_64" and "g++" in device.find_tool("c++").resolve().name:
        # threadIdx and its like are thread-local; this makes them cheap to reach.
        options.append("-mtls-dialect=gnu2")
    return options


def checked_once(
    module: ModuleType, functions: Sequence[str], cuda_source: str, *, takes_tensors: bool
) -> ModuleType:
    """Adds the emulator's checks to a module's functions, unless an earlier import has done so."""
    if not hasattr(module, "__emulated__"):
        checked.attach(module, functions, cuda_source, torch_headers=takes_tensors)
        module.__emulated__ = True
    return module


def load_with_torch(
    name: str, functions: Sequence[str], cpp: str, cuda: str, flags: dict[str, list[str]], *, headers: str
) -> ModuleType:
    """Calls torch's own `load_inline` with exactly these sources.

    Args:
        name: the module's name.
        functions: the functions to bind.
        cpp: C++ source.
        cuda: CUDA source, or "".
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
    """Builds C++ without a kernel. `headers` are those of `load_in_emulator`.

    Raises:
        BuildError, ValueError, helpers.device.Missing: as in `load_cpp`.
    """
    _require(headers == "torch", cpp)
    return _load(name, functions, cpp=cpp, headers=headers, flags={"extra_cflags": list(flags)})


def gpu_identity() -> dict[str, str | None]:
    """Returns what a build for this machine's GPU depends on: the architecture and nvcc."""
    return {"arch": device.gpu_spec().target, "nvcc": compiler_identity("nvcc")}


def _require(torch_headers: bool, cpp: str) -> None:
    without_ninja = not torch_headers and fast_build.supports(cpp)
    device.require("c++", *([] if without_ninja else ["ninja"]))


def _load(
    name: str,
    functions: Sequence[str],
    *,
    cpp: str,
    cuda: str | None = None,
    headers: str,
    flags: dict[str, list[str]],
    emulated: tuple[str, str] | None = None,
    as_given: bool = False,
) -> ModuleType:
    """Builds a module, or imports the cached build.

    Args:
        name: the module's name.
        functions: the functions to bind.
        cpp: C++ source.
        cuda: CUDA source for nvcc.
        headers: as in `load_in_emulator`.
        flags: options by the name of torch's argument.
        emulated: a CUDA source and its translation to C++.
        as_given: torch's `load_inline` gets the sources without an include that the caller didn't write.
    """
    if isinstance(functions, str) or not functions:
        raise ValueError(
            f"`functions` is a list with at least one function's name; it was given {functions!r}."
        )
    built_for = gpu_identity() if cuda else {"arch": "", "nvcc": None}
    build_inputs = {
        **built_for,
        "cpp": cpp,
        "cuda": cuda,
        "functions": list(functions),
        "headers": headers,
        "as_given": as_given,
        "flags": flags,
    }
    use_fast_build = headers != "torch" and not as_given and fast_build.supports(cpp)
    if use_fast_build:
        build_inputs["bind"] = fast_build.BIND.read_text()
    if headers == "stand-in":
        build_inputs["tensors"] = fast_build.TENSORS.read_text()
    if emulated:
        build_inputs["emulated"], build_inputs["emulator_text"], build_inputs["emulator_headers"] = (
            *emulated,
            emulator_headers(),
        )
    # With #line the compiler's line numbers are those of the learner's text, not of the generated file.
    texts = {f"{name}.cpp": cpp, f"{name}.cu": cuda}
    cpp, cuda = (f'#line 1 "{file}"\n{text}\n' if text else "" for file, text in texts.items())
    if emulated:
        texts[f"{name}.cu"] = emulated[0]
        cpp += emulated[1]
    if headers == "stand-in":
        cpp = f'#include "{fast_build.TENSORS}"\n{cpp}'

    def make(folder: Path, output: io.StringIO) -> tuple[ModuleType, dict]:
        if not use_fast_build:
            return _build_with_torch(name, build_inputs, folder, cpp, cuda, output), {}
        commands = fast_build.build(
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

    return load_cached(name, build_inputs, make, texts, emulated=emulated is not None)


@functools.cache
def emulator_headers() -> str:
    """Returns a hash of the headers that translated sources include."""
    texts = b"".join(path.read_bytes() for path in sorted(translate.HEADERS.glob("*.h")))
    return hashlib.sha256(texts).hexdigest()


def _build_with_torch(
    name: str, build_inputs: dict, folder: Path, cpp: str, cuda: str, output: io.StringIO
) -> ModuleType:
    """Calls torch's `load_inline`; its output and that of the compilers goes to `output`."""
    from torch.utils import cpp_extension

    with_torch = build_inputs["headers"] == "torch"
    if not with_torch and not build_inputs["as_given"]:
        cpp = f"#include <cstdint>\n#include <pybind11/pybind11.h>\n{cpp}"
        cuda = f"#include <cstdint>\n{cuda}" if cuda else ""
    with building_with_torch(build_inputs["arch"], output):
        module = cpp_extension.load_inline(
            name,
            cpp_sources=[cpp],
            cuda_sources=[cuda] if cuda else [],
            functions=build_inputs["functions"],
            build_directory=str(folder),
            no_implicit_headers=not with_torch,
            with_pytorch_error_handling=with_torch,
            **build_inputs["flags"],
        )
    # torch 2.15 leaves its lock file behind, and 2.13 removes it. `cache.build_lock` protects this folder.
    (folder / "lock").unlink(missing_ok=True)
    return module


@contextlib.contextmanager
def building_with_torch(arch: str, output: io.StringIO) -> Iterator[None]:
    """Lets torch find the tools, build for the GPU `arch` ("" for none) and print to `output`."""
    from torch.utils import cpp_extension

    ninja = device.find_tool("ninja")
    environment = {"LC_ALL": "C", "PATH": f"{ninja.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    if arch:
        number = arch.removeprefix("sm_")
        environment["TORCH_CUDA_ARCH_LIST"] = f"{number[:-1]}.{number[-1]}"
        # torch searches only when it is imported, and not in all the folders that we search.
        if cpp_extension.CUDA_HOME is None:
            cpp_extension.CUDA_HOME = str(device.cuda_toolkit())
    with _environment(environment), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        yield


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    previous = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
