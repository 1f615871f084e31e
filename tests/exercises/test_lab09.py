"""Lab 09's checks: typical wrong attempts are refused with the mistake that they make, right ones of any kind
accepted.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from lab_answers import mistakes, solution
from lab_attempts import Attempt, changed, judge, solution_cells

from helpers import exercises
from helpers.exercises import Case, Outcome, speed
from helpers.exercises.attempt import attempt
from helpers.lessons import deadlock

LAB = "09_wide_rows"
MERGE, SHARE, COPY = "merge-row-parts", "share-a-row", "beat-the-copy"


def _merge(body: str, mistake: str = "", says: str = "") -> Attempt:
    text = "\n    ".join(body.split("; "))
    return Attempt(MERGE, source=f"def merge_parts(parts):\n    {text}\n", mistake=mistake, says=says)


_TOP = "top = max((m for m, _ in parts), default=-math.inf)"
_NONE = "if top == -math.inf: return top, 0.0"

# The words of the solution's kernel, for exercise 2: one launch instead of two.
_WORDS = solution_cells(LAB)[COPY].replace("log_softmax_fast", "log_softmax_shared")
_WIDEN = ('eviction_policy="evict_last")', 'eviction_policy="evict_last").to(tl.float32)')
_REFUSES = (
    "    if parts > places:\n"
    '        raise ValueError(f"{parts} programs would wait for each other, but there are only {places} '
    'places.")\n'
)


def _words(*changes: tuple[str, str], mistake: str = "", says: str = "") -> Attempt:
    """The kernel with words as an answer to exercise 2."""
    store = (
        "x - (top + tl.log(whole)), mask",
        "(x - (top + tl.log(whole))).to(y_ptr.dtype.element_ty), mask",
    )
    return Attempt(SHARE, (_WIDEN, store, *changes), mistake, says, source=_WORDS)


_TORCH = """
def log_softmax_shared(x, places):
    return torch.log_softmax(x, dim=1)
"""

# Numbers of programs that count through all rows before they come to the next part.
_FAR_APART = (
    "row, part = (tl.program_id(0) // PARTS).to(tl.int64), tl.program_id(0) % PARTS",
    "n_rows = tl.num_programs(0) // PARTS\n"
    "    row, part = (tl.program_id(0) % n_rows).to(tl.int64), tl.program_id(0) // n_rows",
)
_WAIT = """    while tl.min((words != 0).to(tl.int32), axis=0) == 0:
        words = tl.load(word_ptrs, mask=lanes < PARTS, other=-1, volatile=True)
"""

# Maximum and sum published one after the other, each in a word of its own; who waits looks at one of them.
_PUBLISH = 'tl.atomic_xchg(words_ptr + row * STRIDE + part, word, sem="relaxed")\n'
_MAXIMUM = 'tl.atomic_xchg(pairs + 1, upper, sem="relaxed")\n'
_SUM = 'tl.atomic_xchg(pairs, lower, sem="relaxed")\n'
_PAIRS = "pairs = (words_ptr + row * STRIDE + part).to(tl.pointer_type(tl.int32))\n    "


def _in_two(first: str, second: str, looked_at: str) -> tuple[tuple[str, str], ...]:
    """Changes to the kernel with words: two stores instead of one, and a loop that looks at one
    of the two.
    """
    return (
        (_PUBLISH, f"{_PAIRS}{first}    {second}"),
        ("while tl.min((words != 0)", f"while tl.min(({looked_at} != 0)"),
    )


ATTEMPTS = {
    # Merge
    "merge: sums as they are": _merge(f"{_TOP}; return top, sum(s for _, s in parts)", "sums-as-they-are"),
    "merge: empty parts": _merge(
        "top = max(m for m, _ in parts); return top, sum(s * math.exp(m - top) for m, s in parts)",
        "minus-infinity|raises",
    ),
    "merge: no part": _merge(
        f"{_TOP.replace(', default=-math.inf', '')}; {_NONE}; return top, sum(s * math.exp(m - top) for m, "
        "s in parts)",
        "raises",
    ),
    "merge: the last maximum": _merge(
        "top = parts[-1][0] if parts else -math.inf; "
        "return top, sum(s * math.exp(min(m - top, 700)) for m, s in parts)",
        "maximum|minus-infinity",
    ),
    "merge: in torch's float32": _merge(
        "if not parts: return -math.inf, 0.0; "
        "m, s = torch.tensor(parts).T; top = m.max(); "
        "return top, torch.where(s == 0, 0.0, s * (m - top).exp()).sum()",
        "float32",
        "dtype=torch.float64",
    ),
    "merge: sum first": _merge(
        f"{_TOP}; {_NONE}; return sum(s * math.exp(m - top) for m, s in parts), top", "swapped", "order"
    ),
    "merge: the mean": _merge(
        f"{_TOP}; {_NONE}; return top, sum(s * math.exp(m - top) for m, s in parts) / len(parts)",
        "wrong-answer",
    ),
    "merge: one after another": _merge(
        "top, total = -math.inf, 0.0; "
        "for m, s in parts:;     new = max(top, m);     if new == -math.inf: continue;"
        "     total = total * math.exp(top - new) + s * math.exp(m - new);     top = new; "
        "return top, total".replace(";     ", "\n        ")
    ),
    "merge: in torch": _merge(
        "if not parts: return -math.inf, 0.0; "
        "m, s = torch.tensor(parts, dtype=torch.float64).T; top = m.max(); "
        "return top, torch.where(s == 0, 0.0, s * (m - top).exp()).sum()"
    ),
    # Two launches
    "two: a part of its own": changed(
        SHARE,
        "y = x - (top + tl.log(whole))",
        "h = tl.max(tl.load(x_ptr + row * n_cols + cols, mask=mask, "
        "other=-float('inf')).to(tl.float32), axis=0)\n    y = x - (h + "
        "tl.log(tl.sum(tl.where(mask, tl.exp(x - h), 0.0), axis=0)))",
        "own-sum|minus-infinity|nan-blind",
    ),
    "two: sums as they are": changed(SHARE, "s * tl.exp(m - top)", "s", "wrong-sum|minus-infinity"),
    "two: no logarithm": changed(
        SHARE, "x - (top + tl.log(whole))", "tl.exp(x - top) / whole", "no-logarithm"
    ),
    "two: parts of -inf": changed(SHARE, 'tl.where(m == -float("inf"), 0.0, m)', "m", "minus-infinity"),
    "two: without the maximum": changed(
        SHARE, "m = tl.max(x, axis=0)", "m = tl.max(x, axis=0) * 0.0", "no-maximum|nan-blind|minus-infinity"
    ),
    "two: NaN repaired": changed(
        SHARE,
        "    return y\n",
        "    return y.nan_to_num(0.0)\n",
        "torch-computes",
        "calls torch's nan_to_num",
    ),
    "two: large programs": changed(SHARE, "x.shape, 8192", "x.shape, 32768", "row-not-shared", "16,384"),
    "two: torch does it": Attempt(SHARE, source=_TORCH, mistake="no-launch"),
    "two: loaded again with another value beyond the mask": changed(
        SHARE,
        "    m = tl.max(x, axis=0)\n",
        "    m = tl.max(x, axis=0)\n"
        "    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, "
        "other=-1e30).to(tl.float32)\n",
        "row-not-shared|reads-too-often",
    ),
    "two: parts of 16,384": changed(SHARE, "x.shape, 8192", "x.shape, 16384"),
    "two: maxima padded with 0": changed(
        SHARE,
        'lanes, mask=lanes < PARTS, other=-float("inf"))',
        "lanes, mask=lanes < PARTS, other=0.0)",
        "padded-maximum",
    ),
    # One launch, words
    "words: never published": _words(
        ('tl.atomic_xchg(words_ptr + row * STRIDE + part, word, sem="relaxed")', "pass"),
        mistake="never-published",
        says="nobody will write",
    ),
    "words: ordinary loads": _words((", volatile=True", ""), mistake="plain-wait", says="volatile=True"),
    "words: by an atomic": _words(
        (
            _WAIT,
            "    while tl.min((words != 0).to(tl.int32), axis=0) == 0:\n        words = "
            "tl.atomic_add(word_ptrs, lanes.to(tl.int64) * 0, mask=lanes < PARTS)\n        words = "
            "tl.where(lanes < PARTS, words, -1)\n",
        )
    ),
    "words: kept from call to call": _words(
        (
            "words = torch.zeros(n_rows * stride, dtype=torch.int64, device=x.device)",
            "words = kept.setdefault((n_rows, stride), torch.zeros(n_rows * stride, dtype=torch.int64, "
            "device=x.device))",
        ),
        ("def log_softmax_shared", "kept = {}\n\n\ndef log_softmax_shared"),
        mistake="no-wait|wrong-sum|wrong-values|stale-answer|race|nan-blind|own-sum|no-launch|minus-infinity|no-maximum",
    ),
    # At a copy's speed
    "fast: two launches": Attempt(
        COPY,
        (("log_softmax_shared", "log_softmax_fast"),),
        "reads-too-often",
        "2.00 times",
        source=solution_cells(LAB)[SHARE],
    ),
    "fast: nobody looks at places": changed(COPY, _REFUSES, "", "no-bound", "3 places of the chip"),
    "fast: two launches where the words have no place": Attempt(
        COPY,
        ((_REFUSES, "    if parts > places:\n        return log_softmax_shared(x, places)\n"),),
        source=solution_cells(LAB)[SHARE] + "\n\n" + solution_cells(LAB)[COPY],
    ),
    "fast: the maximum, then the sum": Attempt(
        COPY, _in_two(_MAXIMUM, _SUM, "(words >> 32)"), "no-wait|wrong-sum|own-sum"
    ),
    "fast: the sum, then the maximum": Attempt(
        COPY, _in_two(_SUM, _MAXIMUM, "words"), "no-wait|wrong-sum|own-sum"
    ),
    "fast: nobody waits": changed(COPY, _WAIT, "", "no-wait", "wait for all words"),
    "fast: lanes beyond the parts are merged": Attempt(
        COPY,
        (
            (
                "tl.where(lanes < PARTS, (words >> 32).to(tl.int32).to(tl.float32, bitcast=True), "
                '-float("inf"))',
                "(words >> 32).to(tl.int32).to(tl.float32, bitcast=True)",
            ),
            (
                "tl.where(lanes < PARTS, words.to(tl.int32).to(tl.float32, bitcast=True), 0.0)",
                "words.to(tl.int32).to(tl.float32, bitcast=True)",
            ),
        ),
        "nan-throughout",
    ),
    "fast: the bound on the whole grid": changed(
        COPY, "if parts > places:", "if n_rows * parts > places:", "bound-too-tight", "parts of one row"
    ),
    "fast: far apart": Attempt(COPY, (_FAR_APART,), "far-apart"),
    "fast: parts of 4,096": changed(COPY, "x.shape, 8192", "x.shape, 4096", says="no speed was measured"),
}


@pytest.mark.seeded
@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempt(name: str, found: dict[str, dict]) -> None:
    judge(name, ATTEMPTS[name], found[name])


def test_a_kernel_below_the_share_that_is_asked_for_is_refused(monkeypatch) -> None:
    """1,024 × 131,072 floats in and out once, at a copy of 1,000 GB/s."""
    exercise = next(e for e in exercises.of_lab(LAB) if e.id == COPY)
    n_bytes, x = 2 * 4 * 64 * 1024, torch.randn(64, 1024)
    monkeypatch.setattr(speed, "ceiling_for", lambda reached, written: 1000.0)
    monkeypatch.setattr(speed, "limit", lambda written: 1.05)

    def judged(of_a_copy: float):
        right = torch.log_softmax(speed.rotated(x, 1), 1)
        facts = {"us": n_bytes / (of_a_copy * 1000.0) / 1e3, "n_rotations": 1}
        return speed.judge_speed(exercise, Case("timed", (x, 264)), Outcome(right, facts=facts))

    slow, said = judged(0.85)
    assert slow.mistake == "too-slow" and not said
    assert "850 GB/s" in slow.sentence and "85 %" in slow.sentence and "90 %" in slow.sentence
    assert judged(0.95) == (None, "95 % of the copy ceiling")
    assert judged(1.2)[0].mistake == "above-ceiling"


@pytest.mark.gpu
@pytest.mark.parametrize("id", [SHARE, COPY])
def test_on_a_gpu_the_solution_passes_with_its_speed(id: str, tmp_path) -> None:
    begin = "from helpers import device\n" + solution_cells(LAB)["begin"]
    exercise = exercises.get(id)
    found = attempt(exercise, solution(LAB, tmp_path, begin)[exercise.name])
    assert found.passed and "of the copy ceiling" in found.sentence, found


@pytest.mark.gpu
def test_on_a_gpu_a_launch_that_may_hang_is_refused_before_it_begins(tmp_path) -> None:
    begin = "from helpers import device\n" + solution_cells(LAB)["begin"]
    path = tmp_path / "unbounded.py"
    path.write_text(begin + "\n\n" + solution_cells(LAB)[COPY].replace(_REFUSES, ""))
    names: dict = {"__name__": "unbounded"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    found = attempt(exercises.get(COPY), names["log_softmax_fast"])
    assert found.mistake == "no-bound", found


# ----------------------------------------------------------------------------------------- inside the lesson
@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda rows, parts, places, consecutive: None, "not-a-bool"),
        (lambda rows, parts, places, consecutive: rows * parts > places, "all-programs"),
        (lambda rows, parts, places, consecutive: parts > places, "rule-ignored"),
        (
            lambda rows, parts, places, consecutive: _programs(rows, parts, consecutive) >= places,
            "one-place-too-many",
        ),
        (lambda rows, parts, places, consecutive: _programs(rows, parts, consecutive) <= places, "exchanged"),
    ],
)
def test_a_wrong_idea_of_a_hang(wrong, mistake) -> None:
    assert mistake in mistakes("can-hang", wrong)


def _programs(rows: int, parts: int, consecutive: bool) -> int:
    return parts if consecutive else (parts - 1) * rows + 1


@pytest.mark.parametrize("consecutive", [True, False])
def test_the_lessons_model_hangs_when_the_exercise_says_so(consecutive) -> None:
    for rows, parts, places in itertools.product(range(1, 5), range(1, 7), range(1, 12)):
        hangs = deadlock.follow(rows, parts, places, neighbours=consecutive).attrs["hangs"]
        assert hangs == (_programs(rows, parts, consecutive) > places)


@pytest.mark.parametrize(
    ("wrong", "mistakes_made"),
    [
        (lambda r, w: "4", {"not-a-number"}),
        (lambda r, w: 65_536 // ((r + 7) // 8 * 8 * w), {"warps-for-threads"}),
        (lambda r, w: 65_536 // (r * 32 * w), {"no-units"}),
        (lambda r, w: 65_536 / ((r + 7) // 8 * 8 * 32 * w), {"a-fraction"}),
        (lambda r, w: 3, {"count"}),
    ],
)
def test_a_wrong_number_of_programs(wrong, mistakes_made) -> None:
    assert mistakes("programs-that-fit", wrong) == mistakes_made
