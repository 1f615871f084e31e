"""Lab 13's checks: bounds, checks and benchmarks that a fraud deceives are refused with the reason, and right
ones of another kind are accepted.
"""

from __future__ import annotations

import math
import random
import re
import statistics

import pytest
import seeds
import torch
from commands import cells
from lab_answers import judged, mistakes, solution

from helpers import check, exercises
from helpers.exercises.attempt import attempt
from helpers.exercises.lab13 import claim, kernels, sums
from helpers.lab import WriteUp

LAB = "13_verify"
U = 2.0**-24
pytestmark = pytest.mark.seeded


def test_solutions_pass_with_every_seed(tmp_path) -> None:
    first = "import statistics\nimport torch\nfrom helpers import check as checks\n"
    names = solution(LAB, tmp_path, first)
    for exercise in exercises.of_lab(LAB)[:-1]:
        for seed in seeds.several(3):
            verdict = attempt(exercise, names[exercise.name], seed)
            assert verdict.passed, verdict


# ------------------------------------------------------------------------------------------- bound a sum
def _size(x: torch.Tensor) -> torch.Tensor:
    x = x.double()
    return x.sum(1).abs() + x.square().sum(1).sqrt()


def bound(x: torch.Tensor, factor: float = 4) -> torch.Tensor:
    return factor * U * math.sqrt(x.shape[1]) * _size(x)


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda x: 1e-5, "not-bounds"),
        (lambda x: x.abs(), "not-bounds"),
        (lambda x: -bound(x), "not-bounds"),
        (lambda x: bound(x) * math.nan, "not-bounds"),
        (lambda x: torch.full((len(x),), 1e-5), "one-number"),
        (lambda x: torch.full((len(x),), 10.0), "one-number"),
        (lambda x: 1e-5 * x.double().sum(1).abs(), "relative"),
        (lambda x: 0.01 * x.double().sum(1).abs(), "relative"),
        (lambda x: x.shape[1] * U * x.double().abs().sum(1), "worst-case"),
        (lambda x: 4 * U * math.sqrt(x.shape[1]) * x.double().abs().sum(1), "all-sizes"),
        (lambda x: U * _size(x), "too-tight"),
        (lambda x: 4 * U * _size(x), "too-tight"),
        (lambda x: bound(x, 1e4), "too-loose"),
        (lambda x: 1e-3 * _size(x), "too-loose"),
    ],
)
def test_a_wrong_bound(wrong, mistake) -> None:
    assert mistakes("bound-a-sum", wrong, seeds.several(1)) == {mistake}


@pytest.mark.parametrize(
    "right",
    [
        lambda x: bound(x, 2.5).float(),
        lambda x: bound(x, 10).tolist(),
        lambda x: bound(x).numpy(),
        lambda x: 5 * U * math.sqrt(x.shape[1]) * torch.hypot(x.double().sum(1), x.double().norm(dim=1)),
    ],
)
def test_another_right_bound(right) -> None:
    assert mistakes("bound-a-sum", right, seeds.several(2)) == {""}


def test_honest_sums_are_far_from_wrong_ones() -> None:
    """The room that the check leaves to a bound: from 2 to `CLEARLY_WRONG` times the unit."""
    wrong = set()
    for seed in seeds.several(3):
        for case in sums.cases(random.Random(seed)):
            unit = sums.units(case.args[0].numpy())
            for one in case.expected:
                if one.sum.honest:
                    assert (one.errors < 2 * unit).all(), (case.label, one.sum.what)
                else:
                    wrong.add((one.sum.what, case.args[0].shape[1]))
    assert {n for what, n in wrong if "float16" in what} == set(sums.SIZES)
    assert {n for what, n in wrong if "one block" in what} == set(sums.SIZES)


# --------------------------------------------------------------------------------------- accept or reject
def checker(
    shapes=((1, 1), (40, 781), (40, 20_000)),
    n_calls=6,
    change="row",
    poison=True,
    untouched=True,
    new=torch.randn,
    allowed=bound,
):
    """A check that leaves something out or compares in another way."""

    def accepts(kernel, reference):
        for n_rows, n_cols in shapes:
            x = new(n_rows, n_cols)
            for i in range(n_calls):
                if change == "row":
                    x[i % n_rows] = new(n_cols)
                elif change == "all":
                    x.copy_(new(n_rows, n_cols))
                elif change == "tensor":
                    x = new(n_rows, n_cols)
                expected, before = reference(x), x.clone()
                with check.poisoned() if poison else torch.no_grad():
                    got = kernel(x)
                if untouched and not torch.equal(x, before):
                    return False
                if not ((got.double() - expected).abs() <= allowed(x)).all():
                    return False
        return True

    return accepts


def the_same_bits(kernel, reference):
    x = torch.randn(40, 781)
    return torch.equal(kernel(x).clone(), kernel(x)) and checker()(kernel, reference)


def first_result_stays(kernel, reference):
    x, y = torch.randn(2, 40, 781)
    first, before = kernel(x), kernel(x).clone()
    kernel(y)
    return torch.equal(first, before) and checker()(kernel, reference)


def cancelling(*shape):
    x = torch.randn(shape)
    x[..., -1] -= x.sum(-1)
    return x


def as_allclose(x):
    return 1e-5 * x.double().sum(1).abs() + 1e-8


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (lambda kernel, reference: True, "misses-zeros"),
        (lambda kernel, reference: False, "refuses-double"),
        (lambda kernel, reference: None, "no-answer"),
        (lambda kernel, reference: kernel("x"), "raises-on-right"),
        (checker(new=torch.zeros), "misses-zeros"),
        (checker(new=torch.ones), "misses-of-ones"),
        (checker(new=cancelling, allowed=as_allclose), "refuses-pairwise"),
        (checker(((40, 20_000),), allowed=lambda x: bound(x, 1e6)), "misses-zeros"),
        (checker(allowed=lambda x: bound(x, 1e4)), "misses-half"),
        (checker(shapes=((40, 781),)), "misses-first-4096"),
        (checker(shapes=((40, 1024), (40, 16_384))), "misses-whole-blocks"),
        (checker(untouched=False), "misses-changes-input"),
        (the_same_bits, "refuses-random-order"),
        (first_result_stays, "refuses-one-buffer"),
        (checker(n_calls=1), "misses-address"),
        (checker(change="all"), "misses-first-element"),
        (checker(poison=False), "misses-never-written"),
        (checker(shapes=((1, 1), (32, 781), (32, 20_000))), "misses-never-written"),
        (checker(n_calls=3), "misses-gives-up"),
    ],
)
def test_the_misjudged_kernel_is_named(answer, mistake) -> None:
    verdict = judged("accept-or-reject", answer)
    assert verdict.mistake == mistake, verdict
    if mistake.startswith(("misses-", "refuses-")):
        hidden = kernels.KERNELS[mistake.partition("-")[2]]
        assert f"a kernel that {hidden.does}" in verdict.sentence and verdict.hint == hidden.hint


def test_a_popular_seed_is_a_mistake() -> None:
    def accepts(kernel, reference):
        for n_cols in (781, 20_000):
            torch.manual_seed(0)
            if not checker(shapes=((40, n_cols),), n_calls=1, change="")(kernel, reference):
                return False
        return True

    assert judged("accept-or-reject", accepts).mistake == "misses-seeds"


def raising(kernel, reference):
    assert checker()(kernel, reference), "it isn't right"
    return True


@pytest.mark.parametrize(
    "answer", [raising, lambda *given: torch.tensor(checker()(*given)), checker(n_calls=9)]
)
def test_another_right_check(answer) -> None:
    assert mistakes("accept-or-reject", answer, seeds.several(2)) == {""}


def test_there_are_ten_honest_kernels() -> None:
    assert sum(hidden.right for hidden in kernels.KERNELS.values()) == 10


# -------------------------------------------------------------------------------------- repair a benchmark
def is_right(candidate, baseline, new=torch.randn, close=None):
    for _ in range(6):
        x = new(64, 1000)
        got, expected = candidate(x), baseline(x)
        if close is not None:
            if not close(got, expected):
                return False
        elif not ((got.double() - x.double().sum(1)).abs() <= bound(x)).all():
            return False
    return True


def timer(*, first=True, same=False, flush=True, flush_inside=False, wait=True, unit=1.0):
    """Marks around each call, with one of the parts left out."""

    def time_us(gpu, kernel):
        if first:
            kernel(torch.randn(64, 1000))
            gpu.wait()
        x, pairs = torch.randn(64, 1000), []
        for _ in range(20 if first else 1):
            x = x if same else torch.randn(64, 1000)
            if flush and not flush_inside:
                gpu.flush()
            start = gpu.mark()
            if flush_inside:
                gpu.flush()
            kernel(x)
            pairs.append((start, gpu.mark()))
        if wait:
            gpu.wait()
        return unit * statistics.median(start.us_until(stop) for start, stop in pairs)

    return time_us


def by_the_host(*, wait_each=False, wait=True, n=60):
    def time_us(gpu, kernel):
        kernel(torch.randn(64, 1000))
        gpu.wait()
        start = gpu.host_us()
        for _ in range(n):
            kernel(torch.randn(64, 1000))
            if wait_each:
                gpu.wait()
        if wait:
            gpu.wait()
        return (gpu.host_us() - start) / n

    return time_us


def bench(time_us, **compare):
    def benchmark(gpu, candidate, baseline):
        times = time_us(gpu, candidate), time_us(gpu, baseline)
        return is_right(candidate, baseline, **compare), *times

    return benchmark


def compares_first(gpu, candidate, baseline):
    right, time_us = is_right(candidate, baseline), timer()
    return right, time_us(gpu, candidate), time_us(gpu, baseline)


def times_the_candidate_twice(gpu, candidate, baseline):
    time_us = timer()
    return is_right(candidate, baseline), time_us(gpu, candidate), time_us(gpu, candidate)


def first_calls(gpu, candidate, baseline):
    """Times the first call of each kernel, and compares afterwards."""
    time_us = timer(first=False)
    candidate_us, baseline_us = time_us(gpu, candidate), time_us(gpu, baseline)
    return is_right(candidate, baseline), candidate_us, baseline_us


def times_what_it_compared(gpu, candidate, baseline):
    """Each timed input was an input of the comparison."""
    inputs = torch.randn(12, 64, 1000)
    right = all(is_right(candidate, baseline, new=lambda *_, x=x: x) for x in inputs)

    def time_us(kernel):
        pairs = []
        for x in inputs:
            gpu.flush()
            start = gpu.mark()
            kernel(x)
            pairs.append((start, gpu.mark()))
        gpu.wait()
        return statistics.median(start.us_until(stop) for start, stop in pairs)

    return right, time_us(candidate), time_us(baseline)


def starter():
    names = {"torch": torch}
    exec(cells(f"labs/{LAB}.ipynb")["repair-a-benchmark"], names)
    return names["benchmark"]


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (starter(), "first-call"),
        (bench(timer(), new=torch.zeros), "accepts-wrong"),
        (bench(timer(), new=torch.zeros, close=torch.allclose), "accepts-wrong"),
        (bench(timer(), close=torch.allclose), "rejects-right"),
        (bench(timer(), close=torch.equal), "rejects-right"),
        (bench(timer(), close=lambda a, b: torch.allclose(a, b, atol=0.1)), "accepts-wrong"),
        (first_calls, "first-call"),
        (bench(timer(same=True)), "replayed"),
        (bench(timer(same=True, flush=False)), "warm"),
        (bench(timer(flush_inside=True)), "flush-timed"),
        (bench(timer(wait=False)), "not-reached"),
        (bench(by_the_host(wait=False)), "not-waited"),
        (bench(by_the_host(wait_each=True)), "host-clock"),
        (bench(timer(unit=1e-3)), "unit"),
        (bench(timer(unit=-1)), "sign"),
        (times_the_candidate_twice, "other-kernel|gives-up"),
        (compares_first, "gives-up"),
        (times_what_it_compared, "replayed"),
        (lambda *given: bench(timer())(*given)[:2], "not-an-answer"),
        (lambda *given: (None, 1.0, 2.0), "not-an-answer"),
    ],
)
def test_what_deceives_a_benchmark_is_named(answer, mistake) -> None:
    found = mistakes("repair-a-benchmark", answer, seeds.several(3))
    assert found <= set(mistake.split("|")), found


@pytest.mark.parametrize(
    "answer", [bench(timer()), bench(timer(flush=False)), bench(by_the_host()), bench(by_the_host(n=100))]
)
def test_another_right_benchmark(answer) -> None:
    assert mistakes("repair-a-benchmark", answer, seeds.several(3)) == {""}


# --------------------------------------------------------------------------------------- impossible claims
def judge_claims(
    work,
    gpu,
    claims,
    *,
    combine=max,
    l2=lambda claim, fits: claim["l2"] == "warm" and fits,
    n_bytes=lambda work: work["bytes_read"] + work["bytes_written"],
    math_of=lambda work: work["math"],
    unit=1.0,
    verdict=lambda us, least: us < least,
    forms=("us", "gb_per_s", "tflop_per_s"),
):
    """The right answer, with one of its parts replaced."""
    total, moved = work["bytes_read"] + work["bytes_written"], n_bytes(work)
    answers = []
    for stated in claims:
        from_l2 = l2(stated, total <= gpu["l2_bytes"])
        memory_us = moved / gpu["l2_gb_per_s" if from_l2 else "gb_per_s"] / 1e3
        least = unit * combine(memory_us, work["flops"] / gpu["tflop_per_s"][math_of(work)] / 1e6)
        if "us" in stated:
            us = stated["us"]
        elif "gb_per_s" in stated and "gb_per_s" in forms:
            us = total / stated["gb_per_s"] / 1e3
        elif "tflop_per_s" in stated:
            us = work["flops"] / stated["tflop_per_s"] / 1e6
        else:
            us = stated.get("baseline_us", 0) / stated.get("times_faster", 1)
        answers.append((least, verdict(us, least)))
    return answers


def _with(**parts):
    return lambda *given: judge_claims(*given, **parts)


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda work, gpu, claims: [], "not-pairs"),
        (lambda *given: [least for least, _ in judge_claims(*given)], "not-pairs"),
        (_with(unit=1e-3), "unit"),
        (_with(combine=lambda a, b: a + b), "added"),
        (_with(combine=lambda a, b: a), "only-bytes"),
        (_with(combine=lambda a, b: b), "only-flops"),
        (_with(l2=lambda claim, fits: False), "l2-ignored"),
        (_with(l2=lambda claim, fits: claim["l2"] == "warm"), "does-not-fit"),
        (_with(n_bytes=lambda work: work["bytes_read"]), "writes-forgotten"),
        (_with(math_of=lambda work: "tf32"), "other-math|only-bytes"),
        (_with(combine=lambda a, b: 7.0), "least-time"),
        (_with(verdict=lambda us, least: us > least), "exchanged"),
        (_with(forms=("us", "tflop_per_s")), "verdict"),
        (_with(verdict=lambda us, least: False), "verdict"),
        (judge_claims, ""),
        (lambda *given: tuple(map(list, judge_claims(*given))), ""),
    ],
)
def test_a_wrong_verdict_on_claims(wrong, mistake) -> None:
    found = mistakes("impossible-claims", wrong, seeds.several(5))
    assert found <= set(mistake.split("|")), found


# ------------------------------------------------------------------------------------- review a pull request
def _review(finding: str, change: str, *undecided: str, **figures: float) -> WriteUp:
    """A review with the right figures, except for those given here."""
    data = claim.data()
    names = ("n_twice", "n_close_to_peer", "most_gain_over_peer", "least_of_copy")
    given = {name: data.figures[name].value for name in names} | figures
    words = f"""The gain of two is there at {given["n_twice"]:.0f} shapes in your table. What remains of it
    over the libraries is little, and whether the results are right nobody can tell from a table of times, so
    please add a test before we merge."""
    return WriteUp(finding=finding, figures=given, change=change, words=words, undecided=undecided)


OPEN = ("are-the-results-right", "other-gpus")
ASK = "ask-for-the-peers-and-a-check"


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (_review("only-over-eager", ASK, *OPEN), ""),
        (_review("twice-at-some-shapes", "merge-with-a-smaller-claim", *OPEN, gain=1.1), ""),
        (_review("as-fast-as-a-copy", "take-a-library", "small-tensors", "the-backward-pass"), ""),
        (_review("claim-holds", ASK, *OPEN), "finding-contradicted"),
        (_review("never-twice", ASK, *OPEN), "finding-contradicted"),
        (_review("faster-than-memory", "reject-as-impossible", *OPEN), "finding-contradicted"),
        (_review("results-are-right", ASK, *OPEN), "not-decided"),
        (_review("only-over-eager", "merge-as-it-is", *OPEN), "change-contradicted"),
        (_review("only-over-eager", "reject-as-impossible", *OPEN), "change-contradicted"),
        (_review("only-over-eager", "merge-for-small-tensors", *OPEN), "not-decided"),
        (_review("only-over-eager", "merge-with-a-smaller-claim", *OPEN), "incomplete"),
        (_review("only-over-eager", "merge-with-a-smaller-claim", *OPEN, gain=2), "prediction-impossible"),
        (_review("only-over-eager", ASK, "faster-than-eager", *OPEN), "decided"),
        (_review("only-over-eager", ASK, "other-gpus"), "incomplete"),
        (_review("only-over-eager", ASK, *OPEN, n_twice=40), "figure-contradicted"),
        (WriteUp(), "to-do"),
    ],
)
def test_a_review_of_a_speedup(answer: WriteUp, mistake: str) -> None:
    verdict = judged("review-a-speedup", answer)
    assert (verdict.passed, verdict.mistake) == (not mistake, mistake), verdict


def test_the_task_lists_exactly_the_names_that_the_check_knows() -> None:
    data, about = claim.data(), cells(f"labs/solutions/{LAB}.ipynb")["about-review-a-speedup"]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", about, re.MULTILINE))
    for field, names in (("finding", data.findings), ("change", data.changes), ("undecided", data.questions)):
        assert set(re.findall(r"`([a-z0-9-]+)`", rows[field])) == set(names), field
    figures = {name for name in re.findall(r"`([\w.]+)`", rows["figures"]) if "." not in name}
    assert figures == {*data.figures, *data.predicted}
