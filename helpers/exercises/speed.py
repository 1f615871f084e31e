"""Speed on a GPU: told as per cent of the copy ceiling, never a pass by itself, and above the ceiling a failure."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace

import torch

from helpers import check, device, timing
from helpers.exercises import guard, inputs
from helpers.exercises.hints import HINTS
from helpers.exercises.model import SPEED, Case, Exercise, Outcome, Verdict
from helpers.exercises.plans import SpeedPlan

_ABOVE = 1.05  # of the copy ceiling
_ABOVE_READING = 1.2  # for what hardly writes: memory reads faster than it turns between reading and writing
_BYTES = 256 << 20  # of the first input


def timed_case(plan: SpeedPlan, rng: random.Random) -> Case:
    """The case that is timed: the first input's shape, and a seed for the values."""
    size = getattr(torch, plan.cases.dtypes[0]).itemsize
    n = min(_BYTES, device.gpu_spec().memory_bytes // 64) // size
    shape = plan.shape or ((n,) if plan.cases.ndim == 1 else (n // 4096, 4096))
    return Case("the size that is timed", (list(shape), rng.getrandbits(31)), call=SPEED)


def measure(exercise: Exercise, made: Callable, case: Case) -> Outcome:
    """Compare at the timed size on poisoned outputs, then time. Runs beside the learner's object."""
    plan = exercise.speed
    shape, seed = case.args
    torch.cuda.empty_cache()
    cases, main = plan.cases, plan.cases.dtypes[0]
    if cases.make is None and getattr(torch, main).is_floating_point:
        # Made on the GPU: so many values would take long on the host.
        generator = torch.Generator("cuda").manual_seed(seed)

        def make(shape, rng, dtype, device):
            return torch.randn(tuple(shape), generator=generator, device=device, dtype=torch.float32).to(
                dtype
            )

        cases = replace(cases, make=make)
    maker = inputs.Maker(cases, random.Random(seed), "cuda")
    args = maker.args(maker.values(shape, main))
    tensors = [one for one in args if isinstance(one, torch.Tensor)]
    try:
        with contextlib.nullcontext() if guard.is_compiled(made) else guard.guarded(guard.Blocks()):
            got = made(*args)
        torch.cuda.synchronize()
        right = plan.reference(*args)
        # The reference in the input's own precision: float64 copies of this size would not fit everywhere.
        low, high = check.tolerance_of(got.dtype)
        close = torch.isclose(
            got, right.to(got.dtype), rtol=max(4 * low, 1e-4), atol=4 * high, equal_nan=True
        )
        n_wrong = int((~close).sum())
        if n_wrong:
            return Outcome(facts={"wrong": n_wrong, "of": got.numel()})
        n_bytes = plan.bytes_per_element and plan.bytes_per_element * args[0].numel()
        n_bytes = n_bytes or sum(t.numel() * t.element_size() for t in (*tensors, got))
        written = got.numel() * got.element_size() / n_bytes
        del right, close, got
        t = timing.time_gpu(lambda: made(*args))
        reached = t.gb_per_s(n_bytes)
        ceiling = ceiling_for(reached, written)
    except torch.cuda.OutOfMemoryError:
        return Outcome(facts={"untimed": "the GPU's memory is too small for the size that is timed"})
    except (Exception, SystemExit) as error:
        if isinstance(error, timing.ProfilerBusy):
            return Outcome(facts={"untimed": str(error)})  # no fault of the kernel
        return Outcome(error=f"{type(error).__name__}: {error}", error_type=type(error).__name__)
    return Outcome(
        facts={
            "gb_per_s": reached,
            "fraction": reached / ceiling,
            "written": written,
        }
    )


def ceiling_for(reached: float, written: float) -> float:
    """The copy's GB/s; before a kernel is said to be above it, the copy is measured once more."""
    spec = device.gpu_spec()
    if reached <= limit(written) * spec.copy_gb_per_s:
        return spec.copy_gb_per_s
    return max(spec.copy_gb_per_s, device.measure_copy(spec.memory_bytes))


def limit(written: float) -> float:
    """How many times the copy's speed a kernel may reach whose share of written bytes is `written`."""
    return _ABOVE if written > 0.1 else _ABOVE_READING


def judge_speed(exercise: Exercise, case: Case, outcome: Outcome) -> tuple[Verdict | None, str]:
    """A failing verdict or None, and the text about the speed."""
    shape = tuple(case.args[0])
    label = f"a {shape} input, the size that is timed"

    def fails(what: str, mistake: str) -> tuple[Verdict, str]:
        sentence = f"{exercise.id}, {label}: {what}."
        return Verdict(exercise.id, False, sentence, label, mistake, HINTS.get(mistake, "")), ""

    if outcome.error:
        verdict = Verdict(exercise.id, False, f"{exercise.id}, {label}: {outcome.error}", label, "raises")
        return replace(verdict, hint=HINTS["raises"]), ""
    facts = outcome.facts
    if "untimed" in facts:
        return None, ""
    if facts.get("wrong"):
        return fails(f"{facts['wrong']:,} of {facts['of']:,} elements are wrong", "fast-but-partial")
    share = f"{facts['fraction']:.0%}".replace("%", " %")
    if facts["fraction"] > limit(facts["written"]):
        what = f"{facts['gb_per_s']:,.0f} GB/s is {share} of what a copy reaches on this GPU"
        return fails(
            f"{what}, faster than the memory: it cannot have read and written everything", "above-ceiling"
        )
    return None, f"{share} of the copy ceiling"
