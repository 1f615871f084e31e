"""The exercises that the wrong and the right solutions here answer: the labs' own, and a few that
no lab has.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from helpers import cuda, exercises
from helpers.exercises.factories import kernel_exercise
from helpers.exercises.model import Exercise
from helpers.exercises.plans import CasePlan

_LAUNCH = r"""
void launch(int64_t input, int64_t output, int64_t n_elements, int64_t stream) {
    const int threads = 256;
    const int64_t blocks = (n_elements + threads * PER_THREAD - 1) / (threads * PER_THREAD);
    square_kernel<<<dim3(BLOCKS(blocks)), dim3(threads), 0, (cudaStream_t)stream>>>(
        (const float*)input, (float*)output, n_elements);
}
"""


def _square_cuda(text: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Build CUDA text with `square_kernel(const float*, float*, int64_t)`; 256 threads, PER_THREAD elements
    each.
    """
    macros = ""
    for name, value in (("PER_THREAD", "1"), ("BLOCKS(n)", "n")):
        if not re.search(rf"#define {name.split('(')[0]}\b", text):
            macros += f"#define {name} {value}\n"
    declaration = _LAUNCH.partition(" {")[0].strip() + ";"
    module = cuda.load_cuda(
        "wrong_square", text + macros + _LAUNCH, ["launch"], cpp_source=declaration, torch_headers=False
    )

    def square(x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            stream = torch.cuda.current_stream().cuda_stream if x.is_cuda else 0
            module.launch(x.data_ptr(), y.data_ptr(), x.numel(), stream)
        return y

    return square


SQUARE_CUDA = kernel_exercise(
    "square-cuda",
    "02_load_inline",
    "Square in CUDA C++",
    "SQUARE",
    torch.square,
    must_launch="cuda",
    prepare=_square_cuda,
)
GELU = kernel_exercise(
    "gelu",
    "06_fusion",
    "GELU by its tanh form",
    "gelu",
    lambda x: F.gelu(x, approximate="tanh"),
    cases=CasePlan(dtypes=("float32", "float64")),
    tolerance={"float32": (1e-5, 1e-6), "float64": (1e-9, 1e-12)},
)
ROW_MAXIMUM = kernel_exercise(
    "row-maximum",
    "03_triton",
    "The maximum of each row",
    "row_maximum",
    lambda x: x.amax(dim=1),
    cases=CasePlan(ndim=2, empty=False),
    must_launch="triton",
)
OWN = {one.id: one for one in (SQUARE_CUDA, GELU, ROW_MAXIMUM)}


def target(id: str) -> Exercise:
    """One of these exercises, or a lab's."""
    return OWN[id] if id in OWN else exercises.get(id)
