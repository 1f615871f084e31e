"""Lab 12's checks: typical wrong attempts are refused with the mistake that they make, right ones of any kind
accepted.
"""

from __future__ import annotations

import re

import pytest
from commands import cells
from lab_answers import judged
from lab_attempts import Attempt, changed, judge

from helpers.exercises.lab12 import claim, heads, loads, workloads
from helpers.lab import WriteUp

LAB = "12_attention"
RESCALE, CAUSAL, FIND = "rescale-the-sums", "causal-tiles", "find-the-bug"
SPLIT, WINDOW = "split-the-keys", "sliding-window"

_ACC = "acc = acc * shrink[:, None] + "
_TOTAL = "total = total * shrink + "
_BOTH = ((_ACC, "acc = acc + "), (_TOTAL, "total = total + "))
_SCORES = 'scores = tl.where(sees, tl.dot(q, k.T) * scale, -float("inf"))'
_WEIGHTS = "        weights = tl.exp(scores - new_top[:, None])\n"
_HIDDEN = "        weights = tl.where(sees, weights, 0.0)\n"
_UNMASKED = (_SCORES, "scores = tl.dot(q, k.T) * scale")
_SUM = "tl.sum(weights, axis=1)\n"
_END = "min(n_keys, first_row + BLOCK_M)"


# -------------------------------------------------------------------------------------------- online softmax
ATTEMPTS = {
    "rescale: the solution": Attempt(RESCALE),
    "rescale: not acc": changed(RESCALE, _ACC, "acc = acc + ", "acc-not-rescaled", "weighted sum"),
    "rescale: not total": changed(RESCALE, _TOTAL, "total = total + ", "total-not-rescaled"),
    "rescale: neither": Attempt(RESCALE, _BOTH, "nothing-rescaled", "old maximum"),
    "rescale: the inverse factor": changed(
        RESCALE, "tl.exp(top - new_top)", "tl.exp(new_top - top)", "all-nan"
    ),
    "rescale: only the last tile": Attempt(
        RESCALE, ((_ACC, "acc = "), (_TOTAL, "total = ")), "last-tile-only", "Add to them"
    ),
    "rescale: without a maximum": changed(
        RESCALE, "tl.maximum(top, tl.max(scores, axis=1))", "top * 0", "all-nan"
    ),
    "rescale: by exp alone": Attempt(
        RESCALE,
        (
            ("tl.exp(scores - new_top[:, None])", "tl.exp(scores)"),
            ("tl.exp(top - new_top)", "tl.exp(top * 0)"),
            ("new_top = tl.maximum(top, tl.max(scores, axis=1))", "new_top = tl.maximum(top, 0.0)"),
            ('tl.full((BLOCK_M,), -float("inf"), tl.float32)', "tl.zeros((BLOCK_M,), tl.float32)"),
        ),
        "no-maximum",
        "overflow",
    ),
    "rescale: no scale": changed(RESCALE, "n_keys, head_size**-0.5", "n_keys, 1.0", "scale-forgotten"),
    "rescale: the scale isn't a root": changed(
        RESCALE, "n_keys, head_size**-0.5", "n_keys, 1 / head_size", "wrong-scale"
    ),
    "rescale: powers of 2": Attempt(
        RESCALE,
        (("tl.exp(scores", "tl.exp2(scores"), ("tl.exp(top", "tl.exp2(top")),
        "log2e-forgotten",
    ),
    "rescale: the last tile isn't masked": changed(
        RESCALE,
        'tl.where((keys < n_keys)[None, :], tl.dot(q, k.T) * scale, -float("inf"))',
        "tl.dot(q, k.T) * scale",
        "last-tile-unmasked",
        "keys that don't exist",
    ),
    "rescale: scores of float16": changed(
        RESCALE, "tl.dot(q, k.T) *", "tl.dot(q, k.T).to(tl.float16) *", "half-scores", "65,504"
    ),
    "rescale: masked without other": changed(
        RESCALE, "mask=exists, other=0.0", "mask=exists", "padding-nan", "other=0.0"
    ),
    "rescale: the dot adds": changed(
        RESCALE,
        "acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v)",
        "tl.dot(weights.to(v.dtype), v, acc * shrink[:, None])",
    ),
    "rescale: PyTorch does it": Attempt(
        RESCALE,
        source="def attention(q, k, v):\n    scores = q.float() @ k.float().T * q.shape[1] ** -0.5\n"
        "    return (scores.softmax(dim=1) @ v.float()).half()\n",
        mistake="no-launch",
    ),
    "find: the solution": Attempt(FIND),
    "find: top comes too early": changed(
        FIND,
        "\n        shrink = tl.exp2(top",
        "\n        top = new_top\n        shrink = tl.exp2(top",
        "nothing-rescaled",
    ),
    "find: the starter": Attempt(
        FIND,
        source=cells(f"labs/{LAB}.ipynb")[FIND],
        mistake="nothing-rescaled",
        says="old maximum",
    ),
    "find: rescales acc only": changed(FIND, _TOTAL, "total = total + ", "total-not-rescaled"),
    "find: no log2(e)": changed(FIND, "1.44269504 * head_size", "head_size", "log2e-forgotten"),
    "find: back to exp": Attempt(
        FIND,
        (("tl.exp2(", "tl.exp("), ("1.44269504 * head_size", "head_size")),
    ),
}


# ---------------------------------------------------------------------------------------------- causal mask
def _causal(old: str, new: str, mistake: str = "", says: str = "") -> Attempt:
    return changed(CAUSAL, old, new, mistake, says)


def _late(exercise: str, weights: str, after_sum: bool) -> Attempt:
    """An attempt that hides keys after `exp`, and before or after their weights are summed."""
    late = (_SUM, f"{_SUM}{_HIDDEN}") if after_sum else (weights, f"{weights}{_HIDDEN}")
    return Attempt(exercise, (_UNMASKED, late), "mask-after-exp", "too late")


ATTEMPTS |= {
    "causal: the solution": Attempt(CAUSAL),
    "causal: no mask": _causal(" & (keys[None, :] <= rows[:, None])", "", "not-masked"),
    "causal: not itself": _causal("<= rows", "< rows", "diagonal-hidden", "its own included"),
    "causal: one key more": _causal("<= rows[:, None]", "<= rows[:, None] + 1", "one-key-too-many"),
    "causal: aligned at the end": Attempt(
        CAUSAL,
        (
            (_END, "n_keys"),
            ("keys[None, :] <= rows[:, None]", "keys[None, :] <= rows[:, None] + n_keys - n_queries"),
        ),
        "aligned-at-the-end|too-many-tiles|wrong-values",
    ),
    "causal: a score of 0": _causal('scale, -float("inf"))', "scale, 0.0)", "hidden-score-zero"),
    "causal: masked after the sum": _late(CAUSAL, _WEIGHTS, after_sum=True),
    "causal: masked after exp": _late(CAUSAL, _WEIGHTS, after_sum=False),
    "causal: all tiles": _causal(_END, "n_keys", "too-many-tiles", "instead of"),
    "causal: one tile too many": _causal(
        _END, "min(n_keys, first_row + BLOCK_M + BLOCK_N)", "too-many-tiles"
    ),
    "causal: without the diagonal": _causal(_END, "min(n_keys, first_row)", "tile-missing"),
    "causal: rounded down": _causal(
        _END, "min(n_keys, (first_row + BLOCK_M) // BLOCK_N * BLOCK_N)", "tile-missing"
    ),
    "causal: acc isn't rescaled": _causal(_ACC, "acc = acc + ", "acc-not-rescaled"),
    "causal: no scale": _causal("head_size**-0.5", "1.0", "scale-forgotten"),
    "causal: missing keys": _causal("(keys < n_keys)[None, :] & ", "", "last-tile-unmasked"),
    "causal: loads without a mask": _causal(
        "k_ptr + keys[:, None] * stride_k + cols[None, :], mask=exists, other=0.0",
        "k_ptr + keys[:, None] * stride_k + cols[None, :]",
        "missing-mask",
    ),
    "causal: loads values without a mask": _causal(
        "v_ptr + keys[:, None] * stride_v + cols[None, :], mask=exists, other=0.0",
        "v_ptr + keys[:, None] * stride_v + cols[None, :]",
        "missing-mask",
    ),
    "causal: scores of float16": _causal(
        "tl.dot(q, k.T) *", "tl.dot(q, k.T).to(tl.float16) *", "half-scores"
    ),
    "causal: 32-bit keys": _causal(
        "tl.arange(0, BLOCK_N).to(tl.int64)", "tl.arange(0, BLOCK_N)", "int32-overflow"
    ),
    "causal: 32-bit queries": _causal(
        "(first_row + tl.arange(0, BLOCK_M)).to(tl.int64)",
        "first_row + tl.arange(0, BLOCK_M)",
        "int32-overflow",
    ),
    "causal: contiguous keys": _causal("v.stride(0))", "head_size)", "wrong-stride"),
    "causal: an empty grid": _causal("if o.numel():", "if True:"),
    "causal: rows without a mask": _causal(
        "o.to(o_ptr.dtype.element_ty), mask=inside)", "o.to(o_ptr.dtype.element_ty))", "missing-mask"
    ),
}


# --------------------------------------------------------------------------------------------- split the keys
def _split(old: str, new: str, mistake: str = "", says: str = "") -> Attempt:
    return changed(SPLIT, old, new, mistake, says)


_MERGED = "tl.sum(weights[:, None] * accs, axis=0) / tl.sum(weights * totals, axis=0)"
_TOP = "weights = tl.exp(tops - tl.max(tops, axis=0))"
ATTEMPTS |= {
    "split: the solution": Attempt(SPLIT),
    "split: a plain mean": _split(
        _MERGED,
        "tl.sum(accs / tl.where(totals == 0.0, 1.0, totals)[:, None], axis=0)"
        " / tl.sum((totals > 0.0).to(tl.float32), axis=0)",
        "plain-mean",
        "larger scores",
    ),
    "split: no maxima": _split(_TOP, "weights = tl.exp(tops * 0)", "all-nan|empty-part-nan|maxima-forgotten"),
    "split: weights of 1": _split(_TOP, "weights = tl.where(exists, 1.0, 0.0)", "maxima-forgotten"),
    "split: no sums": _split(
        _MERGED,
        "tl.sum(weights[:, None] * accs / tl.where(totals == 0.0, 1.0, totals)[:, None], axis=0)"
        " / tl.sum(weights, axis=0)",
        "sums-forgotten",
    ),
    "split: parts are divided": _split(
        "cols[None, :], acc, mask",
        "cols[None, :], acc / total[:, None], mask",
        "wrong-values|one-part|empty-part-nan",
    ),
    "split: divided empty parts": Attempt(
        SPLIT,
        (
            ("cols[None, :], acc, mask", "cols[None, :], acc / total[:, None], mask"),
            (
                _MERGED,
                "tl.sum((weights * totals)[:, None] * accs, axis=0) / tl.sum(weights * totals, axis=0)",
            ),
        ),
        "empty-part-nan",
    ),
    "split: no largest maximum": _split(_TOP, "weights = tl.exp(tops)", "no-maximum"),
    "split: each program takes all keys": Attempt(
        SPLIT,
        (
            ("end = min(n_keys, (part + 1) * part_size)", "end = n_keys"),
            ("range(part * part_size, end", "range(0, end"),
        ),
        "not-split",
        "but a part has",
    ),
    "split: whole tiles": _split(
        "(part + 1) * part_size", "(part + 1) * part_size // BLOCK_N * BLOCK_N", "wrong-values|"
    ),
    "split: parts overlap": Attempt(
        SPLIT,
        (
            ("exists = (keys < end)", "exists = (keys < n_keys)"),
            ("where((keys < end)", "where((keys < n_keys)"),
        ),
        "wrong-values|not-split",
    ),
    "split: a program per head": Attempt(
        SPLIT,
        (
            ("part = tl.program_id(0)", "part, own = tl.program_id(0), tl.program_id(1)"),
            ("inside = heads < n_heads", "inside = heads == own"),
            ("part_kernel[(n_parts,)]", "part_kernel[(n_parts, n_heads)]"),
        ),
        "keys-per-head",
        "times the bytes",
    ),
    "split: keys that aren't there": _split(
        'tl.where((keys < end)[None, :], tl.dot(q, k.T) * scale, -float("inf"))',
        "tl.dot(q, k.T) * scale",
        "last-tile-unmasked|wrong-values",
    ),
    "split: acc isn't rescaled": _split(_ACC, "acc = acc + ", "acc-not-rescaled"),
    "split: 32-bit keys": _split(
        "tl.arange(0, BLOCK_N).to(tl.int64)", "tl.arange(0, BLOCK_N)", "int32-overflow"
    ),
    "split: missing parts have a maximum of 0": _split(
        'other=-float("inf"))\n    totals', "other=0.0)\n    totals", "no-maximum"
    ),
}


# ------------------------------------------------------------------------------------------- sliding window
def _window(old: str, new: str, mistake: str = "", says: str = "") -> Attempt:
    return changed(WINDOW, old, new, mistake, says)


_SHIFT = 'shift = tl.where(new_top == -float("inf"), 0.0, new_top)'
_FIRST = "max(first_row - window + 1, 0) // BLOCK_N * BLOCK_N"
_WINDOWED = "        weights = tl.exp(scores - shift[:, None])\n"
ATTEMPTS |= {
    "window: the solution": Attempt(WINDOW),
    "window: no window": _window(
        "        sees &= keys[None, :] > rows[:, None] - window\n", "", "window-forgotten|wrong-values"
    ),
    "window: no window, all tiles": Attempt(
        WINDOW,
        (("        sees &= keys[None, :] > rows[:, None] - window\n", ""), (_FIRST, "0")),
        "window-forgotten",
    ),
    "window: one key more": _window("> rows", ">= rows", "window-off-by-one|first-tile-missing"),
    "window: one key fewer": _window("- window\n", "- window + 1\n", "window-off-by-one"),
    "window: NaN": _window(_SHIFT, "shift = new_top", "hidden-tile-nan", "Subtract 0"),
    "window: divides by 0": _window(
        "tl.where(total == 0.0, 1.0, total)[:, None]", "total[:, None]", "hidden-tile-nan"
    ),
    "window: all tiles": _window(_FIRST, "0", "too-many-tiles", "instead of"),
    "window: one tile too many": _window(
        _FIRST, "max(first_row - window + 1 - BLOCK_N, 0) // BLOCK_N * BLOCK_N", "too-many-tiles"
    ),
    "window: a tile too late": _window(
        _FIRST, "tl.cdiv(max(first_row - window + 1, 0), BLOCK_N) * BLOCK_N", "first-tile-missing"
    ),
    "window: tiles to the end": _window(_END, "n_keys", "too-many-tiles"),
    "window: masked after the sum": Attempt(
        WINDOW, (_UNMASKED, (_SUM, f"{_SUM}{_HIDDEN}")), "mask-after-exp|wrong-values"
    ),
    "window: a score of 0": _window('scale, -float("inf"))', "scale, 0.0)", "hidden-score-zero|wrong-values"),
    "window: a finite score": Attempt(
        WINDOW,
        (('scale, -float("inf"))', "scale, -1e30)"), (_SHIFT, "shift = new_top")),
        "keyless-query",
        "same weight",
    ),
    "window: only before": _window(
        "sees = (keys < n_keys)[None, :] & (keys[None, :] <= rows[:, None])",
        "sees = (keys < n_keys)[None, :] & (keys[None, :] < n_keys)",
        "only-window|wrong-values",
    ),
}


@pytest.mark.seeded
@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempt(name: str, found: dict[str, dict]) -> None:
    judge(name, ATTEMPTS[name], found[name])


# --------------------------------------------------------------------------------------------- counted loads
@pytest.mark.parametrize("window", [None, 1, 16, 20, 200])
@pytest.mark.parametrize(("block_m", "block_n"), [(16, 16), (16, 32), (64, 16)])
@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (64, 64), (70, 41), (33, 130), (61, 3)])
def test_the_allowed_tiles_are_those_with_a_visible_key(n_queries, n_keys, block_m, block_n, window) -> None:
    tiles = loads.key_tiles(n_queries, n_keys, block_m, block_n, window)
    for first_row, (first, end) in zip(range(0, n_queries, block_m), tiles, strict=True):
        whole = -(-n_keys // block_n) * block_n
        seen = heads.visible(first_row + block_m, whole, window)[first_row:].any(dim=0)
        for start in range(0, n_keys, block_n):
            assert bool(seen[start : start + block_n].any()) == (first <= start < end), (first_row, start)


# ----------------------------------------------------------------------------------------------- a claim
def _write_up(finding: str, change: str, *undecided: str, **figures: float) -> WriteUp:
    """A write-up with the right figures, except for those given here."""
    data = claim.data()
    names = ("ridge", "flops_per_byte_prompt", "flops_per_byte_token", "flops_per_byte_three_kernels")
    given = {name: data.figures[name].value for name in names} | figures
    words = f"""The ridge of this data sheet is at {given["ridge"]:.0f} operations per byte. A prompt is above
    it and a token is below it, so the claim is neither right nor wrong as it stands. How fast a kernel really
    is nobody has measured here, so I leave that open."""
    return WriteUp(finding=finding, figures=given, change=change, words=words, undecided=undecided)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (_write_up("depends-on-the-queries", "fuse-the-prompt", "the-exponentials"), ""),
        (_write_up("one-token-is-bound-by-memory", "share-key-heads", "other-gpus", gain=3.9), ""),
        (_write_up("three-kernels-are-bound-by-memory", "fuse-the-prompt", "the-backward-pass"), ""),
        (_write_up("claim-holds", "fuse-the-prompt", "other-gpus"), "finding-contradicted"),
        (_write_up("never-bound-by-memory", "fuse-the-prompt", "other-gpus"), "finding-contradicted"),
        (_write_up("long-caches-are-bound-by-math", "fuse-the-prompt", "other-gpus"), "finding-contradicted"),
        (_write_up("the-kernel-reaches-its-bound", "fuse-the-prompt", "other-gpus"), "not-decided"),
        (_write_up("depends-on-the-queries", "batch-more-tokens", "other-gpus"), "change-contradicted"),
        (_write_up("depends-on-the-queries", "more-tflops-for-tokens", "other-gpus"), "change-contradicted"),
        (_write_up("depends-on-the-queries", "store-keys-in-8-bits", "other-gpus"), "not-decided"),
        (_write_up("depends-on-the-queries", "share-key-heads", "other-gpus"), "incomplete"),
        (
            _write_up("depends-on-the-queries", "share-key-heads", "other-gpus", gain=5),
            "prediction-impossible",
        ),
        (_write_up("depends-on-the-queries", "fuse-the-prompt", "whether-a-batch-helps"), "decided"),
        (_write_up("depends-on-the-queries", "fuse-the-prompt"), "incomplete"),
        (
            _write_up("depends-on-the-queries", "fuse-the-prompt", "other-gpus", ridge=989),
            "figure-contradicted",
        ),
        (WriteUp(), "to-do"),
    ],
)
def test_a_claim_about_attention(answer: WriteUp, mistake: str) -> None:
    verdict = judged("bound-by-memory", answer)
    assert (verdict.passed, verdict.mistake) == (not mistake, mistake), verdict


def test_the_bytes_of_one_token_are_those_of_its_tensors() -> None:
    rows = claim.counted()
    cache = 2 * 8 * 32_768 * 128 * 2  # k and v of 8 heads
    assert rows.bytes[workloads.GROUPED] == cache + 2 * 32 * 128 * 2
    assert rows.flops[workloads.GROUPED] == 2 * (2 * 32 * 32_768 * 128)


def test_the_task_lists_exactly_the_names_that_the_check_knows() -> None:
    data, about = claim.data(), cells(f"labs/solutions/{LAB}.ipynb")["about-bound-by-memory"]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", about, re.MULTILINE))
    for field, names in (("finding", data.findings), ("change", data.changes), ("undecided", data.questions)):
        assert set(re.findall(r"`([a-z0-9-]+)`", rows[field])) == set(names), field
    assert set(re.findall(r"`(\w+)`", rows["figures"])) == {*data.figures, *data.predicted}
