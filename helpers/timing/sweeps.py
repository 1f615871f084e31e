"""Every combination of launch parameters as a table of checked, timed rows.

A row is timed only after the kernel has been checked at that very point and size, on poisoned output memory. A point
where the kernel is wrong, or that the kernel or the GPU refuses, stays in the table with its reason and without a time.
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
class _Asked:
    """What a sweep was asked for, the same for every row; the fields are `sweep`'s arguments."""

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
        kernel: called as `kernel(*inputs, **point)`; returns its output tensor. A function from torch.compile is given as
            it is: wrapped in another, the check's poisoned allocations would make torch run it uncompiled from then on.
        shapes: input shapes, such as `[(4096, 256), (4096, 12672)]`.
        reference: what the kernel must compute; it is given the inputs in float64.
        n_bytes: the bytes that the operation must move: a number, or a function of the inputs, such as
            `lambda x: 2 * x.nbytes`.
        make_inputs: `make_inputs(shape, generator, device, dtype)` gives the kernel's inputs; by default one tensor
            of normally distributed numbers.
        dtype: of the inputs; float32 by default.
        l2: the state of the L2 cache before each call, "cold" or another that `timing.time_gpu` knows.
        budget_s: seconds of timing a row.
        device: where the inputs are made; the GPU by default.
        seed: of the inputs that are timed. The check draws its own.
        progress: show a progress bar.
        timer: instead of `timing.time_gpu`, called as `timer(fn, l2=l2, budget_s=budget_s)`.
        tolerance: (relative, absolute) of the check, instead of the dtype's own.
        name: what the kernel is called in messages, instead of its own name.
        **axes: each launch parameter with the values to try: `block_size=[256, 1024], num_warps=[4, 8]`.

    Returns:
        A row for each shape and point: the shape (`n_rows` and `n_cols`, or `n_elements`, or `shape`), the launch
        parameters, `median_us`, `ci_low_us`, `ci_high_us`, `gb_per_s` (decimal), `n_samples`, `verdict` ("ok",
        "wrong" or "refused") and `reason`. The times of a row that is not "ok" are NaN.

    Raises:
        ValueError: no shapes, an axis without values, or an axis that has the name of a result column.
        helpers.device.Missing: a right kernel is to be timed and there is no GPU (and no `timer`).
        RuntimeError: the GPU stopped working (an illegal access poisons the process), so later rows would be noise.
    """
    import pandas as pd
    import torch

    shapes = [tuple(s) for s in shapes]
    axes = {name: list(values) for name, values in axes.items()}
    if not shapes:
        raise ValueError("sweep: shapes is empty; give at least one, such as [(4096, 1024)].")
    for axis, values in axes.items():
        if not values:
            raise ValueError(f"sweep: {axis} has no values; give a list of at least one.")
        if axis in _RESULTS or axis in ("n_rows", "n_cols", "n_elements", "shape"):
            raise ValueError(
                f"sweep: {axis!r} is a column of the result; rename that parameter of the kernel."
            )
    if timer is None:
        from helpers.timing.gpu import time_gpu as timer
    asked = _Asked(
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
    rows = [{**_shape_columns(shape), **point, **_measure(asked, shape, point)} for shape, point in plan]
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


def _measure(asked: _Asked, shape: tuple[int, ...], point: dict[str, Any]) -> dict[str, Any]:
    """The results of one row: checked, then timed."""
    from helpers import check
    from helpers.device import Missing

    at_point = functools.partial(asked.kernel, **point) if point else asked.kernel
    try:
        check.assert_matches(
            at_point,
            asked.reference,
            shapes=[shape],
            dtype=asked.dtype,
            device=asked.device,
            make_inputs=asked.make_inputs,
            name=asked.name,
            tolerance=asked.tolerance,
        )
        inputs = _inputs(asked, shape)
        timing = asked.timer(lambda: at_point(*inputs), l2=asked.l2, budget_s=asked.budget_s)
    except check.Mismatch as error:
        return _row("wrong", _one_line(error))
    except Missing:
        # without a GPU nothing can be timed: that is no property of this row
        raise
    except Exception as error:
        # what the kernel, Triton or the driver refuses to launch is a result, not an accident
        _require_living_gpu(asked.device, error)
        return _row("refused", f"{type(error).__name__}: {_one_line(error)}")
    low, high = timing.ci95_us
    moved = asked.n_bytes(*inputs) if callable(asked.n_bytes) else asked.n_bytes
    return _row(
        "ok",
        median_us=timing.median_us,
        ci_low_us=low,
        ci_high_us=high,
        gb_per_s=timing.gb_per_s(moved),
        n_samples=timing.n_samples,
    )


def _inputs(asked: _Asked, shape: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    import torch

    device, dtype = asked.device, asked.dtype
    generator = torch.Generator(device=device).manual_seed(asked.seed)
    if asked.make_inputs is not None:
        return tuple(asked.make_inputs(shape, generator, device, dtype))
    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator, device=device, dtype=dtype),)
    return (torch.randint(-100, 100, shape, generator=generator, device=device, dtype=dtype),)


def _require_living_gpu(device: str, error: BaseException) -> None:
    """Stop the sweep where the error has poisoned the process: every later row would fail for the same reason."""
    if not str(device).startswith("cuda"):
        return
    try:
        wait_for_gpu()
    except RuntimeError:
        raise RuntimeError(
            f"sweep: the GPU no longer answers after {type(error).__name__} ({_one_line(error)}); restart the kernel."
        ) from error
