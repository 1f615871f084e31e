"""CUDA C++ compiled by NVRTC, in a fraction of a second and without nvcc: to PTX or to machine code.

NVRTC is called through ctypes, since it must be the one that fits torch: cuda.bindings takes CUDA 13's wherever both
are installed, or whichever another package has loaded first. Its functions and their types are those of nvrtc.h.
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
    """What NVRTC made.

    Attributes:
        code: PTX or a cubin.
        lowered: the kernel's lowered (mangled) name; "" where none was asked for.
        log: what the compiler and its assembler said.
        nvrtc: which NVRTC made it.
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
        """Call nvrtc`name`: 0 where it succeeded."""
        return getattr(self._functions, f"nvrtc{name}")(*arguments)

    def must(self, name: str, *arguments) -> None:
        """Call nvrtc`name`, which must not fail."""
        if status := self.status(name, *arguments):
            raise BuildError(f"nvrtc{name}: {self._functions.nvrtcGetErrorString(status).decode()}")

    def bytes_of(self, name: str, program: ctypes.c_void_p) -> bytes:
        """What nvrtcGet`name` gives, "PTX", "CUBIN" or "ProgramLog"."""
        size = ctypes.c_size_t()
        self.must(f"Get{name}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.must(f"Get{name}", program, buffer)
        return buffer.raw

    def targets(self) -> list[int]:
        """The architectures that it compiles for, as 90 for sm_90."""
        count = ctypes.c_int()
        self.must("GetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self.must("GetSupportedArchs", numbers)
        return list(numbers)


_load = functools.cache(_Library)


def _compile(source: str, options: list[str], what: str, name: str | None = None) -> Compiled:
    """Compile CUDA C++ to `what`, "PTX" or "CUBIN", and find the lowered name of the kernel `name`."""
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
    """The errors of a text, and that CUDA's headers are missing where one of them was included."""
    said = readable_errors(log, {"kernel.cu": source})
    if found.include is None and re.search(r'open source file "(cuda_|cooperative_groups|mma)', said):
        said += f"\n{found.misfit}"
    return said


def _refusal(log: str, options: list[str], library: _Library, found: toolkit.Nvrtc) -> str:
    """A sentence on an architecture that this NVRTC does not know; "" where that is not what the log is about."""
    if "invalid value for --gpu-architecture" not in log:
        return ""
    target = next(o for o in options if "-arch" in o).partition("=")[2].replace("compute_", "sm_")
    known = library.targets()
    said = f"{found} does not compile for {target}; it knows {', '.join(f'sm_{n}' for n in known)}."
    if found.misfit:
        return f"{said} {found.misfit}"
    if int(re.sub(r"\D", "", target)) > known[-1]:
        said += " A newer CUDA may: a torch that is built for one brings its NVRTC."
    return said


def _number(target: str) -> str:
    match = _TARGET.fullmatch(target)
    if match is None:
        raise ValueError(f'A target is named like "sm_90"; this one is {target!r}.')
    return match.group(1)


def compile_ptx(source: str, *, target: str = "sm_90", flags: Sequence[str] = ()) -> str:
    """CUDA C++ to PTX by NVRTC: no nvcc, no GPU, a fraction of a second.

    Args:
        source: device code only (no host functions, no torch headers). `extern "C"` keeps a kernel's name plain.
        target: the architecture, such as "sm_75" or "sm_90".
        flags: NVRTC's options, such as "--use_fast_math" or "-lineinfo".

    Raises:
        BuildError: the compiler's complaint with the source line, or a target that this NVRTC does not know.
        ValueError: a target that is not named like "sm_90".
        helpers.device.Missing: NVRTC is not installed; the message has the line that gets it.

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
    """CUDA C++ to machine code by NVRTC, for a disassembler. Arguments and errors as in `compile_ptx`.

    Example:
        >>> from helpers import cuda
        >>> text = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'
        >>> cuda.compile_cubin(text, target="sm_90")[1:4]
        b'ELF'
    """
    return _compile(source, _machine_code_options(target, flags), "CUBIN").code


def compile_kernel(source: str, name: str, *, target: str, flags: Sequence[str] = ()) -> Compiled:
    """CUDA C++ to machine code that is to be loaded, with the lowered name by which the driver finds the kernel `name`.

    Arguments and errors as in `compile_ptx`.
    """
    return _compile(source, _machine_code_options(target, flags), "CUBIN", name)


def assembler_report(source: str, *, target: str = "sm_90", flags: Sequence[str] = ()) -> str:
    """What ptxas, which is part of NVRTC, says of each kernel: registers, stack, spills, as `ptxas -v` does.

    Arguments and errors as in `compile_ptx`.
    """
    return _compile(source, _machine_code_options(target, [*flags, "--ptxas-options=-v"]), "CUBIN").log


def _machine_code_options(target: str, flags: Sequence[str]) -> list[str]:
    return [f"--gpu-architecture=sm_{_number(target)}", *flags]
