"""Builds extensions without PyTorch's headers in seconds: two compilers in parallel, a linker, no ninja.

The functions are bound by `emulator/include/bind.h`, which needs only Python's own header.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from helpers import device
from helpers.cuda.errors import BuildError

BIND = Path(__file__).parent / "emulator" / "include" / "bind.h"
# `torch::Tensor` and its like without PyTorch's headers; it is included below `bind.h`.
TENSORS = BIND.with_name("tensors.h")
_STANDARD = "-std=c++17"
# torch's own flags for nvcc, so that a source means the same with and without PyTorch's headers
_NVCC = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)


def supports(*texts: str | None) -> bool:
    """Whether `bind.h` can bind these sources. Sources that use pybind11 bind their own functions."""
    return not any(re.search(r"pybind11|\bpy::", text or "") for text in texts)


def binding(name: str, functions: Sequence[str]) -> str:
    """Returns the C++ lines that define the module `name`, to be placed below the declarations."""
    bindings = " ".join(f"WORKBOOK_BIND({f})" for f in functions)
    methods = " ".join(f"WORKBOOK_METHOD({f})" for f in functions)
    return f"""
#line 1 "binding"
{bindings}
static PyMethodDef workbook_methods[] = {{{methods} {{nullptr, nullptr, 0, nullptr}}}};
static PyModuleDef_Slot workbook_slots[] = {{{{0, nullptr}}}};  // so that no entry of sys.modules is replaced
static PyModuleDef workbook_module = {{
    PyModuleDef_HEAD_INIT, "{name}", nullptr, 0, workbook_methods, workbook_slots,
    nullptr, nullptr, nullptr}};
PyMODINIT_FUNC PyInit_{name}() {{ return PyModuleDef_Init(&workbook_module); }}
"""


def build(
    folder: Path,
    name: str,
    *,
    cpp: str,
    cuda: str,
    functions: Sequence[str],
    flags: Sequence[str],
    arch: str,
    toolkit: Path | None,
) -> list[list[str]]:
    """Compiles and links `folder/name.so`.

    Args:
        folder: an existing folder that only this build uses.
        name: the module's name.
        cpp: C++ source with the declarations or definitions of `functions`.
        cuda: CUDA source, or "".
        functions: the functions to bind.
        flags: options for nvcc if there is CUDA source, else for the C++ compiler.
        arch: the GPU's architecture, such as "sm_90".
        toolkit: the folder of nvcc's toolkit; None without CUDA source.

    Returns:
        The commands that were run; the compilation of main.cpp comes first.

    Raises:
        BuildError: the build failed. The message has the compiler's complete output.
    """
    compiler = str(device.find_tool("c++"))
    (folder / "main.cpp").write_text(f'#include "{BIND}"\n{cpp}\n{binding(name, functions)}')
    flags = [*([] if any("-std" in flag for flag in flags) else [_STANDARD]), *flags]
    cpp_flags = [_STANDARD, "-O2"] if cuda else flags
    python = f"-I{sysconfig.get_path('include')}"
    commands = [[compiler, "-fPIC", python, *cpp_flags, "-c", "main.cpp", "-o", "main.o"]]
    objects, libraries = ["main.o"], []
    if cuda:
        (folder / "cuda.cu").write_text(f"#include <cstdint>\n{cuda}")
        number = arch.removeprefix("sm_")
        target = f"-gencode=arch=compute_{number},code=sm_{number}"
        nvcc = [str(device.find_tool("nvcc")), *_NVCC, target, "--compiler-options", "-fPIC"]
        commands.append([*nvcc, *flags, "-c", "cuda.cu", "-o", "cuda.o"])
        runtime = _runtime_folder(toolkit)
        objects.append("cuda.o")
        libraries = [f"-L{runtime}", f"-Wl,-rpath,{runtime}", "-lcudart"]
    elif sys.platform == "darwin":
        libraries = ["-undefined", "dynamic_lookup"]
    link = [compiler, "-shared", *objects, "-o", f"{name}.so", *libraries]
    _run(commands, folder)
    _run([link], folder)
    return [*commands, link]


def _run(commands: list[list[str]], folder: Path) -> None:
    """Runs commands in parallel."""
    environment = {**os.environ, "LC_ALL": "C"}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    running = []
    try:
        for command in commands:
            running.append(subprocess.Popen(command, cwd=folder, env=environment, **output))
        outputs = [process.communicate()[0] for process in running]
    except BaseException:  # the learner's interrupt
        for process in running:
            process.kill()
        raise
    if any(process.returncode for process in running):
        raise BuildError("\n".join(outputs))


def _runtime_folder(toolkit: Path) -> Path:
    """Returns the folder of the toolkit's libcudart.so."""
    for folder in (toolkit / "lib64", toolkit / "lib", *sorted(toolkit.glob("targets/*/lib"))):
        if (folder / "libcudart.so").exists():
            return folder
    raise BuildError(
        f"There is no libcudart.so in {toolkit}/lib64: install the CUDA runtime's development files "
        "(conda install -c conda-forge cuda-cudart-dev), or set CUDA_HOME to a complete toolkit."
    )
