"""Lab 06's free exercise: test the claim "fuse k kernels into one, and your program is k times as fast"."""

from __future__ import annotations

from pathlib import Path

from helpers.exercises import recorded_data
from helpers.exercises.consistency import Claim, Data, Figure, with_sentences
from helpers.exercises.factories import free_exercise

K = 8192  # of the product into which a colleague wants to fuse a GELU


def data() -> Data:
    """What lesson 06 recorded about fused and separate kernels."""
    softmax = recorded_data.table("fusion/five-operations").set_index("kernel").median_us
    forms = recorded_data.table("fusion/compile-kernels")
    gelu = forms[forms.function.str.startswith("GELU")].set_index("form")
    tiny = recorded_data.table("fusion/tiny").set_index("kernel")
    by_k = recorded_data.table("fusion/neighbour").set_index("k")

    gain_softmax = softmax["all five"] / softmax["softmax_rows"]
    gain_gelu = gelu.median_us["eager"] / gelu.median_us["torch.compile"]
    n_gelu = int(gelu.launches["eager"])
    one, five = "Triton, one block", "five operations"
    gain_tiny, gain_wall = (tiny[of][five] / tiny[of][one] for of in ("median_us", "wall_us"))
    product_us, gelu_us = by_k.product_us[K], by_k.gelu_us[K]
    both_us = product_us + gelu_us
    most = both_us / product_us
    small_k = int(by_k.index.min())
    most_small = (by_k.product_us[small_k] + by_k.gelu_us[small_k]) / by_k.product_us[small_k]
    # Six of the eight read one tensor and write one. The sum with the cube and the last product read two.
    passes_gelu, passes_softmax = 2 * n_gelu + 2, 8

    figures = {
        "gain_softmax": Figure(gain_softmax, within=0.02),
        "gain_gelu": Figure(gain_gelu, within=0.02),
        "launches_gelu": Figure(n_gelu, within=0),
        "bytes_ratio_gelu": Figure(passes_gelu / 2, within=0.02),
        "bytes_ratio_softmax": Figure(passes_softmax / 2, within=0.02),
        "gain_tiny_gpu": Figure(gain_tiny, within=0.03),
        "gain_tiny_wall": Figure(gain_wall, within=0.03),
        "product_us": Figure(product_us, within=0.02),
        "gelu_us": Figure(gelu_us, within=0.02),
        "gelu_share_percent": Figure(100 * gelu_us / both_us, within=0.03),
        "most_gain": Figure(most, within=0.003),
        f"most_gain_k{small_k}": Figure(most_small, within=0.02),
    }
    findings = {
        "share-bounds-the-gain": Claim(most < 1.5, evidence=("gelu_share_percent", "most_gain", "gelu_us")),
        "bytes-explain-the-gelu": Claim(
            abs(gain_gelu / (passes_gelu / 2) - 1) < 0.2, evidence=("bytes_ratio_gelu", "gain_gelu")
        ),
        "bytes-explain-all": Claim(abs(gain_softmax / (passes_softmax / 2) - 1) < 0.2),
        "host-bounds-the-gain": Claim(
            gain_wall < 0.7 * gain_tiny, evidence=("gain_tiny_wall", "gain_tiny_gpu")
        ),
        "number-of-kernels-does-not-tell": Claim(
            most < 1.5 < gain_softmax, evidence=("most_gain", "gain_softmax", "gain_gelu")
        ),
        "claim-holds": Claim(False),
        "fusing-never-pays": Claim(False),
    }
    bound = (
        f"at K = {K} the GELU is {gelu_us:,.0f} of {both_us:,.0f} µs, so two kernels become at most "
        f"{most:.3f} times as fast"
    )
    chain = f"in {n_gelu} launches it moves {passes_gelu / 2:.0f} times the bytes of one"
    changes = {
        "leave-the-product": Claim(most < 1.5),
        "fuse-the-product": Claim(True, allows={"gain": (0.0, most + 0.0005, bound)}),
        "fuse-the-chain": Claim(
            gain_gelu > 2, allows={"gain": (1.0, max(passes_gelu / 2, gain_gelu) * 1.02, chain)}
        ),
        "fewer-launches": Claim(gain_wall > 1.2, acts_on=("host-bounds-the-gain",)),
        "fuse-everything": Claim(False),
        "faster-gelu": Claim(False),
    }
    still_open = ("the-fused-products-speed", "other-gpus", "the-backward-pass", "same-numbers")
    questions = dict.fromkeys(still_open, Claim(None)) | {"share-at-other-k": Claim(True)}
    return with_sentences(
        Data("the tables", figures, findings, changes, questions, predicted=("gain",), n_figures=3),
        Path(__file__).with_suffix(".toml"),
        K=K,
        bound=bound,
        passes_gelu=passes_gelu,
        passes_softmax=passes_softmax,
        small_k=small_k,
        large_k=by_k.index.max(),
        most_small=most_small,
        gpu=recorded_data.origin("fusion/neighbour"),
    )


CLAIM = free_exercise("test-a-claim", "06_fusion", "Test a claim about fusion", "FUSED_CLAIM", data)
