"""Lab 06's free exercise: test the claim "k kernels fused into one are k times as fast"."""

from __future__ import annotations

from helpers.exercises import recorded_data
from helpers.exercises.consistency import Claim, Data, Figure
from helpers.exercises.factories import free_exercise

K = 8192  # of the product into which a colleague wants to fuse a GELU


def data() -> Data:
    """The recorded data of lesson 06 on fused and separate kernels."""
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
    share = 100 * gelu_us / (product_us + gelu_us)
    most = (product_us + gelu_us) / product_us
    small_k = int(by_k.index.min())
    most_small = (by_k.product_us[small_k] + by_k.gelu_us[small_k]) / by_k.product_us[small_k]
    # Six of the eight read and write one tensor; the cube's sum and the last product read two.
    passes_gelu, passes_softmax = 2 * n_gelu + 2, 8

    at = f"of fusion/neighbour at K = {K}"
    figures = {
        "gain_softmax": Figure(
            gain_softmax, "'all five' over 'softmax_rows' in fusion/five-operations", 0.02
        ),
        "gain_gelu": Figure(
            gain_gelu, "eager over torch.compile for the GELU in fusion/compile-kernels", 0.02
        ),
        "launches_gelu": Figure(n_gelu, "launches of the eager GELU in fusion/compile-kernels", 0),
        "bytes_ratio_gelu": Figure(
            passes_gelu / 2, f"the {passes_gelu} tensors that the eager GELU reads and writes, over 2", 0.02
        ),
        "bytes_ratio_softmax": Figure(
            passes_softmax / 2,
            f"the {passes_softmax} matrices that the five operations read and write, over 2",
            0.02,
        ),
        "gain_tiny_gpu": Figure(
            gain_tiny, "median_us of five operations over one block in fusion/tiny", 0.03
        ),
        "gain_tiny_wall": Figure(gain_wall, "wall_us of five operations over one block in fusion/tiny", 0.03),
        "product_us": Figure(product_us, f"product_us {at}", 0.02),
        "gelu_us": Figure(gelu_us, f"gelu_us {at}", 0.02),
        "gelu_share_percent": Figure(share, f"gelu_us over both {at}", 0.03),
        "most_gain": Figure(most, f"both over product_us {at}", 0.003),
        f"most_gain_k{small_k}": Figure(
            most_small, f"both over product_us of fusion/neighbour at K = {small_k}", 0.02
        ),
    }
    bound = (
        f"at K = {K} the GELU is {gelu_us:,.0f} of {product_us + gelu_us:,.0f} µs, so two kernels "
        f"become at most {most:.3f} times as fast"
    )
    findings = {
        "share-bounds-the-gain": Claim(most < 1.5, bound, ("gelu_share_percent", "most_gain", "gelu_us")),
        "bytes-explain-the-gelu": Claim(
            abs(gain_gelu / (passes_gelu / 2) - 1) < 0.2,
            f"the GELU's {n_gelu} launches move {passes_gelu / 2:.0f} times the bytes of one kernel and take "
            f"{gain_gelu:.1f} times as long",
            ("bytes_ratio_gelu", "gain_gelu"),
        ),
        "bytes-explain-all": Claim(
            abs(gain_softmax / (passes_softmax / 2) - 1) < 0.2,
            f"five operations move {passes_softmax / 2:.0f} times the bytes of one kernel and take "
            f"{gain_softmax:.2f} times as long",
        ),
        "host-bounds-the-gain": Claim(
            gain_wall < 0.7 * gain_tiny,
            f"at 8 × 256, one kernel instead of five is {gain_tiny:.1f} times as fast on the GPU, but "
            f"{gain_wall:.1f} times by the wall clock",
            ("gain_tiny_wall", "gain_tiny_gpu"),
        ),
        "number-of-kernels-does-not-tell": Claim(
            most < 1.5 < gain_softmax,
            f"two kernels gain at most {most:.3f} times, five {gain_softmax:.2f}, {n_gelu} {gain_gelu:.2f}",
            ("most_gain", "gain_softmax", "gain_gelu"),
        ),
        "claim-holds": Claim(False, f"{bound}, not 2"),
        "fusing-never-pays": Claim(
            False, f"five operations took {gain_softmax:.2f} times as long as one kernel"
        ),
    }
    changes = {
        "leave-the-product": Claim(most < 1.5, bound, allows={}),
        "fuse-the-product": Claim(True, bound, allows={"gain": (0.0, most + 0.0005, bound)}),
        "fuse-the-chain": Claim(
            gain_gelu > 2,
            f"fused into one kernel, the GELU's own {n_gelu} launches are {gain_gelu:.1f} times as fast",
            allows={
                "gain": (
                    1.0,
                    max(passes_gelu / 2, gain_gelu) * 1.02,
                    f"in {n_gelu} launches it moves {passes_gelu / 2:.0f} times the bytes of one",
                )
            },
        ),
        "fewer-launches": Claim(
            gain_wall > 1.2,
            f"at 8 × 256, one launch instead of five is {gain_wall:.1f} times as fast by the wall clock",
            acts_on=("host-bounds-the-gain",),
        ),
        "fuse-everything": Claim(False, f"{bound}, and only if the kernel is as fast as the library's"),
        "faster-gelu": Claim(False, f"{bound}, even if the GELU took no time at all"),
    }
    questions = {
        "the-fused-products-speed": Claim(None, "no matrix product with a fused GELU was measured"),
        "other-gpus": Claim(
            None, f"these tables are from one GPU, {recorded_data.origin('fusion/neighbour')}"
        ),
        "the-backward-pass": Claim(None, "only forward kernels were measured"),
        "same-numbers": Claim(None, "the tables contain times, not results"),
        "share-at-other-k": Claim(
            True,
            f"the table has K from {by_k.index.min()} to {by_k.index.max()}; at {small_k} fusing makes "
            f"the two kernels at most {most_small:.2f} times as fast",
        ),
    }
    return Data("the tables", figures, findings, changes, questions, predicted=("gain",), n_figures=3)


CLAIM = free_exercise("test-a-claim", "06_fusion", "Test a claim about fusion", "FUSED_CLAIM", data)
