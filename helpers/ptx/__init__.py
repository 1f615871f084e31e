"""Triton and CUDA C++ kernels on their way down: TTIR, TTGIR, LLVM IR, PTX, SASS. No GPU is needed for any of it.

`stages` compiles a `@triton.jit` kernel for the target you name, `cuda_stages` compiles CUDA C++ with NVRTC, and
`summary` puts what matters about them into a table. `side_by_side` shows them coloured by source line, `read_ptx` lets
you ask a PTX text questions. `launches` notes which kernels a call launches, to compile them for any target. `ASTSource` is Triton's own, for `triton.compile`; `interpreted` runs a kernel on the CPU
beside the GPU.

`compile` has what compiles, `isolated` the second Python that compiles for a process of the interpreter, `artifacts`
what comes of it, `launched` what a call launches; `read` reads PTX and `sass` SASS, with `control` (what an instruction
tells the scheduler) and `live` (registers in use); `access` says what a warp asks of memory, `lines` which source line an
instruction came from, `layout`
which thread holds which element; `view` shows.
"""

from helpers.ptx.artifacts import CompileError, Stages
from helpers.ptx.compile import ASTSource, cuda_stages, from_compiled, interpreted, stages, summary
from helpers.ptx.isolated import complaint
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
    "complaint",
    "cuda_stages",
    "draw_layout",
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
