"""The labs' free exercises: different right answers pass, contradicted and empty ones do not, and each is told why."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from lab_answers import judged
from lab_attempts import Attempt, judge, solution_cells, verdicts

from helpers import exercises
from helpers.exercises import shipped, writeup
from helpers.exercises.lab01 import step
from helpers.exercises.lab02 import centred, launchers, slow_kernel
from helpers.exercises.lab03 import sliders
from helpers.exercises.lab04 import blog
from helpers.exercises.lab05 import unknown
from helpers.exercises.lab06 import claim
from helpers.exercises.model import Case, Outcome, Verdict
from helpers.lab import WriteUp

WORDS = """I looked at the figures one after the other, and the one that decides is {}. What follows from it is the change
that I name; whether it would be the same elsewhere nobody has measured, so I leave that open for another day."""


def written(finding: str, figures: dict[str, float], change: str, *undecided: str, **more: Any) -> WriteUp:
    """A write-up whose words name its first figure."""
    words = WORDS.format(f"{next(iter(figures.values()), 0):,.6g}")
    return WriteUp(**{"finding": finding, "figures": figures, "change": change, "words": words, "undecided": undecided, **more})  # fmt: skip


# ------------------------------------------------------------------------------------ what every answer needs
GOOD = written("host-makes-batch", {"batch_us": 501_571, "step_us": 555_227, "step_after_us": 40_000}, "make-on-gpu", "after-the-copy")  # fmt: skip


def found(id: str, answer: object) -> Verdict:
    return judged(id, answer)


def test_a_write_up_passes_and_says_what_agrees():
    verdict = found("slow-step", GOOD)
    assert verdict.passed and verdict.n_cases == 1, verdict
    said = repr(verdict)
    assert "agrees: batch_us = 501,571, `dur` of aten::randn" in said
    assert "agrees: after-the-copy is left open" in said
    assert "Change: make-on-gpu" in verdict.words and "nobody has measured" in verdict.words


@pytest.mark.parametrize(
    ("change", "mistake", "says"),
    [
        ({"words": ""}, "no-words", "no words"),
        ({"words": "   \n "}, "no-words", "no words"),
        ({"words": "It is the batch, 501,571 µs."}, "few-words", "too few"),
        ({"words": "the batch takes 501571 µs on the host " * 12}, "few-words", "too few"),
        ({"words": WORDS.format("a large one")}, "no-figure-in-words", "none of your figures"),
        ({"words": WORDS.format("12,345")}, "no-figure-in-words", "none of your figures"),
        ({"words": 7}, "form", "words is 7"),
        ({"finding": ""}, "incomplete", "there is no finding yet"),
        ({"finding": "the batch"}, "unknown-name", "'the batch' is none of the task's"),
        ({"finding": ["host-makes-batch"]}, "form", "finding is"),
        ({"change": "buy-a-gpu"}, "unknown-name", "'buy-a-gpu'"),
        ({"figures": {}}, "incomplete", "0 of at least 2"),
        ({"figures": {"step_after_us": 40_000}}, "incomplete", "0 of at least 2"),
        ({"figures": {"batch_us": "501571", "step_us": 5}}, "form", "the figure 'batch_us' is '501571'"),
        ({"figures": {"batch_us": float("nan")}}, "form", "the figure 'batch_us' is nan"),
        ({"figures": {"batch_us": True}}, "form", "the figure 'batch_us' is True"),
        ({"figures": [501_571]}, "form", "figures is [501571]"),
        ({"figures": {"batch": 501_571, "batch_us": 501_571, "step_us": 555_227, "step_after_us": 4e4}}, "unknown-name", "'batch'"),
        ({"figures": {"batch_us": 10**5000}}, "form", "the figure 'batch_us' is too large"),
        ({"figures": {f"figure {i}": i for i in range(5000)}}, "form", "5,000 figures"),
        ({"finding": torch.zeros(3), "words": torch.ones(2)}, "form", "finding is tensor"),
        ({"undecided": ["after-the-copy"] * 5000}, "form", "undecided is"),
        ({"change": 10**5000, "undecided": 10**5000}, "form", "too long to show"),
        ({"words": WORDS.format("1e999")}, "no-figure-in-words", "none of your figures"),
        ({"undecided": "after-the-copy"}, "form", "undecided is 'after-the-copy'"),
        ({"undecided": ("the-weather",)}, "unknown-name", "'the-weather'"),
        ({"undecided": ("who-waits-for-the-copy",)}, "decided", "does decide 'who-waits-for-the-copy'"),
    ],
)  # fmt: skip
def test_what_is_missing_or_no_answer_is_asked_for(change, mistake, says):
    verdict = found("slow-step", replace(GOOD, **change))
    assert not verdict.passed and verdict.mistake == mistake and says in repr(verdict), verdict


@pytest.mark.parametrize("exercise", [of[-1] for lab in exercises.LABS if (of := exercises.of_lab(lab))][:6], ids=lambda e: e.id)  # fmt: skip
def test_an_empty_write_up_is_still_to_do_and_another_object_is_none(exercise):
    assert found(exercise.id, WriteUp(work="anything")).mistake == "to-do"
    for other in ("a text", None, {"finding": "host-makes-batch"}, lambda: GOOD):
        verdict = found(exercise.id, other)
        assert not verdict.passed and verdict.mistake == "no-write-up" and "WriteUp" in repr(verdict), verdict


def test_words_in_other_scripts_and_units_count():
    japanese = "このステップの時間のほとんどはホストでのバッチ作成に使われている。五十五万マイクロ秒のうち502 msである。"  # fmt: skip
    german = "Der Rechner würfelt 502 Millisekunden lang, und die Karte wartet dabei auf ihn. Ich würde die Zahlen gleich auf der Karte erzeugen. Was nach der Kopie geschieht, sehe ich in dieser Spur leider nicht."  # fmt: skip
    for words in (japanese, german):
        assert found("slow-step", replace(GOOD, words=words)).passed, words


def test_words_are_cleaned_and_bounded_for_the_teacher():
    nasty = WORDS.format("501,571") + "\x1b[31m\u202egnp.exe\u202c\x00<script>alert(1)</script>" + "\n" * 50 + "very long " * 2000  # fmt: skip
    words = found("slow-step", replace(GOOD, words=nasty)).words
    assert len(words) < writeup.MOST + 500 and words.endswith("…")
    assert not re.search("[\x00\x1b\u202e\u202c]|\n\n\n", words)
    many = replace(GOOD, figures={f"figure {i} {'x' * 500}": i for i in range(3000)})
    assert len(found("slow-step", many).words) < writeup.MOST + 4000


def test_all_that_is_wrong_is_said_at_once():
    wrong = written(
        "copy", {"copy_us": 42_344, "kernel_us": 99_000}, "faster-kernel", "who-waits-for-the-copy"
    )
    said = repr(found("slow-step", replace(wrong, words="")))
    for part in ("kernel_us = 99,000", "'copy' is contradicted", "'faster-kernel' is contradicted", "who-waits-for-the-copy", "no words"):  # fmt: skip
        assert part in said, said
    assert "186" not in said, "the measured value of a wrong figure is the learner's to find"


@pytest.mark.parametrize("lab", exercises.LABS[:6])
def test_the_task_names_all_that_the_check_knows_and_nothing_else(lab):
    """The table above the exercise lists every finding, figure, change and question, and only those."""
    id = exercises.of_lab(lab)[-1].id
    data = {
        "slow-step": step.data, "slow-kernel": lambda: slow_kernel._data(COUNTED), "test-a-blog": blog.data,
        "say-what-you-found": lambda: sliders._data(positions(timed=True)), "unknown-report": unknown.data, "test-a-claim": claim.data,
    }[id]()  # fmt: skip
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", _about(lab, id), re.MULTILINE))
    for field, names in (("finding", data.findings), ("change", data.changes), ("undecided", data.questions)):
        assert set(re.findall(r"`([a-z-]+)`", rows[field])) == set(names), (id, field)
    named = set(re.findall(r"`(\w+)`", rows["figures"]))
    if id in ("slow-kernel", "unknown-report", "say-what-you-found"):
        endings = {"slow-kernel": ("_before", "_after"), "unknown-report": ("_2", "_3"), "say-what-you-found": ("_a", "_b")}[id]  # fmt: skip
        known = {name.removesuffix(next((e for e in endings if name.endswith(e)), "")) for name in (*data.figures, *data.predicted)}  # fmt: skip
        named = {name.removesuffix(next((e for e in endings if name.endswith(e)), "")) for name in named if name not in ("_before", "_after", "_2", "_3", "_a", "_b")} - {""}  # fmt: skip
        assert named == known
    elif id == "test-a-blog":
        saved = {name for name in data.figures if name.startswith("registers_saved")}
        assert {name for name in named if name in data.figures} == set(data.figures) - saved
    else:
        assert named - {"softmax_rows"} == {*data.figures, *data.predicted}


def _about(lab: str, id: str) -> str:
    import nbformat
    from commands import ROOT

    cells = nbformat.read(ROOT / "labs" / "solutions" / f"{lab}.ipynb", as_version=4).cells
    return next(cell.source for cell in cells if cell.id == f"about-{id}")


# ------------------------------------------------------------------------------------ what each lab's data say
STEP = {"batch_us": 501_571, "step_us": 555_227}
SWEEP = {"gain_flat_2048_4": 1.651, "gain_flat_4096_4": 1.089, "gain_rows_16384_32": 1.005}
REPORT = {"instructions_ratio": 1.705, "duration_ratio": 1.65, "issue_percent_3": 67.8}
TABLES = {"gain_gelu": 8.9, "gelu_us": 64.9, "product_us": 1455}
ANSWERS: dict[str, list[tuple[WriteUp, str, str]]] = {
    "slow-step": [
        (written("host-makes-batch", {**STEP, "step_after_us": 53_000}, "make-on-gpu"), "", ""),
        (written("gpu-waits", {"gpu_busy_us": 42_531, "gpu_busy_percent": 7.7, "step_after_us": 45_000}, "prepare-ahead", "the-next-steps"), "", ""),
        (written("nothing-overlaps", {"overlap_us": 0, "copy_us": 42_344, "batch_us": 501_571, "step_after_us": 502_000}, "prepare-ahead", "after-the-copy"), "", ""),
        (written("gpu-waits", {"gpu_busy_percent": 7.66, "copy_us": 42_300, "pinned_copy_us": 7205, "step_after_us": 520_000}, "pin-memory"), "", ""),
        (written("host-makes-batch", {"batch_percent": 90, "launch_us": 50, "step_after_us": 400_000}, "prepare-ahead"), "", ""),
        (written("pageable-memory", {"copy_us": 42_344, "pinned_copy_us": 7205, "step_after_us": 520_000}, "pin-memory"), "finding-contradicted", "6.3 %"),
        (written("copy", {"copy_us": 42_344, "step_us": 555_227}, "pin-memory"), "finding-contradicted", "7.6 %"),
        (written("kernel", {"kernel_us": 187, "step_us": 555_227}, "faster-kernel"), "finding-contradicted", "the kernel takes 187"),
        (written("host-makes-batch", {**STEP, "step_after_us": 100}, "make-on-gpu"), "prediction-impossible", "the kernel stays"),
        (written("gpu-waits", {"gpu_busy_us": 42_531, "step_us": 555_227, "step_after_us": 7_500}, "pin-memory"), "prediction-impossible", "the batch stays"),
        (written("host-makes-batch", {**STEP, "step_after_us": 520_000}, "pin-memory"), "change-elsewhere", "does not act on"),
        (written("host-makes-batch", {**STEP}, "make-on-gpu"), "incomplete", "no prediction"),
        (written("host-makes-batch", {"copy_us": 42_344, "step_us": 555_227, "step_after_us": 50_000}, "make-on-gpu"), "no-evidence", "batch_us"),
        (written("host-makes-batch", {"batch_us": 55_000, "step_us": 555_227, "step_after_us": 50_000}, "make-on-gpu"), "figure-contradicted", "too small"),
    ],
    "test-a-blog": [
        (written("gain-not-by-loads", {**SWEEP, "requests_ratio": 4}, "widen-and-time", "other-kernels"), "", ""),
        (written("gain-not-by-registers", {**SWEEP, "registers_saved_flat_4096_4": 120}, "widen-and-time", "other-gpus"), "", ""),
        (written("gain-where-sectors-repeat", {**SWEEP, "sectors_ratio_flat": 4.0, "sectors_ratio_rows": 1}, "widen-where-sectors-repeat"), "", ""),
        (written("bytes-are-the-same", {"dram_ratio_most": 1.01, "requests_ratio": 4, "gain_rows_16384_16": 1.044}, "leave-the-row-kernel", "small-tensors"), "", ""),
        (written("claim-holds", {**SWEEP, "ptx_loads_narrow": 8, "ptx_loads_wide": 2}, "widen-and-time"), "finding-contradicted", "a quarter of the requests"),
        (written("every-kernel-gains", SWEEP, "widen-and-time"), "not-decided", "not every kernel"),
        (written("no-gain-at-all", SWEEP, "never-widen"), "finding-contradicted", "above 1"),
        (written("gain-not-by-loads", SWEEP, "always-widen"), "not-decided", "only squares"),
        (written("gain-not-by-registers", {**SWEEP, "registers_saved_flat_4096_4": 120}, "save-registers-first"), "change-contradicted", "saves 120 registers"),
        (written("gain-not-by-loads", SWEEP, "never-widen"), "change-contradicted", "without it"),
        (written("gain-not-by-loads", {**SWEEP, "gain_rows_16384_32": 1.5}, "widen-and-time"), "figure-contradicted", "too large"),
        (written("gain-not-by-loads", SWEEP, "widen-and-time", "same-bytes"), "decided", "DRAM moved"),
        (written("gain-not-by-loads", {"requests_ratio": 4}, "widen-and-time"), "incomplete", "1 of at least 3"),
    ],
    "unknown-report": [
        (written("same-rate-more-work", {**REPORT, "after_us": 140}, "fewer-instructions", "instructions-or-warps"), "", ""),
        (written("more-instructions", {"instructions_ratio": 1.7, "duration_us_3": 208, "duration_us_2": 126, "after_us": 200}, "fewer-instructions", "which-source-line"), "", ""),
        (written("fewer-warps", {"registers_3": 63, "registers_2": 32, "occupancy_percent_3": 47, "after_us": 150}, "fewer-registers", "what-the-warps-wait-for"), "", ""),
        (written("memory-is-full", {"memory_percent_3": 52.5, **REPORT}, "keep-in-cache"), "finding-contradicted", "53 % of its peak"),
        (written("more-bytes", {"dram_mb_ratio": 1.02, **REPORT}, "coalesce"), "finding-contradicted", "1.024 times the bytes"),
        (written("too-few-blocks", {"waves_3": 62, **REPORT}, "more-blocks"), "finding-contradicted", "62 waves"),
        (written("fewer-warps", {"registers_3": 63, "occupancy_percent_3": 47, "waves_3": 62, "after_us": 150}, "smaller-blocks"), "change-contradicted", "1,024 threads fit"),
        (written("fewer-warps", {"registers_3": 63, "occupancy_percent_3": 47, "waves_3": 62, "after_us": 150}, "fewer-instructions"), "change-elsewhere", "does not act on"),
        (written("more-instructions", {**REPORT, "after_us": 60}, "fewer-instructions"), "prediction-impossible", "the bytes are nearly the same"),
        (written("more-instructions", {**REPORT, "after_us": 140}, "fewer-instructions", "is-memory-full"), "decided", "53 %"),
        (written("same-rate-more-work", {**REPORT, "registers_3": 64, "after_us": 140}, "fewer-instructions"), "figure-contradicted", "registers_3 = 64"),
    ],
    "test-a-claim": [
        (written("share-bounds-the-gain", {**TABLES, "most_gain": 1.045}, "leave-the-product", "the-fused-products-speed"), "", ""),
        (written("bytes-explain-the-gelu", {**TABLES, "bytes_ratio_gelu": 9}, "leave-the-product"), "", ""),
        (written("host-bounds-the-gain", {"gain_tiny_gpu": 6.8, "gain_tiny_wall": 2.5, "gain_softmax": 5.66}, "fewer-launches", "other-gpus"), "", ""),
        (written("number-of-kernels-does-not-tell", {**TABLES, "gain_softmax": 5.66, "gain": 8.9}, "fuse-the-chain"), "", ""),
        (written("share-bounds-the-gain", {**TABLES, "gelu_share_percent": 4.27, "gain": 1.03}, "fuse-the-product"), "", ""),
        (written("claim-holds", {**TABLES, "launches_gelu": 8}, "fuse-everything"), "finding-contradicted", "at most 1.045"),
        (written("fusing-never-pays", {**TABLES, "most_gain": 1.045}, "leave-the-product"), "finding-contradicted", "5.66 times"),
        (written("bytes-explain-all", {**TABLES, "bytes_ratio_softmax": 4}, "leave-the-product"), "finding-contradicted", "5.66 times as long"),
        (written("share-bounds-the-gain", {**TABLES, "gain": 1.3}, "fuse-the-product"), "prediction-impossible", "at most 1.045"),
        (written("share-bounds-the-gain", {**TABLES, "most_gain": 1.045}, "fuse-the-product"), "incomplete", "no prediction"),
        (written("share-bounds-the-gain", TABLES, "faster-gelu"), "change-contradicted", "takes no time at all"),
        (written("share-bounds-the-gain", TABLES, "leave-the-product", "share-at-other-k"), "decided", "at 64"),
        (written("host-bounds-the-gain", {**TABLES, "gain_tiny_wall": 6.8}, "fewer-launches"), "figure-contradicted", "too large"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("id", "number"), [(id, number) for id, answers in ANSWERS.items() for number in range(len(answers))]
)
def test_an_answer_about_recorded_data(id, number):
    answer, mistake, says = ANSWERS[id][number]
    verdict = found(id, answer)
    assert verdict.passed == (not mistake) and verdict.mistake == mistake, verdict
    assert says in repr(verdict), verdict


def test_the_data_are_the_shipped_ones_whatever_is_replayed(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBOOK_REPLAY", "h100")
    monkeypatch.setenv("WORKBOOK_RECORDS", str(tmp_path))
    assert shipped.origin("ptx/load-widths").startswith("NVIDIA H200")
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


# ------------------------------------------------------------------------------------------ lab 02's own kernel
SHARED = solution_cells("02_load_inline")["slow-kernel"].partition('r"""')[2].partition('"""')[0]
SHUFFLED = r"""
__global__ void center_rows_kernel(const float* input, float* output, int height, int width) {
    const long long start = static_cast<long long>(blockIdx.x) * width;
    if (threadIdx.x >= 32) return;
    float sum = 0.0f;
    for (int col = threadIdx.x; col < width; col += 32) sum += input[start + col];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
    for (int col = threadIdx.x; col < width; col += 32) output[start + col] = input[start + col] - sum / width;
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
    for (int col = threadIdx.x; col < width; col += blockDim.x) output[start + col] = input[start + col] - mean;
}
"""
COUNTED = {
    "before": centred.counts_of_slow(), "after": {**centred.counts_of_slow(), "loads": 1024, "sectors": 192.0, "loads_an_element": 2.0},
    "shared": True, "shuffles": False,
}  # fmt: skip
BEFORE = {"loads_an_element_before": 257, "bytes_used_percent_before": 15.2}


def mended(
    text: str, finding: str, change: str, loads_fall: float, sectors_fall: float, **more: Any
) -> WriteUp:
    figures = {**BEFORE, "loads_fall": loads_fall, "sectors_fall": sectors_fall}
    return written(finding, figures, change, "time-on-a-gpu", **{"work": text, **more})


def test_what_the_slow_kernel_costs_is_what_the_host_counts():
    assert centred.counts(launchers.load("center_rows", centred.SLOW_CUDA)) == pytest.approx(
        centred.counts_of_slow()
    )


@pytest.mark.parametrize(
    ("answer", "mistake", "says"),
    [
        (mended(SHARED, "repeated-loads", "shared-memory", 128.5, 22), "", ""),
        (mended(SHUFFLED, "one-address-a-warp", "shuffle", 128, 22), "", ""),
        (mended(ONE_THREAD, "repeated-loads", "sum-once", 128.5, 4224 / 640), "", ""),
        (mended(SHARED, "repeated-loads", "shared-memory", 128.5, 128.5), "prediction-impossible", "4,224 sectors before and 192 after"),
        (mended(SHARED, "repeated-loads", "shuffle", 128.5, 22), "change-contradicted", "no warp shuffles"),
        (mended(SHARED, "strided", "shared-memory", 128.5, 22), "finding-contradicted", "32 neighbours fill 4"),
        (mended(SHARED, "arithmetic", "shared-memory", 128.5, 22), "not-decided", "no time"),
        (mended(centred.SLOW_CUDA, "repeated-loads", "sum-once", 128.5, 22), "not-mended", "1.00 times fewer"),
        (mended(ONE_THREAD.replace("    __syncthreads();\n", ""), "repeated-loads", "sum-once", 128.5, 7), "missing-barrier", ""),
        (mended(SHARED.replace("/ width", ""), "repeated-loads", "sum-once", 128.5, 22), "sum-not-mean", "divide by width"),
        (mended("int x;", "repeated-loads", "sum-once", 128.5, 22), "does-not-build", "center_rows_kernel"),
        (mended(7, "repeated-loads", "sum-once", 128.5, 22), "does-not-build", "a string"),
    ],
)  # fmt: skip
def test_a_mended_kernel(answer, mistake, says):
    verdict = found("slow-kernel", answer)
    assert verdict.passed == (not mistake) and verdict.mistake == mistake, verdict
    assert says in repr(verdict), verdict


# ---------------------------------------------------------------------------------------- lab 03's own positions
def positions(*, timed: bool, a_us: float = 40.0, b_us: float = 30.0, **of_b: Any) -> dict[str, Any]:
    """Two positions as `lab03.positions.read` gives them."""
    row = {"registers": 10, "spill_bytes": 0, "shared_bytes": 0, "loads": 1, "load_bytes": 4, "threads": 256, "blocks": 65536}  # fmt: skip
    row |= {"verdict": "ok" if timed else "right", "reason": "", "occupancy_percent": 100, "limit": "threads"}

    def times(us: float) -> list:
        return [us, us - 0.1, us + 0.1] if timed else [None] * 3

    a = {**row, "at": {"BLOCK_SIZE": 256}, "times_us": times(a_us)}
    b = {**row, "at": {"BLOCK_SIZE": 1024}, "load_bytes": 16, "registers": 14, "blocks": 16384, "times_us": times(b_us)}  # fmt: skip
    return {"a": a, "b": {**b, **of_b}, "kernel": "mine", "gpu": "NVIDIA H200", "timed": timed}


def slid(answer: WriteUp, **how: Any) -> Verdict:
    """The verdict on a write-up about two positions."""
    exercise = exercises.get("say-what-you-found")
    value = {"write_up": writeup.as_plain(answer), **positions(**how)}
    return exercise.judge(Case("your write-up", call="read"), Outcome(value))


TIMED = {"us_a": 40, "us_b": 30, "load_bytes_a": 4, "load_bytes_b": 16}


@pytest.mark.parametrize(
    ("answer", "how", "mistake"),
    [
        (written("b-is-faster", TIMED, "launch-b", "why"), {}, ""),
        (written("load-width-differs", TIMED, "launch-b", "other-gpus"), {}, ""),
        (
            written("no-difference-in-time", {"us_a": 30.05, "us_b": 30}, "launch-a", "why"),
            {"a_us": 30.05},
            "",
        ),
        (written("a-is-faster", TIMED, "launch-b", "why"), {}, "finding-contradicted"),
        (written("b-is-faster", TIMED, "launch-a", "why"), {}, "change-contradicted"),
        (written("b-is-faster", TIMED, "time-it-first", "why"), {}, "change-contradicted"),
        (written("b-is-faster", TIMED, "launch-b", "which-is-faster"), {}, "decided"),
        (written("b-is-faster", {**TIMED, "us_a": 80}, "launch-b", "why"), {}, "figure-contradicted"),
    ],
)
def test_times_are_held_against_the_intervals_where_there_are_any(answer, how, mistake):
    verdict = slid(answer, timed=True, **how)
    assert verdict.mistake == mistake, verdict


COMPILED = {"load_bytes_a": 4, "load_bytes_b": 16}


@pytest.mark.parametrize(
    ("answer", "how", "mistake"),
    [
        (written("load-width-differs", COMPILED, "time-it-first", "which-is-faster"), {}, ""),
        (written("registers-differ", {"registers_a": 10, "registers_b": 14}, "launch-a", "why"), {}, ""),
        (written("programs-differ", {"blocks_a": 65536, "blocks_b": 16384}, "launch-b", "other-sizes"), {}, ""),
        (written("b-is-faster", COMPILED, "launch-b", "why"), {}, "not-reached"),
        (written("load-width-differs", {**COMPILED, "us_b": 30}, "launch-b", "why"), {}, "not-reached"),
        (written("occupancy-differs", {"occupancy_percent_a": 100, **COMPILED}, "launch-b", "why"), {}, "finding-contradicted"),
        (written("same-counts", {"registers_a": 10, **COMPILED}, "launch-b", "why"), {}, "finding-contradicted"),
        (written("load-width-differs", COMPILED, "launch-b"), {}, "incomplete"),
        (written("load-width-differs", COMPILED, "launch-b", "why"), {"spill_bytes": 48}, "change-contradicted"),
        (written("load-width-differs", COMPILED, "launch-b", "why"), {"verdict": "wrong"}, "change-contradicted"),
        (written("load-width-differs", COMPILED, "launch-b", "why"), {"at": {"BLOCK_SIZE": 256}}, "one-position"),
        (written("load-width-differs", COMPILED, "launch-b", "why"), {"registers": None, "verdict": "refused"}, "no-figures"),
        (written("load-width-differs", COMPILED, "launch-b", "why"), {"trouble": "work is no dict"}, ""),
    ],
)  # fmt: skip
def test_without_times_no_speed_can_be_claimed(answer, how, mistake):
    if "trouble" in how:
        exercise = exercises.get("say-what-you-found")
        outcome = Outcome({"write_up": writeup.as_plain(answer), **how})
        assert exercise.judge(Case(""), outcome).mistake == "no-positions"
        return
    verdict = slid(answer, timed=False, **how)
    assert verdict.mistake == mistake, verdict


LAB = "03_triton"
_CELLS = solution_cells(LAB)
_SMALLER = re.sub(r"BLOCK_SIZE=\[.*?\], num_warps=\[.*?\],\s*n_cols=\[.*?\]", "BLOCK_SIZE=[256, 1024], num_warps=[8], n_cols=[4096]", _CELLS["under-the-sliders"])  # fmt: skip
_OWN = "\n\n".join([_CELLS["square-any-shape"], _SMALLER, _CELLS["say-what-you-found"]])


def _own(*changes: tuple[str, str]) -> str:
    text = _OWN
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


ATTEMPTS = {
    "the solution": Attempt("say-what-you-found", source=_OWN),
    "a position that no slider has": Attempt("say-what-you-found", source=_own(('"explored": shown, "a": small', '"explored": shown, "a": {**small, "num_warps": 3}')), mistake="no-positions", says="num_warps is 3"),
    "a position without a size": Attempt("say-what-you-found", source=_own(('"b": large}', '"b": {"BLOCK_SIZE": 256}}')), mistake="no-positions", says="needs a value for"),
    "no sliders": Attempt("say-what-you-found", source=_own(('"explored": shown', '"explored": 7')), mistake="no-positions", says="explore(…)"),
    "a speed without a clock": Attempt("say-what-you-found", source=_own(('finding="load-width-differs"', 'finding="b-is-faster"')), mistake="not-reached", says="nothing was timed"),
}  # fmt: skip


@pytest.fixture(scope="module")
def tried() -> dict[str, dict]:
    return verdicts(__file__)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_real_sliders(name, tried):
    judge(name, ATTEMPTS[name], tried[name])


@pytest.mark.gpu
def test_on_a_gpu_a_claim_about_time_is_held_against_what_was_timed():
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
