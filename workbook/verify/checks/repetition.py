"""Checks that call a candidate again: does it compute each time, and what accumulates?"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from workbook.verify.arguments import slightly_changed
from workbook.verify.checks.conduct import TRIVIAL
from workbook.verify.checks.correctness import after_rewrite
from workbook.verify.judging import Judge, of_error
from workbook.verify.problem import Case
from workbook.verify.suspect import Raised, Suspect
from workbook.verify.verdict import DISHONEST, LIMIT, NOTE, WRONG, Finding

_N_REPEATED = 20  # calls in a row, to see what accumulates
_REPEATED_S = 5.0
_N_ALTERNATED = 20_000  # calls without a pause, unless the time ends first
_ALTERNATED_S = 1.0, 4.0  # seconds of computing, and altogether, after which they end
_N_SAME = 100  # calls with the same values, before it is seen whether they do less
_SAME_S = 0.5, 2.0
_N_COMPARED = 12  # calls that are compared with the first one
_COMPARED_S = 3.0


def stale(suspect: Suspect, judge: Judge, case: Case, others: Sequence[Case], seed: int) -> Iterator[Finding]:
    """Call it with the same tensors, whose contents change between the calls: completely, or a little; then
    with two sets of tensors in turn, because a call for one may compute in advance for the other.

    Args:
        others: cases of the same shapes.
    """
    last = others[-1]
    try:
        suspect.put("same", case.args)
        suspect.call("same", case)
        for other in (last, case, *_changed(judge, case, seed), last):
            suspect.write("same", other.args)
            answer = suspect.call("same", other, again=True)
            if wrong := judge.judge(other, answer):
                yield after_rewrite(suspect, judge, other, wrong)
                return
        suspect.put("second", case.args)
        suspect.call("second", case)
        for slot, other in (("same", case), ("second", last)):
            suspect.write(slot, other.args)
            if wrong := judge.judge(other, suspect.call(slot, other)):
                yield after_rewrite(suspect, judge, other, wrong)
                return
        suspect.put("second", ())
    except Raised as error:
        yield of_error(error, case)


def _changed(judge: Judge, case: Case, seed: int) -> Iterator[Case]:
    """The case with small changes, as far as the reference can compute that."""
    return (one for one in slightly_changed(case, seed) if judge.can_judge(one))


def memoized(suspect: Suspect, judge: Judge, case: Case) -> Iterator[Finding]:
    """Call it twice with the same contents, and overwrite its first result in between."""
    if judge.is_in_place or judge.returns_state:
        return
    try:
        suspect.put("twice", case.args)
        if any(suspect.call("twice", case).aliases):
            return  # overwriting such a result would overwrite the input
        overwritten = suspect.overwrite()
        answer = suspect.call("twice", case)
    except Raised as error:
        yield of_error(error, case)
        return
    if overwritten and judge.judge(case, answer):
        says = (
            "It returns the tensor of an earlier call without computing: what was written there since is "
            "still in it."
        )
        yield Finding("stale-result", DISHONEST, says, case.label)
    elif answer.is_reused or suspect.overwrites:
        yield _shared(suspect, case)


def repeated(suspect: Suspect, judge: Judge, case: Case) -> Iterator[Finding]:
    """Call it many times in a row: what accumulates, and whether results repeat bit by bit."""
    try:
        suspect.put("repeat", case.args)
        suspect.call("repeat", case)
        found = suspect.repeat("repeat", case, _N_REPEATED, _REPEATED_S)
    except Raised as error:
        yield of_error(error, case)
        return
    grown, n = found["grown"], found["n_calls"]
    if grown["threads"] >= n // 2:
        says = f"It leaves threads behind: {grown['threads']} more after {n} calls."
        yield Finding("threads", DISHONEST, says, case.label)
    if grown["tensors"] >= n or grown["gpu_bytes"] > n * 1024:
        what = f"{grown['tensors']} tensors" if grown["tensors"] >= n else f"{grown['gpu_bytes']:,} bytes"
        says = f"It keeps memory from each call: {what} more after {n} calls."
        yield Finding("leak", WRONG, says, case.label)
    if found["shared"] and not judge.returns_state:
        yield _shared(suspect, case)
    if judge.is_in_place or not found["last"]:
        return
    judged = [judge.judge_results(case, found[name]) for name in ("last", "other")]
    if wrong := judged[0] or judged[1]:
        says = f"It computes something else when it is called again and again. {wrong.says}"
        yield Finding("skipped-work", DISHONEST, says, wrong.evidence)
    elif found["n_distinct"]:
        says = (
            f"Results differ in their last bits from call to call ({found['n_distinct']} of "
            f"{n - 1} differ from the first), as sums by atomic operations do."
        )
        yield Finding("nondeterminism", NOTE, says, case.label)


def _shared(suspect: Suspect, case: Case) -> Finding:
    """That a call overwrites the results of another; torch.compile's CUDA graphs do so by design, and raise
    an error if these are used nevertheless.
    """
    if suspect.overwrites:
        says = "Its results are lost with its next call, as with CUDA graphs in torch.compile."
        return Finding("aliased-output", LIMIT, says, case.label)
    says = "It returns the same memory from several calls, so that one overwrites the result of another."
    return Finding("aliased-output", WRONG, says, case.label)


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
        yield of_error(error, others[0])
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
        for one in islice(_changed(judge, case, seed), 2):
            suspect.write("again", one.args)
            operators, places = suspect.work("again", case)
            for _, _, results in suspect.alternate("again", case, [one.args], _N_SAME, _SAME_S):
                if wrong := judge.judge_results(one, results):
                    says = f"It is wrong when the same values come again and again. {wrong.says}"
                    yield Finding("skipped-work", DISHONEST, says, wrong.evidence)
                    return
            missing += _missing_from_several(suspect, "again", case, [(Counter(operators), places)])
    except Raised:
        return
    if len(missing) > 1 and (what := _always_missing(missing)):
        says = f"It does less when the same values come again: it doesn't {what}."
        yield Finding("skipped-work", DISHONEST, says, case.label)


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
        for one in islice(_changed(judge, case, seed), 2):
            suspect.write("known", one.args)
            operators, places = suspect.work("known", case)
            changed.append((Counter(operators), places))
            suspect.write("known", one.args)  # it may have changed them
            if wrong := judge.judge(one, suspect.call("known", one)):
                says = f"It is wrong for inputs that are almost those of the benchmark's seed. {wrong.says}"
                yield Finding("only-some-values", WRONG, says, wrong.evidence)
                return
        suspect.write("known", case.args)
        missing = _missing_from_several(suspect, "known", case, changed)
    except Raised as error:
        yield of_error(error, case)
        return
    if len(missing) > 1 and (what := _always_missing(missing)):
        says = f"It recognizes the inputs of the benchmark's own seed: for them, it doesn't {what}."
        yield Finding("skipped-work", DISHONEST, says, case.label)


def _missing_from_several(
    suspect: Suspect, slot: str, case: Case, wanted: Sequence[tuple[Counter[tuple[str, str]], set[str]]]
) -> list[tuple[Counter[tuple[str, str]], set[str]]]:
    """What each of the earlier calls did that none of several calls with the same values does.

    The calls end as soon as there is nothing that all of the earlier ones did.
    """
    usual: Counter[tuple[str, str]] = Counter()
    seen: set[str] = set()
    start = time.monotonic()
    for number in range(_N_COMPARED):
        now, places = suspect.work(slot, case)
        usual |= Counter(now)
        seen |= places
        missing = [(operators - usual, where - seen) for operators, where in wanted]
        if not _always_missing(missing) or (number and time.monotonic() - start > _COMPARED_S):
            break
    return missing


def _always_missing(missing: Sequence[tuple[Counter[tuple[str, str]], set[str]]]) -> str:
    """What each of several comparisons misses, as "call mm" or "run line 7"."""
    if not missing:
        return ""
    operators, places = missing[0]
    for others, elsewhere in missing[1:]:
        operators, places = operators & others, places & elsewhere
    if operators:
        short = {one.removeprefix("aten.").removesuffix(".default"): None for one, _ in operators}
        return "call " + ", ".join(sorted(short, key=lambda one: one.startswith(TRIVIAL))[:3])
    return "run " + min(places, key=_number_of_line).partition(" (")[0] if places else ""


def _number_of_line(place: str) -> int:
    found = re.match(r"line (\d+)", place)
    return int(found[1]) if found else 0
