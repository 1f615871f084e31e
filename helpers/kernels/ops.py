"""The public functions `square(x)`, `gelu(x)` and `softmax(x, dim)`, and the torch operators behind them.

    from helpers.kernels.ops import gelu, softmax, square

Each picks the right kernel for the tensor (helpers.kernels.elementwise, helpers.kernels.softmax) and is an operator of
torch, `torch.ops.kernel_workbook.square` and so on: it has gradients (once), works under torch.compile without a graph
break, and tells torch the shape of its result without running. They are custom operators, which torch.compile calls as
they are, rather than Triton operators that it would take apart: the plan depends on sizes and addresses that are known
only when a call is made.

An operator costs several times the launch itself in Python. So a call that nobody watches (no gradient wanted, not
being compiled or transformed) goes straight to the kernel.

Set `TRITON_INTERPRET=1` before this module is imported to run the kernels in Triton's interpreter, on CPU tensors.
"""

from __future__ import annotations

import functools

import torch
from torch.autograd import forward_ad

from helpers.kernels import elementwise, softmax_grad
from helpers.kernels import softmax as softmax_kernels

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _watched(x: torch.Tensor) -> bool:
    """Whether torch must see the call: tracing, gradients, a transform, a tensor of another kind."""
    return (
        torch.compiler.is_compiling()
        or type(x) not in _PLAIN
        or x.is_meta
        or (x.requires_grad and torch.is_grad_enabled())
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
    )


def square(x: torch.Tensor) -> torch.Tensor:
    """x squared, element by element.

    Args:
        x: float32, bfloat16 or float16, any shape and strides, on a GPU.

    Returns:
        A tensor of x's shape and dtype, with x's strides where x has no gaps.

    Raises:
        ValueError: another dtype, or a tensor where the kernels cannot run.
    """
    return torch.ops.kernel_workbook.square.default(x) if _watched(x) else elementwise.square_forward(x)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU in its tanh form, as `torch.nn.functional.gelu(x, approximate="tanh")`.

    Args, returns and errors as `square`.
    """
    return torch.ops.kernel_workbook.gelu.default(x) if _watched(x) else elementwise.gelu_forward(x)


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Softmax along one dimension, as `torch.softmax(x, dim)`.

    Args:
        x: float32, bfloat16 or float16, any shape and strides, on a GPU. Where `dim`'s elements are not neighbours in
            memory, x is copied first.
        dim: the dimension whose elements add up to 1.

    Returns:
        A tensor of x's shape and dtype, in memory with `dim` innermost; for the last dimension that is contiguous.

    Raises:
        ValueError: another dtype, or a tensor where the kernels cannot run.
        IndexError: no such dimension.
    """
    return torch.ops.kernel_workbook.softmax.default(x, dim) if _watched(x) else _softmax_forward(x, dim)


def _last(x: torch.Tensor, dim: int) -> torch.Tensor:
    """x with `dim` last; a scalar as one element."""
    return x.reshape(1) if x.ndim == 0 else x.movedim(dim, -1)


def _require_dim(x: torch.Tensor, dim: int) -> None:
    n = max(x.ndim, 1)
    if not -n <= dim < n:
        raise IndexError(
            f"softmax: x has {x.ndim} dimensions, so dim is {-n} to {n - 1}; it was given {dim}."
        )


def _as_rows(x: torch.Tensor) -> torch.Tensor:
    """x as (n_rows, n_cols) with neighbouring columns: a view where there is one, otherwise a copy."""
    n_cols = x.shape[-1]
    if n_cols > 1 and x.stride(-1) != 1:
        x = x.contiguous()
    try:
        rows = x.view(-1, n_cols)
    except RuntimeError:  # the rows of this view lie at no one distance
        rows = x.contiguous().view(-1, n_cols)
    return rows if rows.stride(1) == 1 else rows.as_strided(rows.shape, (rows.stride(0), 1))


def _softmax_result(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An unfilled result twice: contiguous with `dim` last, and that memory in x's shape."""
    last = torch.empty_like(_last(x, dim), memory_format=torch.contiguous_format)
    return last, last.reshape(()) if x.ndim == 0 else last.movedim(-1, dim)


_plan = functools.lru_cache(maxsize=4096)(softmax_kernels.plan_softmax)


def _softmax_forward(x: torch.Tensor, dim: int) -> torch.Tensor:
    _require_dim(x, dim)
    elementwise.require_dtype(x.dtype)
    elementwise.require_place(x)
    # The common case, made short: nothing to move.
    if x.ndim > 1 and dim in (-1, x.ndim - 1) and x.is_contiguous():
        y = last = torch.empty_like(x)
        rows = x
    else:
        last, y = _softmax_result(x, dim)
        rows = _last(x, dim)
    if x.numel():
        rows, out = _as_rows(rows), last.view(-1, last.shape[-1])
        with elementwise.on_device_of(x):
            softmax_kernels.softmax_forward(rows, out, _plan(*rows.shape, x.dtype, device=x.device))
    return y


def _softmax_backward(g: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    last, dx = _softmax_result(y, dim)
    if y.numel():
        rows = (_as_rows(_last(t, dim)) for t in (g, y))
        with elementwise.on_device_of(y):
            softmax_grad.softmax_backward_rows(*rows, last.view(-1, last.shape[-1]))
    return dx


@torch.library.custom_op("kernel_workbook::square", mutates_args=())
def _square_op(x: torch.Tensor) -> torch.Tensor:
    return elementwise.square_forward(x)


@torch.library.custom_op("kernel_workbook::square_backward", mutates_args=())
def _square_backward_op(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return elementwise.square_backward(g, x)


@torch.library.custom_op("kernel_workbook::gelu", mutates_args=())
def _gelu_op(x: torch.Tensor) -> torch.Tensor:
    return elementwise.gelu_forward(x)


@torch.library.custom_op("kernel_workbook::gelu_backward", mutates_args=())
def _gelu_backward_op(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return elementwise.gelu_backward(g, x)


@torch.library.custom_op("kernel_workbook::softmax", mutates_args=())
def _softmax_op(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    return _softmax_forward(x, dim)


@torch.library.custom_op("kernel_workbook::softmax_backward", mutates_args=())
def _softmax_backward_op(g: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    return _softmax_backward(g, y, dim)


def _register() -> None:
    """What torch needs to know beside the kernels: the results' shapes, and the gradients."""

    def like(x: torch.Tensor) -> torch.Tensor:
        elementwise.require_dtype(x.dtype)
        return torch.empty_like(x)

    def keep_input(ctx, inputs, output) -> None:
        ctx.save_for_backward(inputs[0])

    def keep_output(ctx, inputs, output) -> None:
        ctx.save_for_backward(output)
        ctx.dim = inputs[1]

    for op, backward, namespace in (
        (_square_op, _square_backward_op, torch.ops.kernel_workbook.square_backward),
        (_gelu_op, _gelu_backward_op, torch.ops.kernel_workbook.gelu_backward),
    ):
        op.register_fake(like)
        backward.register_fake(lambda g, x: torch.empty_like(x))
        op.register_autograd(
            lambda ctx, g, namespace=namespace: namespace(g, *ctx.saved_tensors), setup_context=keep_input
        )

    def softmax_like(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
        _require_dim(x, dim)
        elementwise.require_dtype(x.dtype)
        return _softmax_result(x, dim)[1]

    _softmax_op.register_fake(softmax_like)
    _softmax_backward_op.register_fake(lambda g, y, dim: _softmax_result(y, dim)[1])
    _softmax_op.register_autograd(
        lambda ctx, g: (
            torch.ops.kernel_workbook.softmax_backward(g, *ctx.saved_tensors, ctx.dim),
            None,
        ),
        setup_context=keep_output,
    )


_register()
