"""Judge a candidate at the benchmark's own sizes, where inputs and results are too large to be sent.

Both processes make the same inputs by themselves. Before each timed call, some of their elements change, in a
way that the verifier can repeat; afterwards it asks for a sample of the last result. At places that the
candidate couldn't know, the sample must be as close to the reference in float64 as the reference itself is.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch

from workbook.verify.arguments import map_tensors, tensors_of

_N_CHANGED = 1 << 16  # elements of each input that change between calls
_N_BLOCKS, _WIDTH = 1024, 1024  # elements of a sample
# How many times larger than the reference's own error a candidate's may be: it may add in another order.
_WORSE = 8


def make_inputs(source: str, seed: int) -> tuple[Any, ...]:
    """What `get_inputs()` of a problem's source returns, on the GPU if there is one."""
    module = types.ModuleType("inputs")
    exec(compile(source, "<inputs>", "exec"), module.__dict__)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    with torch.device(device):
        args = tuple(module.get_inputs())
    return map_tensors(lambda one: one.to(device), args)


def change(args: Any, turn: int) -> None:
    """Copy other elements over some that are spread evenly; only the last turn matters for the contents."""
    for tensor in tensors_of(args):
        if not tensor.is_floating_point() or not tensor.is_contiguous() or tensor.numel() < 2:
            continue
        flat = tensor.detach().view(-1)
        half = flat.numel() // 2
        n = min(half, _N_CHANGED)
        generator = torch.Generator(flat.device).manual_seed(turn)
        chosen = 2 * torch.randint(half, (n,), generator=generator, device=flat.device) + 1
        flat[: 2 * n * (half // n) : 2 * (half // n)] = flat[chosen]


def sampled(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """About a million of a tensor's elements, in short runs at random places and at the end; all if there
    are no more.
    """
    flat = tensor.detach().reshape(-1)
    if flat.numel() <= _N_BLOCKS * _WIDTH:
        return flat.cpu()
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(flat.numel() - _WIDTH, (_N_BLOCKS, 1), generator=generator)
    starts[-1] = flat.numel() - _WIDTH  # where the last threads work, which often have less to do
    places = (starts + torch.arange(_WIDTH)).to(flat.device)
    return flat[places].reshape(-1).cpu()


def difference(
    got: Sequence[torch.Tensor], own: Sequence[torch.Tensor], wide: Sequence[torch.Tensor], *, tf32: bool
) -> str:
    """How the samples of a candidate's results differ from the reference's; "" if they don't.

    Args:
        got: samples of the candidate's results.
        own: those of the reference in the inputs' dtype.
        wide: those of the reference in float64.
        tf32: whether float32 may be computed in TF32.
    """
    if [(one.shape, one.dtype) for one in got] != [(one.shape, one.dtype) for one in own]:
        return "It returns another shape or dtype."
    for result, ours, exact in zip(got, own, wide, strict=True):
        if not result.is_floating_point():
            n_other = int((result != ours).sum())
            if n_other > 1e-4 * ours.numel():
                return f"{n_other:,} of {ours.numel():,} sampled elements are different."
            continue
        finite = exact.isfinite() & ours.isfinite()
        if bool((result.isfinite() != ours.isfinite()).any()):
            return "Other elements than the reference's are infinite or NaN."
        if says := _too_far(
            result[finite].double(),
            ours[finite].double(),
            exact[finite].double(),
            2.0**-11 if tf32 and ours.dtype == torch.float32 else torch.finfo(ours.dtype).eps,
        ):
            return says
    return ""


def _too_far(got: torch.Tensor, own: torch.Tensor, exact: torch.Tensor, eps: float) -> str:
    if not exact.numel():
        return ""
    error, own_error = (got - exact).abs(), (own - exact).abs()
    mean = float(error.square().mean().sqrt())
    allowed = _WORSE * float(own_error.square().mean().sqrt()) + eps * float(exact.square().mean().sqrt())
    if mean > allowed:
        return (
            f"The error's root mean square is {mean:.2g} in a sample; the reference's permits {allowed:.2g}."
        )
    largest = error - _WORSE * own_error.max() - _WORSE * eps * exact.abs()
    if bool((largest > 0).any()):
        worst = int(largest.argmax())
        return f"A sampled element is {float(got[worst]):.9g} instead of {float(exact[worst]):.9g}."
    return ""
