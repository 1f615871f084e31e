"""CUDA C++ compiled by NVRTC, in a fraction of a second and without nvcc: to PTX or to machine code."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers import device
from helpers.cuda.errors import BuildError, readable_errors

_TARGET = re.compile(r"sm_(\d+[a-z]?)")


def _must(result: tuple) -> Any:
    """The value of an NVRTC call that must not fail."""
    from cuda.bindings import nvrtc

    status, *values = result
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BuildError(f"NVRTC: {status.name}")
    return values[0] if values else None


def _compile(source: str, options: list[str], what: str, name: str | None = None) -> tuple[bytes, str, str]:
    """Compile CUDA C++ to `what`, "PTX" or "CUBIN".

    Returns:
        What was compiled; the kernel's lowered (mangled) name, "" without `name`; and NVRTC's log.
    """
    from cuda.bindings import nvrtc

    program = _must(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    try:
        if name:
            _must(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        encoded = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        encoded_log = bytearray(_must(nvrtc.nvrtcGetProgramLogSize(program)))
        _must(nvrtc.nvrtcGetProgramLog(program, encoded_log))
        log = encoded_log.decode().rstrip("\0")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise BuildError(readable_errors(log, {"kernel.cu": source}))
        out = bytearray(_must(getattr(nvrtc, f"nvrtcGet{what}Size")(program)))
        _must(getattr(nvrtc, f"nvrtcGet{what}")(program, out))
        lowered = _must(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode() if name else ""
        return bytes(out), lowered, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@functools.cache
def _cuda_include() -> list[str]:
    """The folder of CUDA's own headers (cuda_fp16.h, …), from the runtime's wheel or the toolkit; empty without one."""
    folders = [Path(entry) / "nvidia/cu13/include" for entry in sys.path]
    if home := device.cuda_toolkit():
        folders.append(home / "include")
    found = next((f for f in folders if (f / "cuda_fp16.h").is_file()), None)
    return [f"--include-path={found}"] if found else []


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
        BuildError: the compiler's complaint with the source line.
        ValueError: a target that is not named like "sm_90".
    """
    options = [f"--gpu-architecture=compute_{_number(target)}", *_cuda_include(), *flags]
    return _compile(source, options, "PTX")[0].decode().rstrip("\0")


def compile_cubin(source: str, *, target: str = "sm_90", flags: Sequence[str] = ()) -> bytes:
    """CUDA C++ to machine code by NVRTC, for a disassembler. Arguments and errors as in `compile_ptx`."""
    return _compile(source, _machine_code_options(target, flags), "CUBIN")[0]


def compile_kernel(source: str, name: str, *, target: str, flags: Sequence[str] = ()) -> tuple[bytes, str]:
    """CUDA C++ to machine code that is to be loaded, and the lowered name by which the driver finds the kernel `name`.

    Arguments and errors as in `compile_ptx`.
    """
    return _compile(source, _machine_code_options(target, flags), "CUBIN", name)[:2]


def assembler_report(source: str, *, target: str = "sm_90", flags: Sequence[str] = ()) -> str:
    """What ptxas, which is part of NVRTC, says of each kernel: registers, stack, spills, as `ptxas -v` does.

    Arguments and errors as in `compile_ptx`.
    """
    return _compile(source, _machine_code_options(target, [*flags, "--ptxas-options=-v"]), "CUBIN")[2]


def _machine_code_options(target: str, flags: Sequence[str]) -> list[str]:
    return [f"--gpu-architecture=sm_{_number(target)}", *_cuda_include(), *flags]
