"""The checks: each makes some calls and yields what it finds."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

import torch

from workbook.verify.arguments import (
    map_tensors,
    other_constants,
    other_layouts,
    other_values,
    slightly_changed,
    tensors_of,
)
from workbook.verify.judging import Judge
from workbook.verify.problem import BEYOND, Case, OtherParameters, Problem
from workbook.verify.suspect import Answer, Raised, Suspect
from workbook.verify.verdict import DISHONEST, LIMIT, NOTE, WRONG, Finding

_N_REPEATED = 20  # calls in a row, to see what accumulates
_N_ALTERNATED = 20_000  # calls without a pause, unless the time ends first
_ALTERNATED_S = 1.0, 4.0  # seconds of computing, and altogether, after which they end
_N_SAME = 100  # calls with the same values, before it is seen whether they do less
_SAME_S = 0.5, 2.0
_N_COMPARED = 9  # calls that are compared with the first one
_COMPARED_S = 3.0
# Changes of these settings are worth knowing, but they neither make results wrong nor timings better.
_HARMLESS_STATE = (
    "torch.is_grad_enabled",
    "the state of Python's random",
    "gc.isenabled",
    "the working directory",
)
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "mv", "dot")
_SHARED = "It returns the same memory from several calls, so that one overwrites the result of another."
# Helpers of torch and Python that stay when their work is done, by a part of their command.
_HELPERS = ("torch/_inductor/compile_worker", "multiprocessing.resource_tracker")
# Operators that only move, allocate or name memory.
_TRIVIAL = (
    "empty", "view", "reshape", "clone", "copy", "detach", "transpose", "permute", "expand", "t.default",
    "unsqueeze", "squeeze", "as_strided", "slice", "select", "zeros", "ones", "full", "fill", "_to_copy",
    "alias", "lift_fresh", "unbind", "split", "new_", "stack", "cat", "contiguous", "arange",
)  # fmt: skip


def _raised(error: Raised, case: Case) -> Finding:
    severity = LIMIT if case.role == BEYOND else WRONG
    return Finding("raises", severity, f"It fails: {error}.", case.label)


def results(suspect: Suspect, judge: Judge, cases: Sequence[Case]) -> Iterator[Finding]:
    """Compare its results in every case, into allocations that were poisoned before."""
    for number, case in enumerate(cases):
        slot = f"case {number}"  # in memory of its own, as when the benchmark calls it
        try:
            suspect.put(slot, case.args)
            answer = suspect.call(slot, case, poison=True)
            yield from _of_answer(judge, case, answer)
            if found := judge.judge(case, answer, for_benchmark=True, poisoned=True):
                yield replace(found, check="only-some-shapes") if found.severity == LIMIT else found
            elif number == 0:
                yield from _settled(suspect, case, answer)
        except Raised as error:
            yield _raised(error, case)
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


def stale(suspect: Suspect, judge: Judge, case: Case, others: Sequence[Case], seed: int) -> Iterator[Finding]:
    """Call it with the same tensors, whose contents change between the calls: completely, or a little.

    Args:
        others: cases of the same shapes.
    """
    last = others[-1]
    try:
        suspect.put("same", case.args)
        suspect.call("same", case)
        for number, other in enumerate([last, case, *slightly_changed(case, seed), last]):
            suspect.write("same", other.args)
            answer = suspect.call("same", other)
            if judge.judge(other, answer):
                yield _stale(suspect, judge, other, number)
                return
    except Raised as error:
        yield _raised(error, case)


def _stale(suspect: Suspect, judge: Judge, case: Case, number: int) -> Finding:
    """It was wrong after a rewrite: is it right with new tensors?"""
    suspect.put("new", case.args)
    if found := judge.judge(case, suspect.call("new", case)):
        return found
    return Finding(
        "stale-result", DISHONEST,
        "It doesn't compute again when the same tensors hold other values: it returns an earlier result.",
        f"call {number + 2} with the same tensors, {case.label}; with new tensors it is right",
    )  # fmt: skip


def values(suspect: Suspect, judge: Judge, case: Case, seed: int) -> Iterator[Finding]:
    """Try other values in the same shapes."""
    variants = other_values(case, seed, ties=not judge.returns_integers(case))
    constants = other_constants(case, seed, judge.may_change)
    yield from _variants(suspect, judge, chain(variants, constants), "only-some-values")


def layouts(suspect: Suspect, judge: Judge, case: Case) -> Iterator[Finding]:
    """Try tensors that aren't contiguous or aligned."""
    yield from _variants(suspect, judge, other_layouts(case), "only-some-layouts")


def _variants(suspect: Suspect, judge: Judge, cases: Iterator[Case], name: str) -> Iterator[Finding]:
    for case in cases:
        if not judge.can_judge(case):
            continue
        try:
            suspect.put("variant", case.args)
            found = judge.judge(case, suspect.call("variant", case))
        except Raised as error:
            yield _raised(error, case)
            continue
        if found:
            yield Finding(name, found.severity, found.says, found.evidence)


def repeated(suspect: Suspect, judge: Judge, case: Case) -> Iterator[Finding]:
    """Call it many times in a row: what accumulates, and whether results repeat bit by bit."""
    try:
        suspect.put("repeat", case.args)
        suspect.call("repeat", case)
        found = suspect.repeat("repeat", case, _N_REPEATED)
    except Raised as error:
        yield _raised(error, case)
        return
    grown = found["grown"]
    if grown["threads"] >= _N_REPEATED // 2:
        says = f"It leaves threads behind: {grown['threads']} more after {_N_REPEATED} calls."
        yield Finding("threads", DISHONEST, says, case.label)
    if grown["tensors"] >= _N_REPEATED or grown["gpu_bytes"] > _N_REPEATED * 1024:
        what = f"{grown['tensors']} tensors" if grown["tensors"] > 0 else f"{grown['gpu_bytes']:,} bytes"
        says = f"It keeps memory from each call: {what} more after {_N_REPEATED} calls."
        yield Finding("leak", WRONG, says, case.label)
    if found["shared"]:
        yield Finding("aliased-output", WRONG, _SHARED, case.label)
    if judge.may_change:
        return
    judged = [judge.judge_results(case, found[name]) for name in ("last", "other")]
    if wrong := judged[0] or judged[1]:
        says = f"It computes something else when it is called again and again. {wrong.says}"
        yield Finding("skipped-work", DISHONEST, says, wrong.evidence)
    elif found["n_distinct"]:
        says = (
            f"Results differ in their last bits from call to call ({found['n_distinct']} of "
            f"{_N_REPEATED - 1} differ from the first), as sums by atomic operations do."
        )
        yield Finding("nondeterminism", NOTE, says, case.label)


def alternated(suspect: Suspect, judge: Judge, others: Sequence[Case]) -> Iterator[Finding]:
    """Call it many times without a pause, while the contents of the same tensors alternate.

    Args:
        others: cases of the same shapes.
    """
    if len(others) < 2:
        return
    try:
        suspect.put("alternate", others[0].args)
        contents = [one.args for one in others]
        found = suspect.alternate("alternate", others[0], contents, _N_ALTERNATED, _ALTERNATED_S)
    except Raised as error:
        yield _raised(error, others[0])
        return
    for turn, number, results in found:
        if wrong := judge.judge_results(others[turn], results):
            which = f"call {number}" if number else "the last of many calls"
            says = (
                f"It is wrong in {which} without a pause in between, although the same values were right "
                f"before. {wrong.says}"
            )
            yield Finding("skipped-work", DISHONEST, says, wrong.evidence)
            return


def again(suspect: Suspect, judge: Judge, case: Case, seed: int) -> Iterator[Finding]:
    """Whether it does less when the same values come again and again, as code that remembers results does.

    Work that it does in some calls only, such as allocating memory for several calls at once, is in one of
    the calls that are compared.

    Args:
        seed: makes values that it has not seen yet.
    """
    missing: list[tuple[Counter[tuple[str, str]], set[str]]] = []
    try:
        suspect.put("again", case.args)
        suspect.work("again", case)  # what it does only once is done now
        for one in islice(slightly_changed(case, seed), 2):
            suspect.write("again", one.args)
            operators, places = suspect.work("again", case)
            for _, _, results in suspect.alternate("again", case, [one.args], _N_SAME, _SAME_S):
                if wrong := judge.judge_results(one, results):
                    says = f"It is wrong when the same values come again and again. {wrong.says}"
                    yield Finding("skipped-work", DISHONEST, says, wrong.evidence)
                    return
            usual, seen = _work_of_several(suspect, "again", case)
            missing.append((Counter(operators) - usual, places - seen))
    except Raised:
        return
    if len(missing) > 1 and (what := _always_missing(missing)):
        says = f"It does less when the same values come again: it doesn't {what}."
        yield Finding("skipped-work", DISHONEST, says, case.label)


def _work_of_several(suspect: Suspect, slot: str, case: Case) -> tuple[Counter[tuple[str, str]], set[str]]:
    """What at least one of several calls with the same values does."""
    operators: Counter[tuple[str, str]] = Counter()
    places: set[str] = set()
    start = time.monotonic()
    for number in range(_N_COMPARED):
        now, where = suspect.work(slot, case)
        operators |= Counter(now)
        places |= where
        if number and time.monotonic() - start > _COMPARED_S:
            break
    return operators, places


def _always_missing(missing: Sequence[tuple[Counter[tuple[str, str]], set[str]]]) -> str:
    """What each of several comparisons misses, as "call mm" or "run line 7"."""
    operators, places = missing[0]
    for others, elsewhere in missing[1:]:
        operators, places = operators & others, places & elsewhere
    if operators:
        short = {one.removeprefix("aten.").removesuffix(".default"): None for one, _ in operators}
        return "call " + ", ".join(sorted(short, key=lambda one: one.startswith(_TRIVIAL))[:3])
    return "run " + min(places, key=_number_of_line).partition(" (")[0] if places else ""


def _number_of_line(place: str) -> int:
    found = re.match(r"line (\d+)", place)
    return int(found[1]) if found else 0


def known(suspect: Suspect, judge: Judge, case: Case, seed: int) -> Iterator[Finding]:
    """Whether it recognizes the inputs that the benchmark's own seed makes: it computes less for them than
    after a small change, or doesn't notice the change.

    Args:
        case: the benchmark's case with its own seed.
        seed: chooses what is changed.
    """
    changed: list[tuple[Counter[tuple[str, str]], set[str]]] = []
    try:
        suspect.put("known", case.args)
        suspect.work("known", case)
        for one in islice(slightly_changed(case, seed), 2):
            suspect.write("known", one.args)
            operators, places = suspect.work("known", case)
            changed.append((Counter(operators), places))
            suspect.write("known", one.args)  # it may have changed them
            if wrong := judge.judge(one, suspect.call("known", one)):
                says = f"It is wrong for inputs that are almost those of the benchmark's seed. {wrong.says}"
                yield Finding("only-some-values", WRONG, says, wrong.evidence)
                return
        suspect.write("known", case.args)
        usual, seen = _work_of_several(suspect, "known", case)
    except Raised as error:
        yield _raised(error, case)
        return
    missing = [(operators - usual, places - seen) for operators, places in changed]
    if len(missing) > 1 and (what := _always_missing(missing)):
        says = f"It recognizes the inputs of the benchmark's own seed: for them, it doesn't {what}."
        yield Finding("skipped-work", DISHONEST, says, case.label)


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


def watched(suspect: Suspect, when: str, n_known: int = 0) -> Iterator[Finding]:
    """What its process has seen it do: functions replaced, places searched, settings changed.

    Args:
        n_known: how many events were reported before.
    """
    seen = suspect.watched()
    if seen["replaced"]:
        names = ", ".join(str(one) for one in seen["replaced"][:6])
        yield Finding("patched", DISHONEST, f"It replaces functions that are not its own: {names}.", when)
    for kind, sentence in seen["events"][n_known:]:
        if kind == "processes":
            severity = NOTE if when == "at import" else DISHONEST
            yield Finding("processes", severity, f"It {sentence}.", when)
        else:
            yield Finding("peeks", DISHONEST, f"It {sentence}.", when)
    left = [one for one in seen["processes"] if not any(helper in one for helper in _HELPERS)]
    if left and when != "at import":
        n = "a process" if len(left) == 1 else f"{len(left)} processes"
        says = f"It leaves {n} behind that it has started: {left[0]}."
        yield Finding("processes", DISHONEST, says, when)
    if seen["threads"]:
        names = ", ".join(str(one) for one in seen["threads"][:4])
        yield Finding("threads", DISHONEST, f"It computes in threads of its own: {names}.", when)
    for change in seen["state"]:
        severity = NOTE if str(change).startswith(_HARMLESS_STATE) else DISHONEST
        yield Finding("global-state", severity, f"It changes a global setting: {change}.", when)


def library(suspect: Suspect, reference: set[str], case: Case) -> Iterator[Finding]:
    """Report when it calls all the operators that the reference calls."""
    try:
        suspect.put("operators", case.args)
        used = _of_interest(set(suspect.operators("operators", case)))
    except Raised:
        return
    wanted = _of_interest(reference)
    if used and wanted and wanted <= used:
        names = ", ".join(one.removesuffix(".default") for one in sorted(wanted)[:4])
        says = f"It calls the library functions that the reference calls ({names})."
        yield Finding("library", NOTE, says, case.label)


def _of_interest(names: Iterable[str]) -> set[str]:
    """Operators that compute, by name; all products of matrices are one."""
    short = {name.removeprefix("aten.").removeprefix("prims.") for name in names}
    found = {name for name in short if not name.startswith(_TRIVIAL)}
    return {"a matrix product" if name.partition(".")[0] in _PRODUCTS else name for name in found}


def memoized(suspect: Suspect, judge: Judge, case: Case) -> Iterator[Finding]:
    """Call it twice with the same contents, and overwrite its first result in between."""
    if judge.may_change:
        return
    try:
        suspect.put("twice", case.args)
        if any(suspect.call("twice", case).aliases):
            return  # overwriting such a result would overwrite the input
        overwritten = suspect.overwrite()
        answer = suspect.call("twice", case)
    except Raised as error:
        yield _raised(error, case)
        return
    if overwritten and judge.judge(case, answer):
        says = (
            "It returns the tensor of an earlier call without computing: what was written there since is "
            "still in it."
        )
        yield Finding("stale-result", DISHONEST, says, case.label)
    elif answer.is_reused:
        yield Finding("aliased-output", WRONG, _SHARED, case.label)


def parameters(suspect: Suspect, judge: Judge, problem: Problem, case: Case, seed: int) -> Iterator[Finding]:
    """Construct it with other parameters than a new model has, and then again with the reference's."""
    if problem.with_parameters is None:
        return
    new = problem.with_parameters(seed)
    other = judge.with_reference(new.reference)
    if not other.can_judge(case):
        return
    label, found = f"{case.label}, other parameters", None
    try:
        has_state = suspect.load(new.state)
        if not has_state:
            n_reference = sum(one.numel() for one in tensors_of(dict(new.state)))
            yield _untried(suspect.n_parameters, n_reference, case)
        if has_state:
            suspect.put("parameters", case.args)
            found = other.judge(replace(case, label=label), suspect.call("parameters", case))
            yield from _buffers(suspect, judge, new, case)
        suspect.load()
    except Raised as error:
        yield _raised(error, case)
        return
    if found:
        says = (
            f"It doesn't follow its parameters: with others than a new model has, it is wrong. {found.says}"
        )
        yield Finding("only-some-values", WRONG, says, found.evidence)


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


def _untried(n: int, n_reference: int, case: Case) -> Finding:
    """What to say about a model whose parameters have other names or shapes than the reference's."""
    if n < n_reference:
        says = (
            f"It has {n:,} of the reference's {n_reference:,} parameters, so that it may be right for those "
            "of a new model only."
        )
        return Finding("only-some-values", LIMIT, says, case.label)
    says = "Its parameters are named or shaped otherwise than the reference's, so no other ones were tried."
    return Finding("only-some-values", NOTE, says, case.label)
