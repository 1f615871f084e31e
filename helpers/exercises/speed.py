"""Speed on a GPU, reported as a percentage of the copy ceiling. A kernel fails if it is above the ceiling or
below what the exercise requires.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch

from helpers import check, device, timing
from helpers.exercises import guard, inputs
from helpers.exercises.hints import HINTS
from helpers.exercises.model import SPEED, Case, Exercise, Outcome, Verdict
from helpers.exercises.plans import SpeedPlan

_BYTES = 256 << 20  # of the first input
_TURN = 4097  # elements that the contents move before a timed call


def timed_case(plan: SpeedPlan, rng: random.Random) -> Case:
    """The case that is timed: the arguments, on the GPU."""
    main = plan.cases.dtypes[0]
    size = getattr(torch, main).itemsize
    n = min(_BYTES, device.gpu_spec().memory_bytes // 64) // size
    shape, seed = plan.shape or (n // 4096, 4096), rng.getrandbits(31)
    if getattr(torch, main).is_floating_point:
        # Made on the GPU, because this many values would take long on the host.
        generator = torch.Generator("cuda").manual_seed(seed)
        x = torch.randn(tuple(shape), generator=generator, device="cuda").to(getattr(torch, main))
    else:
        x = inputs.values(random.Random(seed), shape, main, "cuda")
    args = inputs.kernel_args(plan.cases, x, random.Random(seed))
    return Case("the size that is timed", args, call=SPEED)


def measure(made: Callable, args: tuple) -> Outcome:
    """Time the learner's object on the GPU, each call with other contents. Runs in the learner's process, and
    doesn't know what is right.

    Returns:
        The result for the last call's contents, `n_rotations`, how often they were rotated before it, and the
        median.
    """
    torch.cuda.empty_cache()
    args = (args[0].clone(), *args[1:])  # a copy, because the judge rotates the original contents
    n_rotations = 0

    def rotate_contents() -> None:
        nonlocal n_rotations
        args[0].copy_(rotated(args[0], 1))
        n_rotations += 1

    try:
        with guard.guarded(guard.Blocks()):
            made(*args)
        torch.cuda.synchronize()
        median_us = timing.time_gpu(lambda: made(*args), before=rotate_contents).median_us
        rotate_contents()
        with guard.guarded(guard.Blocks()):
            got = made(*args)
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        return Outcome(facts={"untimed": "the GPU's memory is too small for the size that is timed"})
    except (Exception, SystemExit) as error:
        if isinstance(error, timing.ProfilerBusy):
            return Outcome(facts={"untimed": str(error)})  # this isn't the kernel's fault
        return Outcome(error=f"{type(error).__name__}: {error}", error_type=type(error).__name__)
    return Outcome(got, facts={"us": median_us, "n_rotations": n_rotations})


def rotated(x: torch.Tensor, times: int) -> torch.Tensor:
    """A contiguous tensor's contents after that many rotations: the same values in other places."""
    return x.reshape(-1).roll(times * _TURN % max(x.numel(), 1)).view_as(x)


def ceiling_for(gb_per_s: float, written: float) -> float:
    """The copy's GB/s; the copy is measured once more before a kernel is reported to be above it."""
    spec = device.gpu_spec()
    if gb_per_s <= limit(written) * spec.copy_gb_per_s:
        return spec.copy_gb_per_s
    return max(spec.copy_gb_per_s, device.measure_copy(spec.memory_bytes))


def limit(written: float) -> float:
    """How many times the copy's speed a kernel may reach if the fraction `written` of its bytes is written:
    reading alone is faster.
    """
    return 1.05 if written > 0.1 else 1.2


def judge_speed(
    exercise: Exercise, case: Case, outcome: Outcome, claimed: bool = False
) -> tuple[Verdict | None, str]:
    """A failing verdict or None, and the text about the speed.

    Args:
        exercise, case, outcome: what was timed, and its outcome. Bytes, ceiling and the right result are
            computed here.
        claimed: whether the time was taken in a process that the judge can't trust.
    """
    plan, args = exercise.speed, case.args
    label = f"a {tuple(args[0].shape)} input, the size that is timed"

    def fails(what: str, mistake: str) -> tuple[Verdict, str]:
        sentence = f"{exercise.id}, {label}: {what}."
        return Verdict(exercise.id, False, sentence, label, mistake, HINTS.get(mistake, "")), ""

    if outcome.error:
        return fails(outcome.error.removesuffix("."), "raises")
    if "untimed" in outcome.facts:
        return None, ""
    us, n_rotations, got = outcome.facts.get("us"), outcome.facts.get("n_rotations"), outcome.value
    is_time = type(us) in (int, float) and 0 < us < math.inf
    if not is_time or type(n_rotations) is not int or n_rotations < 1:
        return fails(f"{us!r} µs for calls on {n_rotations!r} contents is not a valid time", "no-time")
    args = (rotated(args[0], n_rotations), *args[1:])
    right = plan.reference(*args)
    if not isinstance(got, torch.Tensor) or got.shape != right.shape:
        return fails("the shape of the result is wrong, although it is right at smaller sizes", "wrong-shape")
    # The reference in the input's own precision: float64 copies of this size would not fit everywhere.
    low, high = check.tolerance_of(got.dtype)
    close = torch.isclose(got, right.to(got), rtol=max(4 * low, 1e-4), atol=4 * high, equal_nan=True)
    if n_wrong := int((~close).sum()):
        return fails(f"{n_wrong:,} of {got.numel():,} elements are wrong", "fast-but-partial")
    tensors = [one for one in args if isinstance(one, torch.Tensor)]
    n_bytes = plan.bytes_per_element and plan.bytes_per_element * args[0].numel()
    n_bytes = n_bytes or sum(t.numel() * t.element_size() for t in (*tensors, got))
    written, gb_per_s = got.numel() * got.element_size() / n_bytes, n_bytes / us / 1e3
    fraction = gb_per_s / ceiling_for(gb_per_s, written)
    share = f"{fraction:.0%}".replace("%", " %")
    what = f"{gb_per_s:,.0f} GB/s is {share} of what a copy reaches on this GPU"
    if fraction > limit(written):
        what += ", which is faster than the memory, so it can't have read and written everything"
        return fails(what, "above-ceiling")
    if fraction < plan.at_least:
        return fails(
            f"the result is right, but {what}; at least {100 * plan.at_least:.0f} % is required", "too-slow"
        )
    return None, f"{'claimed: ' * claimed}{share} of the copy ceiling"
