"""Lab 12's free exercise: test the claim "attention is bound by memory"."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from helpers.exercises.consistency import Claim, Data, Figure, with_sentences
from helpers.exercises.factories import free_exercise
from helpers.exercises.lab12 import workloads

if TYPE_CHECKING:
    import pandas as pd

RIDGE = workloads.TFLOP_PER_S * 1e3 / workloads.GB_PER_S  # FLOP per byte


def counted() -> pd.DataFrame:
    """The table's layers by name, with "flops", "bytes" and "flops_per_byte"."""
    rows = workloads.table().set_index("layer")
    scores = rows.batch * rows.heads * rows.n_queries * rows.n_keys
    vectors = rows.batch * (rows.heads * rows.n_queries + rows.kv_heads * rows.n_keys)
    # The scores and the weights are each written by one kernel and read by the next one.
    between = 4 * scores * (rows.kernels == 3)
    rows["flops"] = 4 * scores * workloads.HEAD_SIZE
    rows["bytes"] = workloads.ITEMSIZE * (2 * vectors * workloads.HEAD_SIZE + between)
    rows["flops_per_byte"] = rows.flops / rows.bytes
    return rows


def data() -> Data:
    """What the counts show."""
    rows = counted()
    each = rows.flops_per_byte
    n_below = int((each < RIDGE).sum())
    bytes_ratio = rows.bytes[workloads.TOKEN] / rows.bytes[workloads.GROUPED]

    per_byte = {
        "prompt": workloads.PROMPT,
        "short_prompt": workloads.SHORT,
        "three_kernels": workloads.KERNELS,
        "token": workloads.TOKEN,
        "grouped": workloads.GROUPED,
        "batch": workloads.BATCH,
        "guesses": workloads.GUESSES,
    }
    figures = {
        "ridge": Figure(RIDGE, within=0.01),
        "n_below_ridge": Figure(n_below, within=0),
        **{f"flops_per_byte_{name}": Figure(each[layer], within=0.01) for name, layer in per_byte.items()},
        "bytes_ratio_grouped": Figure(bytes_ratio, within=0.01),
    }
    token, batch = each[workloads.TOKEN], each[workloads.BATCH]
    findings = {
        "depends-on-the-queries": Claim(
            bool(each[workloads.PROMPT] > RIDGE > token),
            evidence=("flops_per_byte_prompt", "flops_per_byte_token"),
        ),
        "one-token-is-bound-by-memory": Claim(
            bool(max(token, each[workloads.GROUPED], batch) < RIDGE),
            evidence=("flops_per_byte_token", "flops_per_byte_grouped", "flops_per_byte_batch"),
        ),
        "three-kernels-are-bound-by-memory": Claim(
            bool(each[workloads.KERNELS] < RIDGE), evidence=("flops_per_byte_three_kernels",)
        ),
        "claim-holds": Claim(n_below == len(rows)),
        "never-bound-by-memory": Claim(n_below == 0),
        "long-caches-are-bound-by-math": Claim(bool(each[workloads.GUESSES] > RIDGE)),
        "the-kernel-reaches-its-bound": Claim(None),
    }
    bound = f"32 key heads move {bytes_ratio:.2f} times the bytes of 8, and nothing else changes"
    changes = {
        "fuse-the-prompt": Claim(bool(each[workloads.KERNELS] < RIDGE < each[workloads.PROMPT])),
        "share-key-heads": Claim(
            bool(each[workloads.GROUPED] < RIDGE), allows={"gain": (1.0, bytes_ratio + 0.005, bound)}
        ),
        "batch-more-tokens": Claim(bool(batch > 1.01 * token)),
        "more-tflops-for-tokens": Claim(bool(token > RIDGE)),
        "store-keys-in-8-bits": Claim(None),
    }
    still_open = ("times-of-real-kernels", "the-exponentials", "other-gpus", "the-backward-pass")
    questions = dict.fromkeys(still_open, Claim(None)) | {"whether-a-batch-helps": Claim(True)}
    return with_sentences(
        Data(
            "the counts",
            figures,
            findings,
            changes,
            questions,
            predicted=("gain",),
            n_figures=3,
            n_undecided=1,
        ),
        Path(__file__).with_suffix(".toml"),
        n_layers=len(rows),
        tflop_per_s=workloads.TFLOP_PER_S,
        gb_per_s=workloads.GB_PER_S,
    )


CLAIM = free_exercise(
    "bound-by-memory", "12_attention", "Test a claim about attention", "ATTENTION_CLAIM", data
)
