"""Compile C++ and CUDA sources and call what is in them: `load_cpp`, `load_cuda`, `load_kernel`, `compile_ptx`.

`extension` builds modules, through torch's `load_inline` or, with `light`, straight through the compilers; `nvrtc`
compiles kernels without nvcc and loads one to call; `errors` cuts a compiler's complaint to what matters. `host` runs
CUDA text where there is no GPU.
"""

from helpers.cuda.errors import BuildError, readable_errors
from helpers.cuda.extension import BuildInfo, build_folder, info, load_cpp, load_cuda
from helpers.cuda.nvrtc import LoadedKernel, compile_cubin, compile_ptx, load_kernel

__all__ = [
    "BuildError",
    "BuildInfo",
    "LoadedKernel",
    "build_folder",
    "compile_cubin",
    "compile_ptx",
    "info",
    "load_cpp",
    "load_cuda",
    "load_kernel",
    "readable_errors",
]
