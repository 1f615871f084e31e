"""Lab 13's free exercise: review a pull request that claims a softmax twice as fast."""

from __future__ import annotations

from pathlib import Path

from helpers.exercises import recorded_data
from helpers.exercises.consistency import Claim, Data, Figure, with_sentences
from helpers.exercises.factories import free_exercise
from helpers.exercises.lab13.pull_request import EAGER, GPU, NEW, PEERS, RECORD, table

TWICE = 2.0


def data() -> Data:
    """What the pull request's own table shows."""
    rows = table()
    us = rows.set_index(["dtype", "n_cols", "n_rows"])[[NEW, EAGER, *PEERS, "copy"]]
    peer = us[list(PEERS)].min(axis=1)
    gain, over_peer, of_copy = us[EAGER] / us[NEW], peer / us[NEW], us["copy"] / us[NEW]
    n_shapes, n_twice = len(us), int((gain >= TWICE).sum())
    most, most_over_peer = gain.max(), over_peer.max()
    at_most, at_most_over_peer = gain.idxmax(), over_peer.idxmax()  # (dtype, columns, rows)
    n_close = int(((over_peer > 1 / 1.05) & (over_peer < 1.05)).sum())

    figures = {
        "n_twice": Figure(n_twice, within=0),
        "n_close_to_peer": Figure(n_close, within=0),
        "most_gain": Figure(most, within=0.005),
        "least_gain": Figure(gain.min(), within=0.005),
        "median_gain_float32": Figure(gain["float32"].median(), within=0.005),
        "median_gain_bfloat16": Figure(gain["bfloat16"].median(), within=0.005),
        "most_gain_over_peer": Figure(most_over_peer, within=0.005),
        "least_gain_over_peer": Figure(over_peer.min(), within=0.005),
        "most_of_copy": Figure(of_copy.max(), within=0.005),
        "least_of_copy": Figure(of_copy.min(), within=0.005),
    }
    findings = {
        "twice-at-some-shapes": Claim(
            0 < n_twice < n_shapes, evidence=("n_twice", "most_gain", "least_gain")
        ),
        "only-over-eager": Claim(
            most_over_peer < TWICE,
            evidence=("most_gain_over_peer", "n_close_to_peer", "least_gain_over_peer"),
        ),
        "as-fast-as-a-copy": Claim(of_copy.min() > 0.95, evidence=("least_of_copy", "most_of_copy")),
        "claim-holds": Claim(n_twice == n_shapes),
        "never-twice": Claim(n_twice == 0),
        "faster-than-memory": Claim(bool(of_copy.max() > 1.05)),
        "results-are-right": Claim(None),
    }
    bound = (
        f"over the best other kernel, the largest ratio in the table is {most_over_peer:.3f}, at "
        f"{at_most_over_peer[1]:,} columns of {at_most_over_peer[0]}"
    )
    changes = {
        "ask-for-the-peers-and-a-check": Claim(True),
        "merge-with-a-smaller-claim": Claim(
            n_twice < n_shapes, allows={"gain": (1.0, most_over_peer + 0.0005, bound)}
        ),
        "take-a-library": Claim(n_close > n_shapes / 2),
        "merge-as-it-is": Claim(n_twice == n_shapes),
        "reject-as-impossible": Claim(bool(of_copy.max() > 1.05)),
        "merge-for-small-tensors": Claim(None),
    }
    still_open = ("other-gpus", "are-the-results-right", "small-tensors", "the-backward-pass")
    questions = dict.fromkeys(still_open, Claim(None)) | {"faster-than-eager": Claim(True)}
    return with_sentences(
        Data(
            "the table",
            figures,
            findings,
            changes,
            questions,
            predicted=("gain",),
            n_figures=3,
            n_undecided=2,
        ),
        Path(__file__).with_suffix(".toml"),
        n_shapes=n_shapes,
        at_most=f"{at_most[1]:,} columns of {at_most[0]}",
        bound=bound,
        least_elements=int((rows.n_rows * rows.n_cols).min()),
        gpu=recorded_data.origin(RECORD, GPU),
    )


REVIEW = free_exercise("review-a-speedup", "13_verify", "Review a pull request", "REVIEW", data)
