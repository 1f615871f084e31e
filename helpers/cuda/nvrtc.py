"""Compiles CUDA C++ to PTX or machine code with NVRTC, in a fraction of a second and without nvcc.

NVRTC is called through ctypes because it must be the version that matches torch: cuda.bindings loads CUDA
13's if both are installed, or whichever version another package has loaded first. Function names and types
are those of nvrtc.h.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from helpers import device, toolkit
from helpers.cuda.errors import BuildError, readable_errors

_TARGET = re.compile(r"sm_(\d+[a-z]?)")


@dataclass(frozen=True)
class Compiled:
    """The result of a compilation by NVRTC.

    Attributes:
        code: PTX or a cubin.
        lowered: the mangled name of the kernel; "" if no kernel was named.
        log: the output of the compiler and its assembler.
        nvrtc: the NVRTC that compiled it.
    """

    code: bytes
    lowered: str
    log: str
    nvrtc: toolkit.Nvrtc


class _Library:
    """The functions of one libnvrtc."""

    def __init__(self, found: toolkit.Nvrtc):
        try:
            # Loaded first, since CUDA 13.0's wheel does not find it by itself.
            self._builtins = ctypes.CDLL(str(found.builtins))
            self._functions = ctypes.CDLL(str(found.library))
        except OSError as error:
            raise BuildError(f"{found} cannot be loaded: {error}") from None
        self._functions.nvrtcGetErrorString.restype = ctypes.c_char_p

    def status(self, name: str, *arguments) -> int:
        """Calls nvrtc`name` and returns its status; 0 means success."""
        return getattr(self._functions, f"nvrtc{name}")(*arguments)

    def must(self, name: str, *arguments) -> None:
        """Calls nvrtc`name` and raises if it fails."""
        if status := self.status(name, *arguments):
            raise BuildError(f"nvrtc{name}: {self._functions.nvrtcGetErrorString(status).decode()}")

    def bytes_of(self, name: str, program: ctypes.c_void_p) -> bytes:
        """Returns the result of nvrtcGet`name` ("PTX", "CUBIN" or "ProgramLog")."""
        size = ctypes.c_size_t()
        self.must(f"Get{name}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.must(f"Get{name}", program, buffer)
        return buffer.raw

    def targets(self) -> list[int]:
        """Returns the architectures that it supports, such as 90 for sm_90."""
        count = ctypes.c_int()
        self.must("GetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self.must("GetSupportedArchs", numbers)
        return list(numbers)


_load = functools.cache(_Library)


def _compile(source: str, options: list[str], what: str, name: str | None = None) -> Compiled:
    """Compiles CUDA C++ to `what` ("PTX" or "CUBIN") and looks up the mangled name of the kernel `name`."""
    device.require("nvrtc")
    found = device.nvrtc()
    library = _load(found)
    given = [*([f"--include-path={found.include}"] if found.include else []), *options]
    program = ctypes.c_void_p()
    library.must("CreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    try:
        if name:
            library.must("AddNameExpression", program, name.encode())
        encoded = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
        failed = library.status("CompileProgram", program, len(given), encoded)
        log = library.bytes_of("ProgramLog", program).decode().rstrip("\0")
        if failed:
            raise BuildError(_refusal(log, given, library, found) or _errors(log, source, found))
        code = library.bytes_of(what, program)
        lowered = ctypes.c_char_p()
        if name:
            library.must("GetLoweredName", program, name.encode(), ctypes.byref(lowered))
        return Compiled(code, (lowered.value or b"").decode(), log, found)
    finally:
        library.status("DestroyProgram", ctypes.byref(program))


def _errors(log: str, source: str, found: toolkit.Nvrtc) -> str:
    """Returns the errors of a compilation, with a note if CUDA's headers are included but missing."""
    errors = readable_errors(log, {"kernel.cu": source})
    if found.include is None and re.search(r'open source file "(cuda_|cooperative_groups|mma)', errors):
        errors += f"\n{found.problem}"
    return errors


def _refusal(log: str, options: list[str], library: _Library, found: toolkit.Nvrtc) -> str:
    """Returns a sentence if this NVRTC doesn't know the architecture, else ""."""
    if "invalid value for --gpu-architecture" not in log:
        return ""
    target = next(o for o in options if "-arch" in o).partition("=")[2].replace("compute_", "sm_")
    known = library.targets()
    problem = f"{found} does not compile for {target}; it knows {', '.join(f'sm_{n}' for n in known)}."
    if found.problem:
        return f"{problem} {found.problem}"
    if int(re.sub(r"\D", "", target)) > known[-1]:
        problem += " A newer CUDA may: a torch that is built for one brings its NVRTC."
    return problem


def _number(target: str) -> str:
    match = _TARGET.fullmatch(target)
    if match is None:
        raise ValueError(f'A target is named like "sm_90"; this one is {target!r}.')
    return match.group(1)


def compile_ptx(source: str, *, target: str = "sm_90", flags: Sequence[str] = ()) -> str:
    """Compiles CUDA C++ to PTX with NVRTC: no nvcc, no GPU, a fraction of a second.

    Args:
        source: device code only (no host functions, no torch headers). `extern "C"` keeps a kernel's name
            unmangled.
        target: the architecture, such as "sm_75" or "sm_90".
        flags: options for NVRTC, such as "--use_fast_math" or "-lineinfo".

    Raises:
        BuildError: the compilation failed (the message has the source line), or NVRTC doesn't know the
            target.
        ValueError: the target doesn't have the form "sm_90".
        helpers.device.Missing: NVRTC isn't installed. The message has the command that installs it.

    Example:
        >>> from helpers import cuda
        >>> text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
        >>> ptx = cuda.compile_ptx(text, target="sm_90")
        >>> [line for line in ptx.splitlines() if line.startswith(".target")]
        ['.target sm_90']
    """
    options = [f"--gpu-architecture=compute_{_number(target)}", *flags]
    return _compile(source, options, "PTX").code.decode().rstrip("\0")


def compile_cubin(source: str, *, target: str = "sm_90", flags: Sequence[str] = ()) -> bytes:
    """Compiles CUDA C++ to machine code with NVRTC, for a disassembler. Arguments and errors as in
    `compile_ptx`.

    Example:
        >>> from helpers import cuda
        >>> text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
        >>> cuda.compile_cubin(text, target="sm_90")[1:4]
        b'ELF'
    """
    return _compile(source, _machine_code_options(target, flags), "CUBIN").code


def compile_kernel(source: str, name: str, *, target: str, flags: Sequence[str] = ()) -> Compiled:
    """Compiles CUDA C++ to loadable machine code, with the mangled name of the kernel `name`.

    Arguments and errors as in `compile_ptx`.
    """
    return _compile(source, _machine_code_options(target, flags), "CUBIN", name)


def assembler_report(source: str, *, target: str = "sm_90", flags: Sequence[str] = ()) -> str:
    """Returns the report of NVRTC's assembler on each kernel (registers, stack, spills), as `ptxas -v` prints
    it.

    Arguments and errors as in `compile_ptx`.
    """
    return _compile(source, _machine_code_options(target, [*flags, "--ptxas-options=-v"]), "CUBIN").log


def _machine_code_options(target: str, flags: Sequence[str]) -> list[str]:
    return [f"--gpu-architecture=sm_{_number(target)}", *flags]
