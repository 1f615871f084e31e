"""Compile C++ and CUDA sources and call what is in them: `load_inline`, `load`, `load_kernel`, `compile_ptx`.

`inline` has torch's `load_inline` and `load`, called the same way without a GPU. `extension` builds modules,
through torch's `load_inline` or, with `fast_build`, by calling the compilers directly. `nvrtc` compiles to
PTX and machine code without nvcc, `kernel` loads one kernel to call, `cache` stores the builds, and `errors`
shortens a compiler's output to the relevant lines. `highlight` displays a program with syntax highlighting
(`show`), and `text` distinguishes CUDA from other text. `emulator` runs CUDA code without a GPU.
"""

from helpers.cuda.cache import BuildInfo, build_folder, info
from helpers.cuda.errors import BuildError, readable_errors
from helpers.cuda.extension import load_cpp, load_cuda
from helpers.cuda.highlight import show
from helpers.cuda.inline import load, load_inline
from helpers.cuda.kernel import LoadedKernel, load_kernel
from helpers.cuda.nvrtc import compile_cubin, compile_ptx

__all__ = [
    "BuildError",
    "BuildInfo",
    "LoadedKernel",
    "build_folder",
    "compile_cubin",
    "compile_ptx",
    "info",
    "load",
    "load_cpp",
    "load_cuda",
    "load_inline",
    "load_kernel",
    "readable_errors",
    "show",
]
