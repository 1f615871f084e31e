"""Lab 11's free exercise: test the claim "cuBLAS is always faster"."""

from __future__ import annotations

from pathlib import Path

from helpers.exercises import recorded_data
from helpers.exercises.consistency import Claim, Data, Figure, with_sentences
from helpers.exercises.factories import free_exercise

GPU = "h100"
CUBLAS, LESSON, WORKBOOK = "torch (cuBLAS)", "this lesson's kernel", "the workbook's"
SHOWN = (512, 1536, 2048, 2304, 3072, 6656, 8192)  # values of n whose gains have names


def data() -> Data:
    """What lesson 11 recorded about three products of n × n matrices."""
    rows = recorded_data.table("matmul/curve", GPU)
    kernels = {name: one.set_index("n") for name, one in rows.groupby("kernel")}
    theirs, ours, lesson = (kernels[name] for name in (CUBLAS, WORKBOOK, LESSON))
    gain, lesson_gain = theirs.median_us / ours.median_us, theirs.median_us / lesson.median_us
    faster, slower = ours.ci_high_us < theirs.ci_low_us, ours.ci_low_us > theirs.ci_high_us
    n_sizes, n_faster, n_slower = len(gain), int(faster.sum()), int(slower.sum())
    most, at_most = gain.max(), int(gain.idxmax())
    falls = [100 * (1 - one.tflop_per_s[2304] / one.tflop_per_s[2048]) for one in (theirs, ours)]

    figures = {
        "n_faster": Figure(n_faster, within=0),
        "n_slower": Figure(n_slower, within=0),
        "n_open": Figure(n_sizes - n_faster - n_slower, within=0),
        "most_gain": Figure(most, within=0.003),
        "least_gain": Figure(gain.min(), within=0.003),
        **{f"gain_{n}": Figure(gain[n], within=0.003) for n in SHOWN},
        "most_gain_lesson": Figure(lesson_gain.max(), within=0.003),
        "fall_cublas_percent": Figure(falls[0], within=0.02),
        "fall_workbook_percent": Figure(falls[1], within=0.02),
    }
    large = gain[gain.index >= 2048]
    findings = {
        "faster-at-some-size": Claim(n_faster > 0, evidence=("n_faster", "most_gain", f"gain_{at_most}")),
        "usually-slower": Claim(n_slower > n_sizes / 2, evidence=("n_slower", "n_faster", "n_open")),
        "last-wave-costs-more": Claim(
            falls[1] > falls[0] + 2, evidence=("fall_workbook_percent", "gain_2304", "fall_cublas_percent")
        ),
        "gap-only-below-2048": Claim(bool(large.min() > 0.95)),
        "claim-holds": Claim(n_faster == 0),
        "triton-always-faster": Claim(n_slower == 0),
        "tma-makes-the-difference": Claim(None),
    }
    bound = f"the largest ratio in the table is {most:.3f}, at n = {at_most:,}"
    changes = {
        "use-cublas": Claim(n_slower > n_sizes / 2),
        "measure-and-choose": Claim(n_faster > 0, allows={"gain": (1.0, most + 0.0005, bound)}),
        "use-the-workbooks-kernel": Claim(n_slower == 0),
        "use-the-lessons-kernel": Claim(bool(lesson_gain.max() > 1)),
        "fuse-an-epilogue": Claim(None),
    }
    still_open = ("other-gpus", "other-dtypes", "matrices-that-are-not-square", "with-an-epilogue")
    questions = dict.fromkeys(still_open, Claim(None)) | {"the-lessons-kernel": Claim(True)}
    return with_sentences(
        Data(
            "the table",
            figures,
            findings,
            changes,
            questions,
            predicted=("gain",),
            n_figures=3,
            n_undecided=1,
        ),
        Path(__file__).with_suffix(".toml"),
        n_sizes=n_sizes,
        at_most=at_most,
        bound=bound,
        worst_large=large.min(),
        at_worst=int(large.idxmin()),
        gpu=recorded_data.origin("matmul/curve", GPU),
    )


CLAIM = free_exercise("always-faster", "11_matmul", "Test a claim about cuBLAS", "CUBLAS_CLAIM", data)
