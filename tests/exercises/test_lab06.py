"""The checks of lesson 06 and lab 06: typical wrong attempts are refused with the mistake that they make, and
right ones of any kind are accepted.
"""

from __future__ import annotations

import pytest
import torch
from lab_attempts import Attempt, changed, judge

from helpers.check import wrong_elements
from helpers.exercises import Case
from helpers.exercises.evidence import Evidence
from helpers.exercises.judge import first_wrong
from helpers.exercises.lab06 import softmax

LAB = "06_fusion"

TRAFFIC, CENTER, SHARE, GELU = "softmax-traffic", "center-rows", "share-of-a-copy", "fuse-a-gelu"
PAYS, SOFTMAX, MERGE, WIDE = (
    "fusing-pays",
    "softmax-one-block",
    "merge-softmax-parts",
    "softmax-wide-rows",
)


def _traffic(read: str, written: str, mistake: str = "", says: str = "") -> Attempt:
    """`M`, `N` and `b` stand for rows, columns and bytes an element."""
    body = f"def softmax_traffic(M, N, b):\n    return {read}, {written}\n"
    return Attempt(TRAFFIC, source=body, mistake=mistake, says=says)


_READ, _WRITTEN = "(5 * M * N + 2 * M) * b", "(3 * M * N + 2 * M) * b + 8 * M"


def _merge(body: str, mistake: str = "", says: str = "") -> Attempt:
    text = "\n    ".join(body.split("; "))
    return Attempt(MERGE, source=f"def merge(a, b):\n    {text}\n", mistake=mistake, says=says)


_LARGER = "m = max(a[0], b[0])"
_EMPTY = "if m == -math.inf: return m, 0.0"


def _share(expression: str, mistake: str = "") -> Attempt:
    source = f"def share_of_a_copy(loads, stores):\n    return {expression}\n"
    return Attempt(SHARE, source=source, mistake=mistake)


_THREE_WALKS = """
@triton.jit
def k(y_ptr, x_ptr, row_stride, col_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, BLOCK).to(tl.int64)
    x_ptr += row * row_stride
    m = -float("inf")
    for start in range(0, n_cols, BLOCK):
        cols = start + block
        x = tl.load(x_ptr + cols * col_stride, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + block
        x = tl.load(x_ptr + cols * col_stride, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        s += tl.sum(tl.exp(x - m), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + block
        x = tl.load(x_ptr + cols * col_stride, mask=cols < n_cols).to(tl.float32)
        tl.store(y_ptr + row * n_cols + cols, tl.exp(x - m) / s, mask=cols < n_cols)


def softmax_wide(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        k[(x.shape[0],)](y, x, *x.stride(), x.shape[1], BLOCK=16384)
    return y
"""

ATTEMPTS = {
    # Traffic
    "traffic: one column too few": _traffic("(5 * M * N + M) * b", _WRITTEN, "a-column-forgotten"),
    "traffic: no columns": _traffic("5 * M * N * b", _WRITTEN, "columns-not-read"),
    "traffic: no indices": _traffic(_READ, "(3 * M * N + 2 * M) * b", "indices-forgotten", "max(dim)"),
    "traffic: small indices": _traffic(_READ, "(3 * M * N + 3 * M) * b", "index-size", "int64"),
    "traffic: columns as matrices": _traffic(_READ, "5 * M * N * b", "columns-as-matrices"),
    "traffic: elements": _traffic("5 * M * N + 2 * M", "3 * M * N + 2 * M", "elements-for-bytes"),
    "traffic: exchanged": _traffic(_WRITTEN, _READ, "swapped"),
    "traffic: the fused kernel's": _traffic("M * N * b", "M * N * b", "fused-for-separate"),
    "traffic: one number": Attempt(
        TRAFFIC, source="def softmax_traffic(M, N, b):\n    return 8 * M * N * b\n", mistake="not-two-numbers"
    ),
    "traffic: from tensors": Attempt(
        TRAFFIC,
        source="import numpy as np\n\n\ndef softmax_traffic(M, N, b):\n"
        "    return np.int64((5 * M * N + 2 * M) * b), float((3 * M * N + 2 * M) * b + 8 * M)\n",
    ),
    # Rows, centered
    "center: padded with -inf": changed(CENTER, "other=0.0", 'other=-float("inf")', "padding-in-the-mean"),
    "center: divided by the block": changed(CENTER, "/ n_cols", "/ BLOCK_SIZE", "divided-by-the-block"),
    "center: not divided": changed(CENTER, " / n_cols", "", "sum-subtracted"),
    "center: the mean itself": changed(CENTER, "x - mean, mask", "mean + 0 * x, mask", "mean-only"),
    "center: the maximum": changed(
        CENTER,
        "tl.sum(x, axis=0) / n_cols",
        "tl.max(x, axis=0)",
        "|".join(("maximum-subtracted", "wrong-padding")),
    ),
    "center: no mask": changed(CENTER, "x - mean, mask=mask)", "x - mean)", "missing-mask"),
    "center: masked after the load": changed(
        CENTER, "mean = tl.sum(x, axis=0)", "mean = tl.sum(tl.where(mask, x, 0.0), axis=0)"
    ),
    # A share of a copy
    "share: stores forgotten": _share("100 * 2 / loads", "stores-forgotten"),
    "share: a copy of one pass": _share("100 / (loads + stores)", "one-pass-copy"),
    "share: a fraction": _share("2 / (loads + stores)", "a-fraction"),
    "share: upside down": _share("100 * (loads + stores) / 2", "upside-down"),
    "share: a constant": _share("66.7", "share"),
    "share: text": _share("'2/3'", "not-a-number"),
    # GELU
    "gelu: twice": changed(GELU, "0.5 * x * (", "x * (", "half-forgotten"),
    "gelu: a square": changed(GELU, "x * x * x)", "x * x)", "square-for-cube"),
    "gelu: no factor x": changed(GELU, "0.5 * x * (", "0.5 * (", "x-forgotten"),
    "gelu: no one": changed(GELU, "(1.0 + tanh)", "tanh", "one-forgotten"),
    "gelu: half the exponent": changed(GELU, "-2.0 * u", "-u", "two-forgotten"),
    "gelu: sign": changed(GELU, "-2.0 * u", "2.0 * u", "sign"),
    "gelu: exact": changed(
        GELU,
        "tanh = 2.0 / (1.0 + tl.exp(-2.0 * u)) - 1.0",
        "tanh = tl.math.erf(x * 0.7071067811865476)",
        "exact-form",
    ),
    "gelu: overflows": changed(
        GELU,
        "tanh = 2.0 / (1.0 + tl.exp(-2.0 * u)) - 1.0",
        "e = tl.exp(2.0 * u); tanh = (e - 1.0) / (e + 1.0)",
        "overflow|exp-overflows",
    ),
    "gelu: torch does it": Attempt(
        GELU,
        source="def my_gelu(x):\n    return torch.nn.functional.gelu(x, approximate='tanh')\n",
        mistake="no-launch",
    ),
    "gelu: by a sigmoid": changed(GELU, "0.5 * x * (1.0 + tanh)", "x / (1.0 + tl.exp(-2.0 * u))"),
    # When fusing pays
    "pays: upside down": changed(
        PAYS,
        "return sum(seconds(b, f) for b, f in operations) / fused",
        "return fused / sum(seconds(b, f) for b, f in operations)",
        "upside-down",
    ),
    "pays: kept ignored": changed(PAYS, "n_bytes if kept else 2 * n_bytes", "2 * n_bytes", "kept-ignored"),
    "pays: kept the wrong way": changed(
        PAYS,
        "n_bytes if kept else 2 * n_bytes",
        "2 * n_bytes if kept else n_bytes",
        "kept-upside-down|one-way",
    ),
    "pays: one way": changed(PAYS, "n_bytes if kept else 2 * n_bytes", "n_bytes", "one-way"),
    "pays: bytes only": changed(
        PAYS,
        "max(n_bytes / (gb_per_s * 1e9), flops / (tflop_per_s * 1e12))",
        "n_bytes / (gb_per_s * 1e9)",
        "bytes-only",
    ),
    "pays: sum for the larger": changed(
        PAYS,
        "max(n_bytes / (gb_per_s * 1e9), flops / (tflop_per_s * 1e12))",
        "n_bytes / (gb_per_s * 1e9) + flops / (tflop_per_s * 1e12)",
        "added-for-larger",
    ),
    "pays: one floor for all": changed(
        PAYS,
        "return sum(seconds(b, f) for b, f in operations) / fused",
        "return seconds(sum(b for b, _ in operations), sum(f for _, f in operations)) / fused",
        "one-floor",
    ),
    "pays: nothing saved": changed(PAYS, "- saved", "- 0 * saved", "nothing-saved|wrong-answer"),
    "pays: counted": Attempt(
        PAYS,
        source="def fusing_speedup(operations, passed_on, gb_per_s, tflop_per_s):\n    return "
        "float(len(operations))\n",
        mistake="operations-counted",
        says="a + b and a GELU",
    ),
    "pays: a constant": Attempt(
        PAYS,
        source="def fusing_speedup(operations, passed_on, gb_per_s, tflop_per_s):\n    return 7.0\n",
        mistake="speedup",
        says="longer",
    ),
    "pays: a word": Attempt(
        PAYS,
        source="def fusing_speedup(operations, passed_on, gb_per_s, tflop_per_s):\n    return 'yes'\n",
        mistake="not-a-number",
    ),
    # Softmax in one block
    "softmax: not divided": changed(SOFTMAX, "e / tl.sum(e, axis=0)", "e", "no-sum"),
    "softmax: its logarithm": changed(
        SOFTMAX, "e / tl.sum(e, axis=0)", "tl.log(e / tl.sum(e, axis=0))", "logarithm"
    ),
    "softmax: no mask": changed(SOFTMAX, "axis=0), mask=mask)", "axis=0))", "missing-mask"),
    "softmax: repaired": changed(SOFTMAX, "return y", "return y.nan_to_num(0.0)", "torch-computes"),
    "softmax: torch does it": Attempt(
        SOFTMAX, source="def softmax(x):\n    return torch.softmax(x, 1)\n", mistake="no-launch"
    ),
    "softmax: masked after exp": changed(
        SOFTMAX, "e = tl.exp(x - tl.max(x, axis=0))", "e = tl.where(mask, tl.exp(x - tl.max(x, axis=0)), 0.0)"
    ),
    # Merge
    "merge: sums as they are": _merge(f"{_LARGER}; return m, a[1] + b[1]", "sums-as-they-are"),
    "merge: factors exchanged": _merge(
        f"{_LARGER}; return m, a[1] * math.exp(b[0] - m) + b[1] * math.exp(a[0] - m)", "factors-swapped"
    ),
    "merge: sign": _merge(
        f"{_LARGER}; return m, a[1] * math.exp(m - a[0]) + b[1] * math.exp(m - b[0])", "sign"
    ),
    "merge: absolute sums": _merge(
        f"{_LARGER}; return m, a[1] * math.exp(a[0]) + b[1] * math.exp(b[0])", "absolute-sums"
    ),
    "merge: the first maximum": _merge(
        "return max(a[0], b[0]), a[1] + b[1] * math.exp(b[0] - a[0])", "first-maximum"
    ),
    "merge: the last maximum": _merge("return b[0], a[1] * math.exp(a[0] - b[0]) + b[1]", "maximum"),
    "merge: through the whole sums": _merge(
        f"{_LARGER}; s = a[1] * math.exp(a[0]) + b[1] * math.exp(b[0]); return m, s / math.exp(m)",
        "exp-overflows",
        "differences from the maximum",
    ),
    "merge: through the whole sums, by tensors": _merge(
        f"{_LARGER}; e = lambda v: torch.tensor(v, dtype=torch.float64).exp(); "
        "s = a[1] * e(a[0]) + b[1] * e(b[0]); return m, s / e(m)",
        "exp-overflows",
        "differences from the maximum",
    ),
    "merge: empty parts": _merge(
        f"{_LARGER}; return m, a[1] * math.exp(a[0] - m) + b[1] * math.exp(b[0] - m)", "minus-infinity"
    ),
    "merge: one number": _merge("return max(a[0], b[0])", "not-a-pair"),
    "merge: by tensors": _merge(
        "pair = torch.tensor([a, b], dtype=torch.float64); m = pair[:, 0].max(); "
        "shift = torch.where(m == -math.inf, 0.0, m); return m, (pair[:, 1] * (pair[:, 0] - "
        "shift).exp()).sum()"
    ),
    "merge: by logarithms": _merge(
        f"import numpy as np; {_LARGER}; {_EMPTY}; total = np.logaddexp(a[0] + np.log(a[1]), b[0] + "
        "np.log(b[1])); return m, np.exp(total - m)"
    ),
    # Wide rows
    "wide: one block": changed(
        WIDE,
        "min(triton.next_power_of_2(n_cols), 4096)",
        "triton.next_power_of_2(n_cols)",
        "block-too-large",
        "1,048,576",
    ),
    "wide: only the first block": changed(
        WIDE, "range(0, n_cols, BLOCK_SIZE)", "range(0, BLOCK_SIZE, BLOCK_SIZE)", "only-first-block"
    ),
    "wide: old sum not shrunk": changed(WIDE, "s * tl.exp(m - shift)", "s", "wrong-sum"),
    "wide: no guard for -inf": changed(
        WIDE, 'tl.where(m_new == -float("inf"), 0.0, m_new)', "m_new", "minus-infinity"
    ),
    "wide: maximum of the last block": changed(
        WIDE, "tl.maximum(m, tl.max(x, axis=0))", "tl.max(x, axis=0)", "wrong-maximum"
    ),
    "wide: torch does it": Attempt(
        WIDE, source="def softmax_wide(x):\n    return torch.softmax(x, 1)\n", mistake="no-launch"
    ),
    "wide: three walks": Attempt(WIDE, source=_THREE_WALKS),
}


def test_the_expected_value_is_shown_in_the_results_dtype() -> None:
    right = torch.tensor([[3.196001e-66, 1 / 3]], dtype=torch.float64)
    told = first_wrong(torch.ones(1, 2), right, torch.ones(1, 2, dtype=torch.bool)).splitlines()
    assert told == ["  at (0, 0): got 1, expected 0", "  at (0, 1): got 1, expected 0.3333333"]


def _padded(x: torch.Tensor) -> torch.Tensor:
    """A softmax in whose sums the row's padding counts as zeros."""
    m = x.amax(dim=1, keepdim=True)
    return (x - m).exp() / ((x - m).exp().sum(dim=1, keepdim=True) + (1024 - x.shape[1]) * (-m).exp())


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda x, right: right * torch.tensor([[1.0], [0.997], [1.0]]), "wrong-sum"),
        (lambda x, right: right * torch.tensor([[1.0], [1.2], [1.0]]), "wrong-sum"),
        (lambda x, right: right * (1 + 3e-3 * torch.rand(right.shape)), None),
        (lambda x, right: _padded(x), "padding-counts"),
        (lambda x, right: right, None),
    ],
)
def test_mistakes_close_to_the_right_values_are_distinguished(wrong, mistake) -> None:
    """Two columns of padding in 1,024 change a row by one factor too, and by less than half a per cent."""
    x = torch.randn(3, 1022, generator=torch.Generator().manual_seed(3)) + 0.5
    right = x.double().softmax(dim=1)
    got = wrong(x, right).float()
    tolerance = softmax.TOLERANCE["float32"]
    differs = wrong_elements(got, right, tolerance)
    case = Case("a matrix", (x,))
    seen = Evidence(case, "extra", (x,), (), got, right, differs, {}, torch.softmax, tolerance)
    found = softmax.MISTAKES.first_match(seen)
    assert (found.key if found else None) == mistake


@pytest.mark.seeded
@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempt(name: str, found: dict[str, dict]) -> None:
    judge(name, ATTEMPTS[name], found[name])
