"""The public functions `square(x)`, `gelu(x)`, `softmax(x, dim)`, `matmul(a, b)` and `attention(q, k, v)`,
and their PyTorch operators.

    from helpers.kernels.ops import attention, gelu, matmul, softmax, square

Each function chooses the kernel that fits the tensor (from helpers.kernels.elementwise,
helpers.kernels.softmax, helpers.kernels.matmul or helpers.kernels.attention). Each one is also a PyTorch
operator, such as `torch.ops.kernel_workbook.square`: it supports first-order gradients, works under
torch.compile without a graph break, and can infer the shape of its result without running. They are custom
operators, which torch.compile calls as a unit, and not Triton operators, which it would inline, because the
plan depends on sizes and addresses that are only known at run time.

In Python, calling an operator takes several times as long as the launch itself. So if PyTorch doesn't have
to see a call (no gradients, no compilation, no transform), it goes straight to the kernel.

Set `TRITON_INTERPRET=1` before you import this module to run the kernels in Triton's interpreter, on CPU
tensors.
"""

from __future__ import annotations

import functools

import torch
from torch.autograd import forward_ad

from helpers.kernels import attention as attention_kernels
from helpers.kernels import attention_grad, elementwise, softmax_grad
from helpers.kernels import matmul as matmul_kernels
from helpers.kernels import softmax as softmax_kernels

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _needs_dispatcher(*tensors: torch.Tensor) -> bool:
    """Returns whether PyTorch must see the call: for tracing, gradients, a transform or a tensor subclass."""
    return (
        torch.compiler.is_compiling()
        or any(type(x) not in _PLAIN or x.is_meta for x in tensors)
        or (torch.is_grad_enabled() and any(x.requires_grad for x in tensors))
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
    )


def square(x: torch.Tensor) -> torch.Tensor:
    """Returns x squared, element by element.

    Args:
        x: A float32, bfloat16 or float16 tensor on a GPU, of any shape and strides.

    Returns:
        A tensor with the shape and dtype of x, and also its strides if x has no gaps.

    Raises:
        ValueError: x has another dtype, or is on a device where the kernels can't run.
    """
    return (
        torch.ops.kernel_workbook.square.default(x) if _needs_dispatcher(x) else elementwise.square_forward(x)
    )


def gelu(x: torch.Tensor) -> torch.Tensor:
    """Returns GELU in its tanh form, as `torch.nn.functional.gelu(x, approximate="tanh")` does.

    The arguments, result and errors are those of `square`.
    """
    return torch.ops.kernel_workbook.gelu.default(x) if _needs_dispatcher(x) else elementwise.gelu_forward(x)


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Returns the softmax along one dimension, as `torch.softmax(x, dim)` does.

    Args:
        x: A float32, bfloat16 or float16 tensor on a GPU, of any shape and strides. If the elements along
            `dim` aren't contiguous in memory, x is copied first.
        dim: The dimension whose elements add up to 1.

    Returns:
        A tensor with the shape and dtype of x, stored with `dim` innermost. For the last dimension, that is
        contiguous.

    Raises:
        ValueError: x has another dtype, or is on a device where the kernels can't run.
        IndexError: x has no such dimension.
    """
    return (
        torch.ops.kernel_workbook.softmax.default(x, dim)
        if _needs_dispatcher(x)
        else _softmax_forward(x, dim)
    )


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    gelu: bool = False,
    precision: str = "ieee",
) -> torch.Tensor:
    """Returns the matrix product a @ b, plus the bias, through GELU (tanh form) if `gelu` is true.

    `helpers.kernels.matmul.matmul_forward` also takes float8_e4m3fn with scales, without gradients.

    Args:
        a: (m, k), float32, bfloat16 or float16 on a GPU, with any strides.
        b: (k, n), of the same dtype.
        bias: (n,), of any float dtype.
        gelu: Whether GELU is applied to the result. Its gradient computes the product again.
        precision: For float32: "ieee" multiplies float32 numbers, "tf32" rounds them to TF32 first, so that
            tensor cores can multiply them. The products are accumulated in float32 in any case.

    Returns:
        A contiguous (m, n) tensor of the dtype of a and b.

    Raises:
        ValueError: The arguments don't fit each other, or the kernels can't run on their device.
    """
    tensors = (a, b) if bias is None else (a, b, bias)
    if _needs_dispatcher(*tensors):
        return torch.ops.kernel_workbook.matmul.default(a, b, bias, gelu, precision)
    return matmul_kernels.matmul_forward(a, b, bias, gelu=gelu, precision=precision)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    window: int | None = None,
    precision: str = "ieee",
) -> torch.Tensor:
    """Returns softmax(q @ k.T * scale) @ v, as `torch.nn.functional.scaled_dot_product_attention` does.

    Query i has the same position as key i, also if their numbers differ. A query that sees no key has the
    result 0. `helpers.kernels.attention.attention_forward` also returns the log-sum-exp.

    Args:
        q: (batch, heads, n_queries, head_size), float32, bfloat16 or float16 on a GPU, with a head size of 64
            or 128. If the elements of a row aren't contiguous in memory, q is copied first; the same is true
            of k and v.
        k, v: (batch, heads, n_keys, head_size), of the same dtype.
        is_causal: Whether query i sees only the keys j <= i.
        scale: What the scores are multiplied by; 1 / sqrt(head_size) by default.
        enable_gqa: Whether k and v may have fewer heads than q, each for a group of adjacent heads of q.
        window: How many keys each query sees at most: i - window < j <= i. A window implies a causal mask.
        precision: For float32: "ieee" multiplies float32 numbers, "tf32" rounds them to TF32 first.

    Returns:
        A tensor with the shape and dtype of q. If the heads are inside of the queries in q's memory, they are
        in the result's, too.

    Raises:
        ValueError: The arguments don't fit each other, or the kernels can't run on their device.
    """
    if not enable_gqa and q.ndim == k.ndim == 4 and q.shape[1] != k.shape[1]:
        raise ValueError(f"q has {q.shape[1]} heads and k has {k.shape[1]}; pass enable_gqa=True.")
    if _needs_dispatcher(q, k, v):
        return torch.ops.kernel_workbook.attention.default(q, k, v, is_causal, scale, window, precision)[0]
    return attention_kernels.attention_forward(
        q, k, v, is_causal=is_causal, scale=scale, window=window, precision=precision
    )[0]


def _last(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns x with `dim` last, or a scalar as a tensor of one element."""
    return x.reshape(1) if x.ndim == 0 else x.movedim(dim, -1)


def _require_dim(x: torch.Tensor, dim: int) -> None:
    n = max(x.ndim, 1)
    if not -n <= dim < n:
        raise IndexError(
            f"softmax: x has {x.ndim} dimensions, so dim must be from {-n} to {n - 1}, not {dim}."
        )


def _as_rows(x: torch.Tensor) -> torch.Tensor:
    """Returns x as (n_rows, n_cols) with contiguous columns: a view if possible, otherwise a copy."""
    n_cols = x.shape[-1]
    if n_cols > 1 and x.stride(-1) != 1:
        x = x.contiguous()
    try:
        rows = x.view(-1, n_cols)
    except RuntimeError:  # the rows of this view have no single stride
        rows = x.contiguous().view(-1, n_cols)
    return rows if rows.stride(1) == 1 else rows.as_strided(rows.shape, (rows.stride(0), 1))


def _softmax_result(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Allocates an uninitialized result and returns two views of it: contiguous with `dim` last, and in the
    shape of x.
    """
    last = torch.empty_like(_last(x, dim), memory_format=torch.contiguous_format)
    return last, last.reshape(()) if x.ndim == 0 else last.movedim(-1, dim)


_plan = functools.lru_cache(maxsize=4096)(softmax_kernels.plan_softmax)


def _softmax_forward(x: torch.Tensor, dim: int) -> torch.Tensor:
    _require_dim(x, dim)
    elementwise.require_dtype(x.dtype)
    elementwise.require_place(x)
    # A shortcut for the common case, which needs no transposing.
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


@torch.library.custom_op("kernel_workbook::matmul", mutates_args=())
def _matmul_op(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    gelu: bool = False,
    precision: str = "ieee",
) -> torch.Tensor:
    return matmul_kernels.matmul_forward(a, b, bias, gelu=gelu, precision=precision)


def _matmul_gradients(ctx, g: torch.Tensor) -> tuple:
    a, b, bias = ctx.saved_tensors
    if ctx.gelu:
        before = matmul(a, b, bias, precision=ctx.precision)
        g = torch.ops.kernel_workbook.gelu_backward(g, before)
    needs_a, needs_b, needs_bias = ctx.needs_input_grad[:3]
    return (
        matmul(g, b.T, precision=ctx.precision) if needs_a else None,
        matmul(a.T, g, precision=ctx.precision) if needs_b else None,
        g.sum(dim=0, dtype=torch.float32).to(bias.dtype) if needs_bias else None,
        None,
        None,
    )


@torch.library.custom_op("kernel_workbook::attention", mutates_args=())
def _attention_op(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    precision: str = "ieee",
) -> tuple[torch.Tensor, torch.Tensor]:
    return attention_kernels.attention_forward(
        q, k, v, is_causal=is_causal, scale=scale, window=window, precision=precision
    )


@torch.library.custom_op("kernel_workbook::attention_backward", mutates_args=())
def _attention_backward_op(
    g: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    is_causal: bool,
    scale: float | None,
    window: int | None,
    precision: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return attention_grad.attention_backward(
        g, q, k, v, o, lse, is_causal=is_causal, scale=scale, window=window, precision=precision
    )


def _register_attention() -> None:
    """Registers the shapes and the gradients of attention with PyTorch."""

    def attention_like(q, k, v, is_causal=False, scale=None, window=None, precision="ieee"):
        attention_kernels.require_attention(q, k, v, scale, window, precision)
        return attention_kernels.result_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)

    def keep(ctx, inputs, output) -> None:
        q, k, v, *ctx.how = inputs
        ctx.save_for_backward(q, k, v, *output)
        ctx.mark_non_differentiable(output[1])

    def gradients(ctx, g, _) -> tuple:
        found = torch.ops.kernel_workbook.attention_backward(g, *ctx.saved_tensors, *ctx.how)
        return (*found, *(None for _ in ctx.how))

    _attention_op.register_fake(attention_like)
    _attention_op.register_autograd(gradients, setup_context=keep)
    _attention_backward_op.register_fake(
        lambda g, q, k, v, *_: tuple(attention_kernels.result_like(x) for x in (q, k, v))
    )


def _register() -> None:
    """Registers the shapes of the results and the gradients with PyTorch."""

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

    def product_like(a, b, bias=None, gelu=False, precision="ieee"):
        matmul_kernels.require_product(a, b, bias, precision)
        return a.new_empty(a.shape[0], b.shape[1])

    def keep_factors(ctx, inputs, output) -> None:
        a, b, bias, ctx.gelu, ctx.precision = inputs
        ctx.save_for_backward(a, b, bias)

    _matmul_op.register_fake(product_like)
    _matmul_op.register_autograd(_matmul_gradients, setup_context=keep_factors)
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
_register_attention()
