"""How fast a candidate is, compared with its reference and with what the GPU's memory permits."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from helpers import device
from helpers.timing import TimingError, time_gpu
from helpers.timing.clock import now_s
from helpers.timing.cupti import Flush
from helpers.timing.overhead import event_times
from workbook.verify.arguments import map_tensors, n_bytes, overwrite, tensors_of
from workbook.verify.full_size import change, difference, make_inputs, sampled
from workbook.verify.judging import NO_MEMORY, Judge, lacks_memory
from workbook.verify.problem import Case, FullSize, Problem
from workbook.verify.suspect import Raised, Suspect
from workbook.verify.verdict import DISHONEST, NOTE, WRONG, Finding, Speed

_BUDGET_S = 0.5
_SLOW_S = 0.1  # a reference in Python loops may launch ten thousand kernels, each of which CUPTI records
_N_SLOW = 6  # samples: the median is between the smallest and the largest with a probability of 97 %
_NOTHING = "launched nothing"
# What the timer's errors mean.
_REFUSALS = {
    "on another stream": ("other-stream", "It computes on a stream that the current one doesn't wait for"),
    "sets part of the L2": (
        "persisting-l2",
        "It keeps its inputs in the L2 cache while the cache is flushed",
    ),
    _NOTHING: ("skipped-work", "It launches nothing when it is called again"),
}


class _Reference(NamedTuple):
    """The median of a reference's time in µs, its interval, and whether gaps between its kernels count."""

    median_us: float
    low_us: float
    high_us: float
    has_gaps: bool

    def notes(self, label: str) -> list[Finding]:
        """What to say about it."""
        says = (
            f"A call of the reference takes {self.median_us / 1e6:.1f} s, so it was timed between CUDA "
            "events. The gaps between its kernels count, unlike those of the candidate."
        )
        return [Finding("timing", NOTE, says, label)] if self.has_gaps else []


def measure(
    suspect: Suspect, judge: Judge, problem: Problem, groups: Sequence[Sequence[Case]]
) -> tuple[list[Finding], list[Speed]]:
    """Time the candidate and its reference in each of the benchmark's shapes.

    The inputs change before each call, and the result of a timed call is compared, too, so that a candidate
    that recognizes its inputs or skips work gains nothing.

    Args:
        groups: for each shape, cases that differ only in their values.
    """
    findings: list[Finding] = []
    speeds: list[Speed] = []
    for group in groups:
        case = group[0]
        try:
            suspect.put("timed", case.args)
            raw = suspect.time("timed", case, [one.args for one in group], _BUDGET_S)
        except Raised as error:
            findings.append(Finding("raises", NOTE, f"It was not timed: {error}.", case.label))
            continue
        if "refused" in raw:
            refused = str(raw["refused"])
            is_view = _NOTHING in refused and _launches_nothing(problem, group)
            says = "There is nothing to time: the reference launches nothing either."
            view = Finding("timing", NOTE, says, case.label)
            findings.append(view if is_view else _refused(refused, case))
            continue
        last = group[raw["turn"]]
        if found := judge.judge_results(last, raw["results"]):
            says = f"It computes something else when it is timed. {found.says}"
            findings.append(Finding("skipped-work", DISHONEST, says, found.evidence))
            continue
        findings += [Finding("timing", NOTE, note, case.label) for note in raw["notes"]]
        try:
            reference = _time_with(problem, group)
        except TimingError as error:
            findings.append(Finding("timing", NOTE, f"The reference was not timed: {error}", case.label))
            continue
        findings += reference.notes(case.label)
        bound_us = _bound_us(inputs_of(problem, case), n_bytes([problem.reference(*case.args)]))
        speeds.append(_compared(case.label, raw, reference, bound_us))
        findings += _beyond_the_bound(speeds[-1], case.args)
    return findings, speeds


def _beyond_the_bound(speed: Speed, args: tuple[Any, ...]) -> list[Finding]:
    if not speed.bound_us or speed.ci95_us[1] >= speed.bound_us:
        return []
    says = (
        f"It claims {speed.median_us:,.1f} µs, but this GPU's memory needs at least {speed.bound_us:,.1f} µs "
        "to move the inputs and the outputs."
    )
    gathers = any(not one.is_floating_point() for one in tensors_of(args))
    severity = NOTE if gathers else DISHONEST  # indices may select a part of another input
    return [Finding("beyond-the-bound", severity, says, speed.case)]


def measure_full_size(
    suspect: Suspect, full: FullSize, seed: int, *, tf32: bool
) -> tuple[list[Finding], list[Speed]]:
    """Time the candidate at the benchmark's own sizes, and compare a sample of its last result.

    Args:
        suspect: its process, which is closed at the end.
        seed: makes the inputs, and chooses the sample.
        tf32: whether float32 may be computed in TF32.
    """
    case = Case(full.label, ())
    try:
        suspect.load_as(full.candidate)
        suspect.make("timed", full.source, seed)
        raw = suspect.time("timed", case, [], _BUDGET_S)
        got = () if "refused" in raw else suspect.sample(seed + 1)
    except Raised as error:
        if lacks_memory(str(error)):
            return [Finding("raises", NOTE, NO_MEMORY, case.label)], []
        return [Finding("raises", WRONG, f"It fails at the benchmark's own sizes: {error}.", case.label)], []
    finally:
        suspect.close()  # it has filled the GPU's memory
    if "refused" in raw:
        return [_refused(str(raw["refused"]), case)], []
    findings = [Finding("timing", NOTE, note, case.label) for note in raw["notes"]]
    args = make_inputs(full.source, seed)
    change(args, raw["turn"])
    own, n_output_bytes = _sampled_results(full.reference, args, seed + 1)
    try:
        wide, _ = _sampled_results(full.reference, map_tensors(_widened, args), seed + 1)
    except torch.OutOfMemoryError:
        says = "The reference needs too much memory in float64, so the result was not compared or timed."
        return [*findings, Finding("timing", NOTE, says, case.label)], []
    if says := difference(got, own, wide, tf32=tf32):
        return [*findings, Finding("wrong-result", WRONG, says, f"{case.label}, seed {seed}")], []
    turns = itertools.count()
    reference = _time_reference(lambda: full.reference(*args), lambda: change(args, next(turns)))
    speed = _compared(case.label, raw, reference, _bound_us(args, n_output_bytes))
    findings += reference.notes(case.label)
    return [*findings, *_beyond_the_bound(speed, args)], [speed]


def _sampled_results(
    reference: Callable[..., Any], args: tuple[Any, ...], seed: int
) -> tuple[list[torch.Tensor], int]:
    """Samples of a reference's results, and the bytes of the results."""
    results = tensors_of(reference(*args))
    return [sampled(one, seed) for one in results], n_bytes(results)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _refused(reason: str, case: Case) -> Finding:
    for words, (check, says) in _REFUSALS.items():
        if words in reason:
            return Finding(check, DISHONEST, f"{says}.", f"{case.label}: {reason}"[:400])
    return Finding("timing", NOTE, f"It was not timed: {reason}"[:400], case.label)


def inputs_of(problem: Problem, case: Case) -> list[torch.Tensor]:
    """The tensors that a call must read: all but those for results."""
    return [one for i, one in enumerate(tensors_of(case.args)) if i not in problem.unread]


def _compared(label: str, raw: dict[str, Any], reference: _Reference, bound_us: float) -> Speed:
    median, low, high = (raw[name] for name in ("median_us", "low_us", "high_us"))
    return Speed(
        case=label,
        median_us=median,
        ci95_us=(low, high),
        reference_us=reference.median_us,
        speedup=reference.median_us / median,
        speedup_ci95=(reference.low_us / high, reference.high_us / low),
        bound_us=bound_us,
        kernels=tuple(raw["kernels"]),
    )


def _time_with(problem: Problem, group: Sequence[Case]) -> _Reference:
    """Time the reference as the candidate was timed: with other contents before each call."""
    function = problem.timed or problem.reference
    args = map_tensors(torch.clone, group[0].args)
    turns = itertools.cycle([*group[1:], group[0]])
    return _time_reference(lambda: function(*args), lambda: overwrite(args, next(turns).args))


def _time_reference(function: Callable[[], Any], before: Callable[[], Any]) -> _Reference:
    """Time a reference. If a call takes long, it is called only a few times, between CUDA events."""
    start = now_s()
    function()  # not for the first time, because the candidate's result was compared
    torch.cuda.synchronize()
    if now_s() - start > _SLOW_S:
        ((times,), _) = event_times([function], Flush("cold", before), _N_SLOW)
        return _Reference(statistics.median(times), min(times), max(times), True)
    timing = time_gpu(function, before=before, budget_s=_BUDGET_S)
    return _Reference(timing.median_us, *timing.ci95_us, False)


def _launches_nothing(problem: Problem, group: Sequence[Case]) -> bool:
    """Whether the reference launches nothing, because it returns a view of its input."""
    try:
        _time_with(problem, group)
    except TimingError as error:
        return _NOTHING in str(error)
    return False


def _bound_us(inputs: Sequence[Any], n_output_bytes: int) -> float:
    """The least time to move the inputs, and what of the outputs doesn't fit into the L2 cache; 0 if the
    GPU's peak bandwidth isn't known.
    """
    gpu = device.gpu_spec()
    moved = n_bytes(inputs) + max(0, n_output_bytes - gpu.l2_bytes)
    return moved / gpu.peak_gb_per_s / 1e3 if gpu.peak_gb_per_s else 0.0
