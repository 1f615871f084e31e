"""The Triton kernels that torch.compile generates, as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def by_compile(f: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, int]) -> str:
    """Returns the code that torch.compile generates for `f` of a float32 matrix on the GPU.

    This is the text that TORCH_LOGS=output_code prints.
    """
    import torch
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    with torch._inductor.config.patch(fx_graph_cache=False):  # a cached result may lack its source
        _, codes = run_and_get_code(torch.compile(f, dynamic=False), torch.randn(shape, device="cuda"))
    lines = [line for line in codes[0].splitlines() if not line.startswith("# kernel path:")]
    return "\n".join(lines) + "\n"


def kernel_texts(code: str) -> list[str]:
    """Returns the Triton functions in the code that torch.compile generated, with their decorators.

    Raises:
        ValueError: The code has no Triton function.
    """
    found = re.findall(r"^@triton\.jit\n(?:.*\n)+?(?=''')", code, re.MULTILINE)
    if not found:
        raise ValueError(
            "kernel_texts: this code has no Triton function, because torch.compile left the operation to "
            "eager mode."
        )
    return found


def count_passes(kernel: str) -> tuple[int, int]:
    """Counts the loads and stores in a kernel's source.

    In a kernel that processes whole rows, each of them is one pass over the matrix.
    """
    return kernel.count("tl.load("), kernel.count("tl.store(")
