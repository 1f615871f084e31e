"""The labs' free exercises: different right answers pass, and contradicted or empty ones don't
and say why.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import cells
from lab_answers import judged
from lab_attempts import Attempt, judge, solution_cells, verdicts

from helpers import exercises
from helpers.exercises import recorded_data, writeup
from helpers.exercises.consistency import Data
from helpers.exercises.lab01 import step
from helpers.exercises.lab02 import centred, launchers, slow_kernel
from helpers.exercises.lab03 import sliders
from helpers.exercises.lab04 import blog
from helpers.exercises.lab05 import unknown
from helpers.exercises.lab06 import claim
from helpers.exercises.model import Case, Outcome, Verdict
from helpers.lab import WriteUp

WORDS = """I looked at the figures one after the other, and the one that decides is {}. What follows from it
is the change that I name; whether it would be the same elsewhere nobody has measured, so I leave that open
for
another day."""


def written(finding: str, figures: dict[str, float], change: str, *undecided: str, **more: Any) -> WriteUp:
    """A write-up whose words name its first figure."""
    words = WORDS.format(f"{next(iter(figures.values()), 0):,.6g}")
    given = {"finding": finding, "figures": figures, "change": change, "words": words, "undecided": undecided}
    return WriteUp(**(given | more))


# ------------------------------------------------------------------------------------ what every answer needs
GOOD = written(
    "host-makes-batch",
    {"batch_us": 501_571, "step_us": 555_227, "step_after_us": 40_000},
    "make-on-gpu",
    "after-the-copy",
)


def found(id: str, answer: object) -> Verdict:
    return judged(id, answer)


def test_a_write_up_passes_and_lists_what_agrees():
    verdict = found("slow-step", GOOD)
    assert verdict.passed and verdict.n_cases == 1, verdict
    assert "batch_us = 501,571" in repr(verdict) and "after-the-copy" in repr(verdict)
    assert "Change: make-on-gpu" in verdict.words and "nobody has measured" in verdict.words


# mistake -> what the write-up has instead, and a part of the verdict
LACKING: dict[str, list[tuple[dict[str, Any], str]]] = {
    "no-words": [({"words": ""}, ""), ({"words": "   \n "}, "")],
    "few-words": [
        ({"words": "It is the batch, 501,571 µs."}, ""),
        ({"words": "the batch takes 501571 µs on the host " * 12}, ""),
    ],
    "no-figure-in-words": [({"words": WORDS.format(one)}, "") for one in ("a large one", "12,345", "1e999")],
    "unknown-name": [
        ({"finding": "the batch"}, "'the batch'"),
        ({"change": "buy-a-gpu"}, "'buy-a-gpu'"),
        ({"undecided": ("the-weather",)}, "'the-weather'"),
        ({"figures": {**GOOD.figures, "batch": 501_571}}, "'batch'"),
    ],
    "incomplete": [
        ({"finding": ""}, "finding"),
        ({"figures": {}}, "0 of at least 2"),
        ({"figures": {"step_after_us": 40_000}}, "0 of at least 2"),
    ],
    "form": [
        ({"words": 7}, "words is 7"),
        ({"finding": ["host-makes-batch"]}, "finding is"),
        ({"finding": torch.zeros(3), "words": torch.ones(2)}, "finding is tensor"),
        ({"figures": [501_571]}, "figures is [501571]"),
        ({"figures": {"batch_us": "501571", "step_us": 5}}, "'batch_us' is '501571'"),
        ({"figures": {"batch_us": float("nan")}}, "'batch_us' is nan"),
        ({"figures": {"batch_us": True}}, "'batch_us' is True"),
        ({"figures": {"batch_us": 10**5000}}, "'batch_us' is too large"),
        ({"figures": {f"figure {i}": i for i in range(5000)}}, "5,000 figures"),
        ({"undecided": "after-the-copy"}, "undecided is 'after-the-copy'"),
        ({"undecided": ["after-the-copy"] * 5000}, "undecided is"),
        ({"change": 10**5000, "undecided": 10**5000}, "too long to show"),
    ],
    "decided": [({"undecided": ("who-waits-for-the-copy",)}, "'who-waits-for-the-copy'")],
}


@pytest.mark.parametrize(
    ("mistake", "change", "says"), [(mistake, *one) for mistake, some in LACKING.items() for one in some]
)
def test_missing_or_malformed_parts_are_named(mistake, change, says):
    verdict = found("slow-step", replace(GOOD, **change))
    assert not verdict.passed and verdict.mistake == mistake and says in repr(verdict), verdict


@pytest.mark.parametrize(
    "exercise", [of[-1] for lab in exercises.LABS if (of := exercises.of_lab(lab))][:6], ids=lambda e: e.id
)
def test_an_empty_write_up_is_to_do_and_other_objects_are_refused(exercise):
    assert found(exercise.id, WriteUp(work="anything")).mistake == "to-do"
    for other in ("a text", None, {"finding": "host-makes-batch"}, lambda: GOOD):
        verdict = found(exercise.id, other)
        assert not verdict.passed and verdict.mistake == "no-write-up" and "WriteUp" in repr(verdict), verdict


def test_words_in_other_scripts_and_units_count():
    japanese = (
        "このステップの時間のほとんどはホストでのバッチ作成に使われている。"
        "五十五万マイクロ秒のうち502 msである。"
    )
    german = (
        "Der Rechner würfelt 502 Millisekunden lang, und die Karte wartet dabei auf ihn. Ich würde die "
        "Zahlen gleich auf der Karte erzeugen. Was nach der Kopie geschieht, sehe ich in dieser Spur "
        "leider nicht."
    )
    for words in (japanese, german):
        assert found("slow-step", replace(GOOD, words=words)).passed, words


def test_words_are_cleaned_and_bounded_for_the_teacher():
    nasty = (
        WORDS.format("501,571")
        + "\x1b[31m\u202egnp.exe\u202c\x00<script>alert(1)</script>"
        + "\n" * 50
        + "very long " * 2000
    )
    words = found("slow-step", replace(GOOD, words=nasty)).words
    assert len(words) < writeup.MOST + 500 and words.endswith("…")
    assert not re.search("[\x00\x1b\u202e\u202c]|\n\n\n", words)
    many = replace(GOOD, figures={f"figure {i} {'x' * 500}": i for i in range(3000)})
    assert len(found("slow-step", many).words) < writeup.MOST + 4000


def test_all_problems_are_reported_at_once():
    wrong = written(
        "copy", {"copy_us": 42_344, "kernel_us": 99_000}, "faster-kernel", "who-waits-for-the-copy"
    )
    said = repr(found("slow-step", replace(wrong, words="")))
    for part in (
        "kernel_us = 99,000",
        "'copy' is contradicted",
        "'faster-kernel' is contradicted",
        "who-waits-for-the-copy",
        "no words",
    ):
        assert part in said, said
    assert "186" not in said, "the measured value of a wrong figure is the learner's to find"


DATA: dict[str, Callable[[], Data]] = {
    "slow-step": step.data,
    "slow-kernel": lambda: slow_kernel._data(COUNTED),
    "say-what-you-found": lambda: sliders._data(positions(timed=True)),
    "test-a-blog": blog.data,
    "unknown-report": unknown.data,
    "test-a-claim": claim.data,
}
# A figure is listed once for its two ends; the row also has these names, which are no figures.
ENDINGS = {
    "slow-kernel": ("_before", "_after"),
    "unknown-report": ("_2", "_3"),
    "say-what-you-found": ("_a", "_b"),
}
OTHERS = {"test-a-claim": {"softmax_rows"}, "test-a-blog": {"flat", "rows"}}


@pytest.mark.parametrize("lab", exercises.LABS[:6])
def test_the_task_lists_exactly_the_names_that_the_check_knows(lab):
    """The table above the exercise lists every finding, figure, change and question, and only those."""
    id = exercises.of_lab(lab)[-1].id
    data = DATA[id]()
    about = cells(f"labs/solutions/{lab}.ipynb")[f"about-{id}"]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", about, re.MULTILINE))
    for field, names in (("finding", data.findings), ("change", data.changes), ("undecided", data.questions)):
        assert set(re.findall(r"`([a-z-]+)`", rows[field])) == set(names), (id, field)

    def stem(name: str) -> str:
        return re.sub(f"({'|'.join(ENDINGS.get(id, ('$',)))})$", "", name)

    named = {stem(name) for name in re.findall(r"`(\w+)`", rows["figures"])} - {""}
    known = {stem(name) for name in (*data.figures, *data.predicted)}
    if id == "test-a-blog":  # what was saved is listed by one example
        known = {name for name in known if not name.startswith("registers_saved")}
        named &= data.figures.keys()
    assert named - OTHERS.get(id, set()) == known


# ------------------------------------------------------- what each lab's recorded data say
ANSWERS = tomllib.loads(Path(__file__).with_name("write_ups.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("id", "answer"),
    [
        pytest.param(id, answer, id=f"{id}-{number}")
        for id, answers in ANSWERS.items()
        for number, answer in enumerate(answers)
    ],
)
def test_an_answer_about_recorded_data(id, answer):
    undecided = answer.get("undecided", ())
    verdict = found(id, written(answer["finding"], answer["figures"], answer["change"], *undecided))
    mistake = answer.get("mistake", "")
    assert verdict.passed == (not mistake) and verdict.mistake == mistake, verdict
    assert answer.get("says", "") in repr(verdict), verdict


def test_the_data_do_not_depend_on_the_replayed_records(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBOOK_REPLAY", "h100")
    monkeypatch.setenv("WORKBOOK_RECORDS", str(tmp_path))
    assert recorded_data.origin("ptx/load-widths").startswith("NVIDIA H200")
    assert found("slow-step", GOOD).passed


@pytest.mark.parametrize(("known", "figure"), [((), "ptx_loads_narrow"), (("n_elements",), "ptx_loads_wide")])
def test_the_loads_of_the_blog_are_those_of_the_ptx(known, figure):
    from helpers import ptx
    from helpers.kernels.square import square_flat_kernel

    made = ptx.stages(
        square_flat_kernel,
        signature={"x_ptr": "*fp32", "y_ptr": "*fp32", "n_elements": "i32"},
        constexprs={"BLOCK_SIZE": 1024},
        target="sm_90",
        num_warps=4,
        divisible_by_16=("x_ptr", "y_ptr", *known),
    )
    assert blog.data().figures[figure].holds(len(made.reading.loads))


# -------------------------------------------------------------------------------- lab 02's own kernel
SHARED = solution_cells("02_load_inline")["slow-kernel"].partition('r"""')[2].partition('"""')[0]
SHUFFLED = r"""
__global__ void center_rows_kernel(const float* input, float* output, int height, int width) {
    const long long start = static_cast<long long>(blockIdx.x) * width;
    if (threadIdx.x >= 32) return;
    const float* x = input + start;
    float sum = 0.0f;
    for (int col = threadIdx.x; col < width; col += 32) sum += x[col];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
    for (int col = threadIdx.x; col < width; col += 32) output[start + col] = x[col] - sum / width;
}
"""
ONE_THREAD = r"""
__global__ void center_rows_kernel(const float* input, float* output, int height, int width) {
    __shared__ float mean;
    const long long start = static_cast<long long>(blockIdx.x) * width;
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int col = 0; col < width; ++col) sum += input[start + col];
        mean = sum / width;
    }
    __syncthreads();
    for (int col = threadIdx.x; col < width; col += blockDim.x)
        output[start + col] = input[start + col] - mean;
}
"""
COUNTED = {
    "before": centred.SLOW_COUNTS,
    "after": {**centred.SLOW_COUNTS, "loads": 1024, "sectors": 192.0, "loads_an_element": 2.0},
    "shared": True,
    "shuffles": False,
}
BEFORE = {"loads_an_element_before": 257, "bytes_used_percent_before": 15.2}


def test_the_counts_of_the_slow_kernel_match_a_count_on_the_host():
    assert centred.counts(launchers.load("center_rows", centred.SLOW_CUDA)) == pytest.approx(
        centred.SLOW_COUNTS
    )


FIXED: list[tuple[str, str, str, float, str, str]] = [
    (SHARED, "repeated-loads", "shared-memory", 22, "", ""),
    (SHUFFLED, "one-address-a-warp", "shuffle", 22, "", ""),
    (ONE_THREAD, "repeated-loads", "sum-once", 4224 / 640, "", ""),
    (SHARED, "repeated-loads", "shared-memory", 128.5, "prediction-impossible", "4,224"),
    (SHARED, "repeated-loads", "shuffle", 22, "change-contradicted", "shuffles"),
    (SHARED, "strided", "shared-memory", 22, "finding-contradicted", "sectors"),
    (SHARED, "arithmetic", "shared-memory", 22, "not-decided", ""),
    (centred.SLOW_CUDA, "repeated-loads", "sum-once", 22, "not-fixed", "1.00 times"),
    (
        ONE_THREAD.replace("    __syncthreads();\n", ""),
        "repeated-loads",
        "sum-once",
        7,
        "missing-barrier",
        "",
    ),
    (SHARED.replace("/ width", ""), "repeated-loads", "sum-once", 22, "sum-not-mean", "width"),
    ("int x;", "repeated-loads", "sum-once", 22, "does-not-build", "center_rows_kernel"),
    (7, "repeated-loads", "sum-once", 22, "does-not-build", "a string"),
]


@pytest.mark.parametrize(("text", "finding", "change", "sectors_fall", "mistake", "says"), FIXED)
def test_a_fixed_kernel(text, finding, change, sectors_fall, mistake, says):
    figures = {**BEFORE, "loads_fall": 128.5, "sectors_fall": sectors_fall}
    verdict = found("slow-kernel", written(finding, figures, change, "time-on-a-gpu", work=text))
    assert verdict.passed == (not mistake) and verdict.mistake == mistake, verdict
    assert says in repr(verdict), verdict


# ----------------------------------------------------------------------------- lab 03's own positions
def positions(*, timed: bool, a_us: float = 40.0, b_us: float = 30.0, **of_b: Any) -> dict[str, Any]:
    """Two positions as `lab03.positions.read` returns them."""

    def row(us: float, block_size: int, **facts: Any) -> dict[str, Any]:
        always = {"spill_bytes": 0, "shared_bytes": 0, "loads": 1, "threads": 256, "occupancy_percent": 100}
        verdict = {"verdict": "ok" if timed else "right", "reason": "", "limit": "threads"}
        times = {"times_us": [us, us - 0.1, us + 0.1] if timed else [None] * 3}
        return {"at": {"BLOCK_SIZE": block_size}, **always, **verdict, **times, **facts}

    a = row(a_us, 256, load_bytes=4, registers=10, blocks=65536)
    b = row(b_us, 1024, load_bytes=16, registers=14, blocks=16384)
    return {"a": a, "b": {**b, **of_b}, "kernel": "mine", "gpu": "NVIDIA H200", "timed": timed}


def slid(answer: WriteUp, **how: Any) -> Verdict:
    """The verdict on a write-up about two positions."""
    exercise = exercises.get("say-what-you-found")
    value = {"write_up": writeup.as_plain(answer), **positions(**how)}
    return exercise.judge(Case("your write-up", call="read"), Outcome(value))


TIMED = {"us_a": 40, "us_b": 30, "load_bytes_a": 4, "load_bytes_b": 16}
EQUAL = {"us_a": 30.05, "us_b": 30}


@pytest.mark.parametrize(
    ("finding", "figures", "change", "undecided", "mistake"),
    [
        ("b-is-faster", TIMED, "launch-b", "why", ""),
        ("load-width-differs", TIMED, "launch-b", "other-gpus", ""),
        ("no-difference-in-time", EQUAL, "launch-a", "why", ""),
        ("a-is-faster", TIMED, "launch-b", "why", "finding-contradicted"),
        ("b-is-faster", TIMED, "launch-a", "why", "change-contradicted"),
        ("b-is-faster", TIMED, "time-it-first", "why", "change-contradicted"),
        ("b-is-faster", TIMED, "launch-b", "which-is-faster", "decided"),
        ("b-is-faster", {**TIMED, "us_a": 80}, "launch-b", "why", "figure-contradicted"),
    ],
)
def test_claims_about_time_are_compared_with_the_intervals(finding, figures, change, undecided, mistake):
    how = {"a_us": 30.05} if figures is EQUAL else {}
    assert slid(written(finding, figures, change, undecided), timed=True, **how).mistake == mistake


COMPILED = {"load_bytes_a": 4, "load_bytes_b": 16}
WIDTHS = written("load-width-differs", COMPILED, "launch-b", "why")
OCCUPANCY = {"occupancy_percent_a": 100, **COMPILED}
BLOCKS = {"blocks_a": 65536, "blocks_b": 16384}


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (written("load-width-differs", COMPILED, "time-it-first", "which-is-faster"), ""),
        (written("registers-differ", {"registers_a": 10, "registers_b": 14}, "launch-a", "why"), ""),
        (written("programs-differ", BLOCKS, "launch-b", "other-sizes"), ""),
        (written("b-is-faster", COMPILED, "launch-b", "why"), "not-reached"),
        (written("load-width-differs", {**COMPILED, "us_b": 30}, "launch-b", "why"), "not-reached"),
        (written("occupancy-differs", OCCUPANCY, "launch-b", "why"), "finding-contradicted"),
        (written("same-counts", {"registers_a": 10, **COMPILED}, "launch-b", "why"), "finding-contradicted"),
        (written("load-width-differs", COMPILED, "launch-b"), "incomplete"),
    ],
)
def test_without_times_no_speed_can_be_claimed(answer, mistake):
    assert slid(answer, timed=False).mistake == mistake


@pytest.mark.parametrize(
    ("of_b", "mistake"),
    [
        ({"spill_bytes": 48}, "change-contradicted"),
        ({"verdict": "wrong"}, "change-contradicted"),
        ({"at": {"BLOCK_SIZE": 256}}, "one-position"),
        ({"registers": None, "verdict": "refused"}, "no-figures"),
    ],
)
def test_a_position_must_be_usable(of_b, mistake):
    assert slid(WIDTHS, timed=False, **of_b).mistake == mistake


def test_unreadable_work_is_reported():
    value = {"write_up": writeup.as_plain(WIDTHS), "trouble": "work is not a dict"}
    assert exercises.get("say-what-you-found").judge(Case(""), Outcome(value)).mistake == "no-positions"


LAB = "03_triton"
_CELLS = solution_cells(LAB)
_SMALLER = re.sub(
    r"BLOCK_SIZE=\[.*?\], num_warps=\[.*?\],\s*n_cols=\[.*?\]",
    "BLOCK_SIZE=[256, 1024], num_warps=[8], n_cols=[4096]",
    _CELLS["under-the-sliders"],
)
_OWN = "\n\n".join([_CELLS["square-any-shape"], _SMALLER, _CELLS["say-what-you-found"]])


def _own(*changes: tuple[str, str]) -> str:
    text = _OWN
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def _attempt(old: str, new: str, mistake: str, says: str) -> Attempt:
    return Attempt("say-what-you-found", source=_own((old, new)), mistake=mistake, says=says)


ATTEMPTS = {
    "the solution": Attempt("say-what-you-found", source=_OWN),
    "a position that no slider has": _attempt(
        '"a": small', '"a": {**small, "num_warps": 3}', "no-positions", "num_warps is 3"
    ),
    "a position without a size": _attempt(
        '"b": large}', '"b": {"BLOCK_SIZE": 256}}', "no-positions", "n_cols"
    ),
    "invented figures": _attempt(
        "a, b = (",
        "for row in shown.table.rows.values():\n    row['registers'] = 3\na, b = (",
        "figure-contradicted",
        " = 3 is too small",
    ),
    "invented sliders": _attempt(
        '"explored": shown',
        '"explored": __import__("types").SimpleNamespace(now=(shown.table, small))',
        "no-positions",
        "explore(…)",
    ),
    "invented positions": _attempt(
        "a, b = (",
        "shown.table.space.axes['num_warps'] = (8, 3)\nsmall['num_warps'] = 3\n"
        "shown.table.rows[shown.table.space.key('square_any', small)] = shown.table.measured('square_any', "
        "large)\na, b = (",
        "no-figures",
        "position a has no figures",
    ),
    "no sliders": _attempt('"explored": shown', '"explored": 7', "no-positions", "explore(…)"),
}


@pytest.fixture(scope="module")
def tried() -> dict[str, dict]:
    return verdicts(__file__)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_real_sliders(name, tried):
    judge(name, ATTEMPTS[name], tried[name])


@pytest.mark.gpu
def test_on_a_gpu_a_claim_about_time_is_compared_with_the_measurement():
    import triton

    from helpers import widgets
    from helpers.kernels.square import square_flat_kernel

    def square(x: torch.Tensor, BLOCK_SIZE: int, num_warps: int) -> torch.Tensor:
        y = torch.empty_like(x)
        n = x.numel()
        square_flat_kernel[(triton.cdiv(n, BLOCK_SIZE),)](x, y, n, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps)
        return y

    shown = widgets.explore(
        square,
        against=[torch.square],
        BLOCK_SIZE=[256, 1024],
        num_warps=[8],
        n_cols=[4096],
        dtype=["float32"],
    )
    a, b = ({"BLOCK_SIZE": n, "num_warps": 8, "n_cols": 4096, "dtype": "float32"} for n in (256, 1024))
    rows = [shown.table.measured("square", at) for at in (a, b)]
    faster = "a" if rows[0]["median_us"] < rows[1]["median_us"] else "b"
    figures = {f"us_{which}": row["median_us"] for which, row in zip("ab", rows, strict=True)}
    work = {"explored": shown, "a": a, "b": b}
    for name in "ab":
        answer = written(f"{name}-is-faster", figures, f"launch-{name}", "why", work=work)
        apart = rows[0]["ci_high_us"] < rows[1]["ci_low_us"] or rows[1]["ci_high_us"] < rows[0]["ci_low_us"]
        assert found("say-what-you-found", answer).passed == (apart and name == faster)
