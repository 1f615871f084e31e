"""In an exercise that asks for a kernel, torch may prepare and pass on, but not compute; and right kernels
pass with any block size.
"""

from __future__ import annotations

import pytest
from lab_attempts import Attempt, judge

LAB = "03_triton"

_KERNELS = """
@triton.jit
def copy_kernel(y_ptr, x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def square_kernel(y_ptr, x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x * x, mask=i < n)


@triton.jit
def flip_kernel(y_ptr, x_ptr, row_stride, col_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    x = tl.load(x_ptr + row * row_stride + (n_cols - 1 - cols) * col_stride, mask=cols < n_cols)
    tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)


@triton.jit
def body_kernel(n):
    torch.mul(shared["x"], shared["x"], out=shared["y"])


def launched(kernel, x, block=1024):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        kernel[(triton.cdiv(x.numel(), block),)](y, x, x.numel(), BLOCK=block)
    return y


def copied(x):
    return launched(copy_kernel, x)


def squared(x, block=1024):
    return launched(square_kernel, x, block)


def flipped(x, block=1024):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        flip_kernel[(x.shape[0], triton.cdiv(x.shape[1], block))](y, x, *x.stride(), x.shape[1], BLOCK=block)
    return y


@torch.library.custom_op("workbook_tests::squares_in_torch", mutates_args=())
def operator(x: torch.Tensor) -> torch.Tensor:
    return x * x


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * x


shared = {}
"""


def square(body: str, says: str = "") -> Attempt:
    source = f"{_KERNELS}\n\ndef square_any(x):\n    {'; '.join(body.splitlines())}\n"
    return Attempt("square-any-shape", source=source, mistake="torch-computes" if says else "", says=says)


def flip(body: str, says: str = "") -> Attempt:
    source = f"{_KERNELS}\n\ndef flip_rows(x):\n    {'; '.join(body.splitlines())}\n"
    return Attempt("flip-rows", source=source, mistake="torch-computes" if says else "", says=says)


_COLUMNS = "columns = [x[:, i] for i in reversed(range(x.shape[1]))]\n"
ATTEMPTS = {
    # torch computes
    "before the launch": square("return copied(x * x)", "calls torch's mul"),
    "after the launch": square("return copied(x).mul_(x)", "calls torch's mul"),
    "into given memory": square(
        "y = torch.empty_like(x)\ntorch.mul(x, x, out=y)\nreturn copied(y)", "calls torch's mul"
    ),
    "by a list of tensors": square("y = x.clone()\ntorch._foreach_mul_([y], [x])\nreturn copied(y)", "mul"),
    "in a custom operator": square("return copied(operator(x))", "calls torch's mul"),
    "in an autograd function": square("return copied(Function.apply(x))", "calls torch's mul"),
    "compiled": square("return copied(torch.compile(lambda x: x * x, backend='eager')(x))", "torch's mul"),
    "vectorized": square(
        "return copied(torch.vmap(lambda v: v * v)(x) if x.numel() and x.dim() else x * x)", "mul"
    ),
    "in the kernel's body": square(
        "y = copied(x)\nshared.update(x=x, y=y)\nbody_kernel[(1,)](1)\nreturn copied(y)", "calls torch's mul"
    ),
    "element by element": square(
        "return copied(torch.tensor([one.item() ** 2 for one in x.flatten()], dtype=x.dtype).view(x.shape))",
        "calls torch's item",
    ),
    "flip": flip("return copied(x.flip(1))", "calls torch's flip"),
    "flip: by an index": flip("return copied(x[:, torch.arange(x.shape[1] - 1, -1, -1)])", "torch's index"),
    "flip: a stack of columns": flip(f"{_COLUMNS}return copied(torch.stack(columns, 1))", "torch's stack"),
    "flip: column by column": flip(
        f"{_COLUMNS}y = torch.empty(x.shape)\n[y[:, i].copy_(one) for i, one in enumerate(columns)]\n"
        "return copied(y)",
        "calls torch's copy",
    ),
    # torch prepares and passes on
    "rows stacked": square(
        "return torch.stack([squared(row) for row in x]) if x.dim() > 1 and x.numel() else squared(x)"
    ),
    "rows joined": square(
        "return torch.cat([squared(x[:1]), squared(x[1:])]) if x.dim() > 1 else squared(x)"
    ),
    "padded": square(
        "return squared(torch.nn.functional.pad(x, (1, 2)))[..., 1:-2] if x.dim() else squared(x)"
    ),
    "another type inside": square("return squared(x.double()).to(x.dtype)"),
    "a table of offsets": square(
        "torch.tensor(x.shape).cumsum(0) * 2 + torch.arange(x.dim())\nreturn squared(x)"
    ),
    "a flag is read": square("y = squared(x)\ny.flatten()[0].item() if y.numel() else 0\nreturn y"),
    "printed": square("repr(x)\nreturn squared(x)"),
    "flip: rows stacked": flip(
        "return torch.stack([flipped(row[None])[0] for row in x]) if x.numel() else flipped(x)"
    ),
    "flip: after a copy": flip("return flipped(x.clone())"),
    "flip: a copy of each row": flip(
        "return torch.cat([flipped(row[None].contiguous()) for row in x]) if x.numel() else flipped(x)"
    ),
    # block sizes
    "blocks of 1": square("return squared(x, 1)"),
    "blocks of 4": square("return squared(x, 4)"),
    "flip: blocks of 4": flip("return flipped(x, 4)"),
    "blocks of 4096": square("return squared(x, 4096)"),
}


@pytest.mark.seeded
@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempt(name: str, found: dict[str, dict]) -> None:
    judge(name, ATTEMPTS[name], found[name])


def test_the_cases_that_tiny_blocks_leave_out_are_named(found):
    assert " cases (Triton's interpreter would take too long" in found["blocks of 1"]["said"]
    assert "not tried" not in found["blocks of 4096"]["said"]
