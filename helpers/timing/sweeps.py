"""Measure a kernel at every combination of its launch parameters.

A row is timed only after the kernel has been checked at that very point and size, on poisoned output
memory. If the kernel is wrong at a point, or if the kernel or the GPU refuses it, the row has the reason
and no time.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers.timing.clock import wait_for_gpu

if TYPE_CHECKING:
    import pandas as pd
    import torch

_RESULTS = (
    "median_us",
    "ci_low_us",
    "ci_high_us",
    "gb_per_s",
    "n_samples",
    "verdict",
    "reason",
)
_DIMENSIONS = {1: ("n_elements",), 2: ("n_rows", "n_cols")}


@dataclass(frozen=True)
class _SweepArguments:
    """The arguments of `sweep`, which are the same for every row."""

    kernel: Callable[..., torch.Tensor]
    name: str
    reference: Callable[..., torch.Tensor]
    n_bytes: Callable[..., int] | float
    make_inputs: Callable[..., tuple[torch.Tensor, ...]] | None
    dtype: torch.dtype
    device: str
    seed: int
    tolerance: tuple[float, float] | None
    timer: Callable[..., Any]
    l2: str
    budget_s: float


def sweep(
    kernel: Callable[..., torch.Tensor],
    *,
    shapes: Iterable[tuple[int, ...]],
    reference: Callable[..., torch.Tensor],
    n_bytes: Callable[..., int] | float,
    make_inputs: Callable[..., tuple[torch.Tensor, ...]] | None = None,
    dtype: torch.dtype | None = None,
    l2: str = "cold",
    budget_s: float = 0.2,
    device: str | None = None,
    seed: int = 0,
    progress: bool = False,
    timer: Callable[..., Any] | None = None,
    tolerance: tuple[float, float] | None = None,
    name: str | None = None,
    **axes: Sequence[Any],
) -> pd.DataFrame:
    """Check and time a kernel at every shape and every combination of its launch parameters.

    Args:
        kernel: called as `kernel(*inputs, **point)`; returns its output tensor. Pass a function from
            torch.compile directly: if you wrap it in another function, the check's poisoned allocations
            make PyTorch run it uncompiled from then on.
        shapes: input shapes, such as `[(4096, 256), (4096, 12672)]`.
        reference: what the kernel must compute; it gets the inputs in float64.
        n_bytes: the bytes that the operation must move: a number, or a function of the inputs, such as
            `lambda x: 2 * x.nbytes`.
        make_inputs: `make_inputs(shape, generator, device, dtype)` returns the kernel's inputs; by default
            one tensor of normally distributed numbers.
        dtype: the dtype of the inputs; float32 by default.
        l2: the state of the L2 cache before each call, as in `timing.time_gpu`.
        budget_s: how many seconds to time each row.
        device: where the inputs are created; the GPU by default.
        seed: the seed of the inputs that are timed. The check creates its own inputs.
        progress: show a progress bar.
        timer: used instead of `timing.time_gpu`, called as `timer(fn, l2=l2, budget_s=budget_s)`.
        tolerance: (relative, absolute) tolerance of the check, instead of the dtype's default.
        name: what messages call the kernel, instead of its own name.
        **axes: the values to try for each launch parameter: `block_size=[256, 1024], num_warps=[4, 8]`.

    Returns:
        A row for each shape and point: the shape (`n_rows` and `n_cols`, or `n_elements`, or `shape`), the
        launch parameters, `median_us`, `ci_low_us`, `ci_high_us`, `gb_per_s` (decimal), `n_samples`,
        `verdict` ("ok", "wrong" or "refused") and `reason`. The times of a row that is not "ok" are NaN.

    Raises:
        ValueError: there are no shapes, an axis has no values, or an axis is named like a result column.
        helpers.device.Missing: a correct kernel is to be timed, but there is no GPU (and no `timer`).
        RuntimeError: the GPU stopped working (an illegal access makes the process unusable), so later rows
            would be meaningless.
    """
    import pandas as pd
    import torch

    shapes = [tuple(s) for s in shapes]
    axes = {name: list(values) for name, values in axes.items()}
    if not shapes:
        raise ValueError("sweep: shapes is empty; pass at least one, such as [(4096, 1024)].")
    for axis, values in axes.items():
        if not values:
            raise ValueError(f"sweep: {axis} has no values; pass a list with at least one.")
        if axis in _RESULTS or axis in ("n_rows", "n_cols", "n_elements", "shape"):
            raise ValueError(
                f"sweep: {axis!r} is a column of the result; rename that parameter of the kernel."
            )
    if timer is None:
        from helpers.timing.gpu import time_gpu as timer
    arguments = _SweepArguments(
        kernel=kernel,
        name=name or getattr(kernel, "__name__", type(kernel).__name__),
        reference=reference,
        n_bytes=n_bytes,
        make_inputs=make_inputs,
        dtype=dtype or torch.float32,
        device=device or ("cuda" if torch.cuda.is_available() else "cpu"),
        seed=seed,
        tolerance=tolerance,
        timer=timer,
        l2=l2,
        budget_s=budget_s,
    )
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    plan: Iterable = list(itertools.product(shapes, points))
    if progress:
        from tqdm.auto import tqdm

        plan = tqdm(plan, desc="sweep", unit="row", leave=False)
    rows = [{**_shape_columns(shape), **point, **_measure(arguments, shape, point)} for shape, point in plan]
    columns = [
        *dict.fromkeys(itertools.chain.from_iterable(_shape_columns(s) for s in shapes)),
        *axes,
        *_RESULTS,
    ]
    return pd.DataFrame(rows, columns=columns)


def _shape_columns(shape: tuple[int, ...]) -> dict[str, Any]:
    names = _DIMENSIONS.get(len(shape))
    return dict(zip(names, shape, strict=True)) if names else {"shape": "×".join(map(str, shape))}


def _row(verdict: str, reason: str = "", **times: float) -> dict[str, Any]:
    nan = math.nan
    empty = {"median_us": nan, "ci_low_us": nan, "ci_high_us": nan, "gb_per_s": nan, "n_samples": 0}
    return {**empty, **times, "verdict": verdict, "reason": reason}


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def _measure(arguments: _SweepArguments, shape: tuple[int, ...], point: dict[str, Any]) -> dict[str, Any]:
    """The results of one row: checked, then timed."""
    from helpers import check
    from helpers.device import Missing

    at_point = functools.partial(arguments.kernel, **point) if point else arguments.kernel
    try:
        check.assert_matches(
            at_point,
            arguments.reference,
            shapes=[shape],
            dtype=arguments.dtype,
            device=arguments.device,
            make_inputs=arguments.make_inputs,
            name=arguments.name,
            tolerance=arguments.tolerance,
        )
        inputs = _inputs(arguments, shape)
        timing = arguments.timer(lambda: at_point(*inputs), l2=arguments.l2, budget_s=arguments.budget_s)
    except check.Mismatch as error:
        return _row("wrong", error.reason)
    except Missing:
        # Without a GPU nothing can be timed, so the row is not to blame.
        raise
    except Exception as error:
        # It is a result, not a failure, if the kernel, Triton or the driver refuses a launch.
        _require_working_gpu(arguments.device, error)
        return _row("refused", f"{type(error).__name__}: {_one_line(error)}")
    low, high = timing.ci95_us
    moved = arguments.n_bytes(*inputs) if callable(arguments.n_bytes) else arguments.n_bytes
    return _row(
        "ok",
        median_us=timing.median_us,
        ci_low_us=low,
        ci_high_us=high,
        gb_per_s=timing.gb_per_s(moved),
        n_samples=timing.n_samples,
    )


def _inputs(arguments: _SweepArguments, shape: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    import torch

    device, dtype = arguments.device, arguments.dtype
    generator = torch.Generator(device=device).manual_seed(arguments.seed)
    if arguments.make_inputs is not None:
        return tuple(arguments.make_inputs(shape, generator, device, dtype))
    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator, device=device, dtype=dtype),)
    return (torch.randint(-100, 100, shape, generator=generator, device=device, dtype=dtype),)


def _require_working_gpu(device: str, error: BaseException) -> None:
    """Stop the sweep if the error left the GPU unusable: every later row would fail as well."""
    if not str(device).startswith("cuda"):
        return
    try:
        wait_for_gpu()
    except RuntimeError:
        raise RuntimeError(
            f"sweep: the GPU no longer responds after {type(error).__name__} ({_one_line(error)}); restart "
            "the kernel."
        ) from error
