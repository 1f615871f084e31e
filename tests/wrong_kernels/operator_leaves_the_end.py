"""Registered with torch.library; its output is allocated inside, and its last quarter is never written."""

import torch
import triton
import triton.language as tl

EXERCISE = "square-any-shape"
REASON = "fast-but-partial"


@triton.jit
def square_kernel(x_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * x, mask=mask)


@torch.library.custom_op("workbook_tests::square_most", mutates_args=())
def _square(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    if n:
        for first in (n // 2, 0):
            part = max(n // 4, 1)
            square_kernel[(triton.cdiv(part, 1024),)](
                x.view(-1)[first:], out.view(-1)[first:], part, BLOCK_SIZE=1024
            )
    return out


def square_any(x):
    return _square(x)
