"""Compiles Triton and CUDA C++ kernels and shows every stage: TTIR, TTGIR, LLVM IR, PTX, SASS. No GPU is
needed.

`stages` compiles a `@triton.jit` kernel for a target, `cuda_stages` compiles CUDA C++ with NVRTC, and
`summary` puts their key figures into a table. `side_by_side` shows them colored by source line, and
`read_ptx` parses PTX. `launches` records which kernels a call launches, so that they can be compiled for any
target. `ASTSource` is Triton's own, for `triton.compile`; `interpreted` runs a kernel on the CPU even if
there is a GPU.

The modules: `compile` compiles, `isolated` does so in a second Python if this process uses the interpreter,
`artifacts` holds the results, `launched` records launches, `read` and `sass` parse PTX and SASS, `loops`
finds the loop that multiplies, `lines` maps each instruction to its source line, `layout` maps elements to
threads, `rounding` makes interpreted dots round to TF32, and `view` displays everything.
"""

from helpers.ptx.artifacts import CompileError, Stages
from helpers.ptx.compile import ASTSource, cuda_stages, from_compiled, interpreted, stages, summary
from helpers.ptx.isolated import error_summary
from helpers.ptx.launched import Launch, launches
from helpers.ptx.layout import Layout, draw_layout, layout_of
from helpers.ptx.read import Instruction, PtxReading, read_ptx
from helpers.ptx.sass import SassReading, read_sass
from helpers.ptx.view import View, side_by_side

__all__ = [
    "ASTSource",
    "CompileError",
    "Instruction",
    "Launch",
    "Layout",
    "PtxReading",
    "SassReading",
    "Stages",
    "View",
    "cuda_stages",
    "draw_layout",
    "error_summary",
    "from_compiled",
    "interpreted",
    "launches",
    "layout_of",
    "read_ptx",
    "read_sass",
    "side_by_side",
    "stages",
    "summary",
]
