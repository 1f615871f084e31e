"""Measures points of a `Space` on this GPU: each one is checked, then timed, with facts about its code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from helpers import device
from helpers.widgets.peak import peak_tflop_per_s
from helpers.widgets.space import FACTS, RESULTS, Candidate, Refused, Space

if TYPE_CHECKING:
    import torch


def measure(space: Space, kernel: str, point: Mapping[str, Any], *, budget_s: float = 0.1) -> dict[str, Any]:
    """Check one kernel at one point on this GPU, then time it.

    Returns:
        The row: kernel, point, times in µs with their interval, GB/s, verdict and reason, and the facts
            about the compiled code. If the space counts operations, it has `tflop_per_s` instead of GB/s,
            and `peak_tflop_per_s`, the speed of the fastest torch.matmul of this dtype on this GPU. The
            verdict is "skipped" if the space doesn't time the point.

    Raises:
        helpers.device.Missing: this machine has no GPU.
    """
    import torch

    from helpers.timing.sweeps import sweep

    device.require("gpu")
    shape, dtype = (space.rows(point["n_cols"]), point["n_cols"]), getattr(torch, point["dtype"])
    row = empty_row(space, kernel, point)
    try:
        candidate = space.candidates(kernel, point)
    except Refused as refusal:
        return row | dict.fromkeys(FACTS) | {"verdict": "refused", "reason": str(refusal)}

    if why := space.skipped(kernel, point):
        return row | dict.fromkeys((*FACTS, *RESULTS)) | {"verdict": "skipped", "reason": why}

    (found,) = sweep(
        candidate.run,
        name=kernel,
        shapes=[shape],
        reference=candidate.reference,
        make_inputs=candidate.make_inputs,
        n_bytes=space.n_bytes
        if callable(space.n_bytes)
        else space.n_bytes * shape[0] * shape[1] * dtype.itemsize,
        dtype=dtype,
        budget_s=budget_s,
        tolerance=candidate.tolerance,
    ).to_dict("records")
    facts: dict[str, Any] = {}
    if found["verdict"] != "refused":
        facts = candidate.facts(*inputs_of(candidate, shape, "cuda", dtype))
    found["reason"] = found["reason"].removeprefix(f"{Refused.__name__}: ")
    results = {name: _rounded(found[name]) for name in RESULTS}
    if space.n_flops is not None:
        n_flops = space.n_flops(*inputs_of(candidate, shape, "cuda", dtype))
        results |= _arithmetic(n_flops, results["median_us"], point["dtype"])
    return row | dict.fromkeys(FACTS) | facts | results


def _arithmetic(n_flops: int, median_us: float | None, dtype: str) -> dict[str, float | None]:
    """The columns of a kernel whose operations are counted."""
    speed = None if median_us is None else n_flops / median_us / 1e6
    peak = peak_tflop_per_s(dtype)
    return {"gb_per_s": None, "tflop_per_s": _rounded(speed), "peak_tflop_per_s": _rounded(peak)}


def empty_row(space: Space, kernel: str, point: Mapping[str, Any]) -> dict[str, Any]:
    """The kernel and its point; None for the sliders that it does not depend on."""
    axes = space.axes_of(kernel)
    return {"kernel": kernel, **{axis: point.get(axis) if axis in axes else None for axis in space.axes}}


def inputs_of(
    candidate: Candidate, shape: tuple[int, int], device: str, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    """Inputs of a shape whose values do not matter."""
    import torch

    if candidate.make_inputs is None:
        return (torch.empty(shape, dtype=dtype, device=device),)
    generator = torch.Generator(device=device).manual_seed(0)
    return tuple(candidate.make_inputs(shape, generator, device, dtype))


def _rounded(value: Any) -> Any:
    """Five significant digits, which are more than a measurement has; None for NaN."""
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else float(f"{value:.5g}")


def record(space: Space) -> list[dict[str, Any]]:
    """Every row of a space, measured on this GPU; `make record` stores them."""
    from tqdm.auto import tqdm

    plan = tqdm(list(space.points()), desc=space.record, unit="row", leave=False)
    return [measure(space, kernel, point, budget_s=0.02) for kernel, point in plan]
