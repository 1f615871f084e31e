"""Checks of single calls: are the results right, in all cases, and when the call returns?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, takewhile

import torch

from workbook.verify.arguments import (
    alike,
    another_draw,
    map_tensors,
    other_constants,
    other_integers,
    other_layouts,
    other_masks,
    other_numbers,
    other_values,
    tensors_of,
)
from workbook.verify.judging import Judge, of_error
from workbook.verify.problem import Case, OtherParameters, Problem
from workbook.verify.suspect import SLOW, Answer, Raised, Suspect
from workbook.verify.verdict import DISHONEST, LIMIT, NOTE, WRONG, Finding

_ENOUGH = 3  # wrong results, after which no more are compared
_UNLIKE = "It doesn't follow its parameters: with others than a new model has, it is wrong."
_SIZES_S = 10.0  # for other values of all sizes; in an interpreter, large ones take long


def results(suspect: Suspect, judge: Judge, cases: Sequence[Case]) -> Iterator[Finding]:
    """Compare its results in every case, into allocations that were poisoned before.

    A case that only has other values than the case before is called with the same tensors. Once it has been
    wrong in three cases, only the benchmark's own tolerance sees the others.
    """
    slot, before, n_wrong = "", None, 0
    for number, case in enumerate(cases):
        is_rewritten = before is not None and alike(before, case)
        try:
            if is_rewritten:
                suspect.write(slot, case.args)
            else:
                slot = f"case {number}"  # in memory of its own, as when the benchmark calls it
                suspect.put(slot, case.args)
            answer = suspect.call(slot, case, poison=True, again=is_rewritten)
            before = None if answer.reformed else case
            yield from _of_answer(judge, case, answer)
            if n_wrong == _ENOUGH:  # a reference can take seconds to be compared
                if not is_rewritten:
                    judge.ask_benchmark(case, answer)
            elif found := judge.judge(case, answer, for_benchmark=not is_rewritten, poisoned=True):
                n_wrong += found.severity == WRONG
                if is_rewritten:
                    found = after_rewrite(suspect, judge, case, found)
                yield replace(found, check="only-some-shapes") if found.severity == LIMIT else found
            elif found := judge.judge_arguments(case, answer):
                yield found
            elif number == 0:
                yield from _settled(suspect, case, answer)
        except Raised as error:
            before = None
            yield of_error(error, case)
            if error.kind == SLOW:
                return
        if number + 1 == len(cases) or before is None or not alike(case, cases[number + 1]):
            suspect.put(slot, ())


def _of_answer(judge: Judge, case: Case, answer: Answer) -> Iterator[Finding]:
    """What one call shows besides its values."""
    if odd := [one for one in answer.types if one]:
        yield Finding(
            "lazy-result", DISHONEST,
            f"It returns {odd[0]} instead of a plain tensor, which can compute later.",
            case.label,
        )  # fmt: skip
    if (wanted := {one.device.type for one in tensors_of(case.args)}) and set(answer.devices) - wanted:
        says = f"It returns tensors on {', '.join(sorted(set(answer.devices)))}, unlike its inputs."
        yield Finding("wrong-result", WRONG, says, case.label)
    permitted = judge.may_change
    if changed := [i for i in answer.changed if i not in permitted]:
        which = ", ".join(f"argument {i}" for i in changed)
        yield Finding("changed-input", WRONG, f"It changes its inputs: {which}.", case.label)
    elif reformed := [i for i in answer.reformed if i not in permitted]:
        which = ", ".join(f"argument {i}" for i in reformed)
        says = f"It gives its inputs another class, other memory, other strides or a gradient: {which}."
        yield Finding("changed-input", WRONG, says, case.label)
    elif any(answer.aliases) and not permitted and not judge.reference_aliases(case):
        says = "Its result shares memory with an input, so that changing one changes the other."
        yield Finding("aliased-output", LIMIT, says, case.label)
    if answer.is_twice and not judge.reference_repeats(case):
        says = "Several of its results share memory, so that changing one changes the other."
        yield Finding("aliased-output", WRONG, says, case.label)
    if any(answer.folded) and not judge.reference_folds(case):
        says = (
            "It doesn't write all elements of its result: several of them are in the same memory, as in a "
            "tensor that was expanded."
        )
        yield Finding("aliased-output", WRONG, says, case.label)


def _settled(suspect: Suspect, case: Case, answer: Answer) -> Iterator[Finding]:
    """See whether it goes on working after it has returned."""
    changed, now = suspect.settle()
    if changed:
        share = _share_changed(answer.results, now)
        yield Finding(
            "late-work", DISHONEST,
            f"Its result changes after the call has returned: {share} of it did within 0.2 s.", case.label,
        )  # fmt: skip


def _share_changed(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> str:
    n = sum(one.numel() for one in before)
    same = sum(int((a == b).sum()) for a, b in zip(before, after, strict=False) if a.shape == b.shape)
    return f"{100 * (n - same) / max(n, 1):.0f} %"


def after_rewrite(suspect: Suspect, judge: Judge, case: Case, found: Finding) -> Finding:
    """What is wrong with a result that doesn't fit the new contents of the same tensors.

    Args:
        found: how it differs.
    """
    suspect.put("new", case.args)
    if judge.judge(case, suspect.call("new", case)):
        return found
    return Finding(
        "stale-result", DISHONEST,
        "It doesn't compute again when the same tensors hold other values: it returns an earlier result.",
        f"called again with the same tensors, {case.label}; with new tensors it is right",
    )  # fmt: skip


def late_results(suspect: Suspect, judge: Judge, case: Case) -> Iterator[Finding]:
    """Whether a result that was wrong when the call returned becomes right a moment later."""
    try:
        suspect.put("late", case.args)
        answer = suspect.call("late", case)
        changed, now = suspect.settle()
    except Raised:
        return
    if changed and now and judge.judge(case, answer) and not judge.judge_results(case, now):
        yield Finding(
            "late-work", DISHONEST,
            "Its result is wrong when the call returns, and becomes right when the clock has stopped.",
            case.label,
        )  # fmt: skip


def values(suspect: Suspect, judge: Judge, case: Case, seed: int) -> Iterator[Finding]:
    """Try other values in the same shapes."""
    variants = other_values(case, seed, ties=not judge.returns_integers(case))
    constants = other_constants(case, seed, judge.may_change)
    integers = other_integers(case, seed, ties=not judge.returns_integers(case))
    cases = chain(variants, constants, integers, other_masks(case, seed), other_numbers(case))
    yield from _variants(suspect, judge, cases, "only-some-values")


def values_of_sizes(suspect: Suspect, judge: Judge, cases: Sequence[Case], seed: int) -> Iterator[Finding]:
    """Try other values in each of several cases whose reference is quick, until the time is up."""
    start = time.monotonic()
    drawn = (another_draw(case, seed) for case in cases if judge.is_quick(case))
    yield from _variants(
        suspect, judge,
        takewhile(lambda _: time.monotonic() - start < _SIZES_S, (one for one in drawn if one)),
        "only-some-values",
    )  # fmt: skip


def layouts(suspect: Suspect, judge: Judge, case: Case) -> Iterator[Finding]:
    """Try tensors that aren't contiguous or aligned."""
    yield from _variants(suspect, judge, other_layouts(case), "only-some-layouts")


def _variants(suspect: Suspect, judge: Judge, cases: Iterator[Case], name: str) -> Iterator[Finding]:
    n_wrong = 0
    for case in cases:
        if n_wrong == _ENOUGH:
            return
        if not judge.can_judge(case):
            continue
        try:
            suspect.put("variant", case.args)
            answer = suspect.call("variant", case)
            found = judge.judge(case, answer)
        except Raised as error:
            yield of_error(error, case)
            continue
        if found:
            severity = LIMIT if judge.is_nearly_right(case, answer) else found.severity
            n_wrong += severity == WRONG
            yield Finding(name, severity, found.says, found.evidence)


def parameters(suspect: Suspect, judge: Judge, problem: Problem, case: Case, seed: int) -> Iterator[Finding]:
    """Construct it with other parameters than a new model has, and then again with the reference's."""
    try:
        if suspect.is_seeded:
            yield from _other_seed(suspect, judge, problem, case, seed)
        yield from _given_parameters(suspect, judge, problem, case, seed)
        yield from _larger_parameters(suspect, judge, problem, case)
        suspect.load()
    except Raised as error:
        yield of_error(error, case)


def _other_seed(suspect: Suspect, judge: Judge, problem: Problem, case: Case, seed: int) -> Iterator[Finding]:
    """Let it make its parameters with another seed, as the reference does."""
    seed += seed == problem.own_seed
    new = problem.reseeded(seed) if problem.reseeded else None
    if new is None:
        return
    other = judge.with_reference(new.reference)
    if not other.can_judge(case):
        return
    suspect.load(seed=seed)
    suspect.put("parameters", case.args)
    found = other.judge(
        replace(case, label=f"{case.label}, parameters of another seed"), suspect.call("parameters", case)
    )
    if found:
        yield Finding("only-some-values", WRONG, f"{_UNLIKE} {found.says}", found.evidence)


def _given_parameters(
    suspect: Suspect, judge: Judge, problem: Problem, case: Case, seed: int
) -> Iterator[Finding]:
    """Give it other parameters: only constant ones, such as zeros, if it makes the others from the seed."""
    only_constants = suspect.is_seeded
    new = problem.with_parameters(seed, False, only_constants) if problem.with_parameters else None
    if new is None or not (other := judge.with_reference(new.reference)).can_judge(case):
        return
    is_named = has_state = suspect.load(new.state)
    found = _with_other_parameters(suspect, other, case) if is_named else None
    yield from _buffers(suspect, judge, new, case) if is_named else ()
    if not is_named or found:  # a part of it may compute something from parameters that it has just made
        alike = problem.with_parameters(seed, True, only_constants)
        other = judge.with_reference(alike.reference)
        has_state = other.can_judge(case) and suspect.load(alike.state, recognize=True)
        if has_state:
            found = _with_other_parameters(suspect, other, case)
    if not (is_named or has_state):
        yield _untried(suspect, judge, problem, new.n_parameters, case)
    elif found:
        # A constant that is only recognized by its number may be derived from another one.
        severity = LIMIT if only_constants and not is_named else WRONG
        yield Finding("only-some-values", severity, f"{_UNLIKE} {found.says}", found.evidence)


def _with_other_parameters(suspect: Suspect, judge: Judge, case: Case) -> Finding | None:
    suspect.put("parameters", case.args)
    return judge.judge(
        replace(case, label=f"{case.label}, other parameters"), suspect.call("parameters", case)
    )


def _with_other_constants(suspect: Suspect, judge: Judge, problem: Problem, case: Case) -> Finding | None:
    """What is wrong if the parts of its model begin with other constants, as the reference's then do."""
    new = problem.with_constants() if problem.with_constants else None
    if new is None or not (other := judge.with_reference(new.reference)).can_judge(case):
        return None
    suspect.load(new.state, recognize=True, constants=True)
    return _with_other_parameters(suspect, other, case)


def _buffers(suspect: Suspect, judge: Judge, new: OtherParameters, case: Case) -> Iterator[Finding]:
    """Whether its one call has changed the model's buffers as the reference changes its own."""
    after = new.buffers(*map_tensors(torch.clone, case.args))
    known = [(name, one) for name, one in after.items() if name in new.state]
    changed = [name for name, one in known if not torch.equal(one, new.state[name])]
    of_changed = judge.with_reference(lambda *args: tuple(new.buffers(*args)[name] for name in changed))
    if not changed or not of_changed.can_judge(case):
        return
    own = suspect.buffers()
    if wrong := of_changed.judge_results(case, [own[name] for name in changed if name in own]):
        names = ", ".join(changed[:3])
        says = f"A call doesn't update its model's buffers ({names}) as the reference does. {wrong.says}"
        yield Finding("skipped-work", WRONG, says, wrong.evidence)


def _larger_parameters(suspect: Suspect, judge: Judge, problem: Problem, case: Case) -> Iterator[Finding]:
    new = problem.with_larger_parameters() if problem.with_larger_parameters else None
    if new is None or not (other := judge.with_reference(new.reference)).can_judge(case):
        return
    larger = replace(case, label=f"{case.label}, larger parameters")
    found, severity = None, WRONG
    # The second time, because a part of it may compute something from parameters that it has just made.
    for recognize in (False, True):
        if not suspect.load(new.state, recognize=recognize):
            break
        suspect.put("parameters", case.args)
        answer = suspect.call("parameters", larger)
        if (found := other.judge(larger, answer)) is None:
            return
        severity = LIMIT if other.is_nearly_right(larger, answer) else WRONG
    if found:
        says = f"It is wrong if its parameters are larger than those of a new model. {found.says}"
        yield Finding("only-some-values", severity, says, found.evidence)


def _untried(suspect: Suspect, judge: Judge, problem: Problem, n_reference: int, case: Case) -> Finding:
    """What to say about a model whose parameters aren't recognized as the reference's."""
    n = suspect.n_parameters
    if n < n_reference:
        says = (
            f"It has {n:,} of the reference's {n_reference:,} parameters, so that it may be right for those "
            "of a new model only."
        )
        found = _with_other_constants(suspect, judge, problem, case)
        if found is None:
            return Finding("only-some-values", LIMIT, says, case.label)
        says = f"It has {n:,} of the reference's {n_reference:,} parameters. {_UNLIKE} {found.says}"
        return Finding("only-some-values", WRONG, says, found.evidence)
    says = "Its parameters are named or made otherwise than the reference's, so no other ones were tried."
    return Finding("only-some-values", NOTE, says, case.label)


def executed(suspect: Suspect, judge: Judge, case: Case) -> Iterator[Finding]:
    """Whether it computes the same when its text is executed, so that it has no file and no module."""
    try:
        suspect.execute()
        suspect.put("executed", case.args)
        wrong = judge.judge(case, suspect.call("executed", case))
    except Raised:  # Triton and others need the file
        return
    if wrong:
        says = (
            "It computes something else when its text is executed, as some benchmarks do, than when its file "
            f"is imported. {wrong.says}"
        )
        yield Finding("peeks", DISHONEST, says, wrong.evidence)
