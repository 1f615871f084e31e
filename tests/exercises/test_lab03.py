"""Lab 03's checks: typical wrong attempts are refused with the mistake that they make, right ones of any kind
accepted.
"""

from __future__ import annotations

import ast

import pandas as pd
import pytest
from lab_attempts import Attempt, changed, judge, solution_cells

LAB = "03_triton"

CUBE, CLAIM, DRAFT, SUM = ("cube-rows", "claimed-and-real", "fix-the-draft", "sum-rows")
SHARE, FLIP, CATCH, NORM = (
    "programs-and-elements",
    "flip-rows",
    "catch-wrong-kernels",
    "rms-norm-rows",
)


def _share(body: str, mistake: str = "", says: str = "") -> Attempt:
    return Attempt(SHARE, source=f"def share(n, b, p):\n    {body}\n", mistake=mistake, says=says)


_UP = "-(-n // b)"
_LEFT = "max(0, min(b, n - p * b))"

_FLIP_KERNEL = """
@triton.jit
def k(y_ptr, x_ptr, row_stride, col_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    {body}


def flip_rows(x):
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        {launch}
    return y
"""


def _flip(body: str, launch: str, mistake: str = "") -> Attempt:
    source = _FLIP_KERNEL.format(body="\n    ".join(body.split("; ")), launch=launch)
    return Attempt(FLIP, source=source, mistake=mistake)


_FLIP_LAUNCH = (
    "k[(x.shape[0],)](y, x, *x.stride(), x.shape[1], BLOCK_SIZE=triton.next_power_of_2(x.shape[1]))"
)


def _is_right(body: str, mistake: str = "", says: str = "") -> Attempt:
    text = "\n    ".join(body.split("; "))
    return Attempt(CATCH, source=f"def is_right(kernel):\n    {text}\n", mistake=mistake, says=says)


def _torch_norm(body: str, mistake: str) -> Attempt:
    return Attempt(NORM, source=f"def rms_norm(x, weight, eps=1e-6):\n    {body}\n", mistake=mistake)


ATTEMPTS = {
    # Which elements a program processes
    "share: rounded down": _share(f"return n // b, p * b, {_LEFT}", "rounded-down", "round up"),
    "share: always one more": _share(f"return n // b + 1, p * b, {_LEFT}", "one-too-many"),
    "share: no mask": _share(f"return {_UP}, p * b, b", "no-mask"),
    "share: below zero": _share(f"return {_UP}, p * b, min(b, n - p * b)", "less-than-none", "0 elements"),
    "share: remainder": _share(f"return {_UP}, p * b, n % b if p == n // b else b", "even-blocks|no-mask"),
    "share: first is the program": _share(f"return {_UP}, p, {_LEFT}", "first-element"),
    "share: nothing returned": _share("pass", "not-three-numbers"),
    "share: by counting": _share(
        "r = range(0, n, b); return len(r), p * b, len(range(n)[p * b : p * b + b])"
    ),
    "share: a list": _share(f"return [{_UP}, p * b, {_LEFT}]"),
    # Fix a kernel
    "flip: masked, strides taken for granted": _flip(
        "mask = cols < n_cols; x = tl.load(x_ptr + row * n_cols + n_cols - 1 - cols, mask=mask); "
        "tl.store(y_ptr + row * n_cols + cols, x, mask=mask)",
        _FLIP_LAUNCH,
        "wrong-stride|contiguous-only",
    ),
    "flip: load without a mask": changed(
        FLIP, "from_cols * x_col_stride, mask=mask", "from_cols * x_col_stride", "missing-mask"
    ),
    "flip: 32-bit columns": changed(
        FLIP, "(n_cols - 1 - cols).to(tl.int64)", "n_cols - 1 - cols", "int32-overflow", "whose columns lie"
    ),
    "flip: not reversed": changed(FLIP, "n_cols - 1 - cols", "cols", "not-reversed"),
    "flip: torch does it": Attempt(
        FLIP, source="def flip_rows(x):\n    return x.flip(1)\n", mistake="no-launch"
    ),
    "flip: by tl.flip": _flip(
        "mask = BLOCK_SIZE - 1 - cols < n_cols; "
        "x = tl.load(x_ptr + row * row_stride + (BLOCK_SIZE - 1 - cols).to(tl.int64) * col_stride, "
        "mask=mask); "
        "at = n_cols - BLOCK_SIZE + cols; tl.store(y_ptr + row * n_cols + at, x, mask=mask)",
        _FLIP_LAUNCH,
    ),
    # Catch wrong kernels
    "catch: as given": _is_right(
        "x = torch.randn(8, 512, device=where); expected = torch.square(x); "
        "return torch.allclose(kernel(x), expected)",
        "misses-first-1024",
        "first 1,024 columns",
    ),
    "catch: always True": _is_right("return True", "misses-signed"),
    "catch: always False": _is_right("return False", "refuses-torch-square"),
    "catch: no answer": _is_right("kernel(torch.ones(2, 2))", "no-answer", "True or False"),
    "catch: its own mistake": _is_right("return nowhere", "raises-on-right", "NameError"),
    "catch: the workbook's test alone": _is_right(
        "checks.assert_matches(kernel, torch.square); return True", "misses-first-8192"
    ),
    "catch: to the last bit": changed(
        CATCH,
        "torch.allclose(got, expected, equal_nan=True)",
        "torch.equal(got.nan_to_num(), expected.nan_to_num())",
        "refuses-rounding",
    ),
    "catch: without poison": changed(
        CATCH,
        "with checks.poisoned():",
        "torch.randn_like(x)  # its memory is what comes next\n        if True:",
        "misses-lucky-memory",
        "poisoned",
    ),
    "catch: the input is not looked at": changed(
        CATCH,
        "not torch.equal(x.nan_to_num(), before.nan_to_num()) or ",
        "",
        "misses-in-place|misses-uses-input",
    ),
    "catch: no view": changed(
        CATCH, "[1:5, 100:881]  #", ".clone()  #", "misses-ignores-strides", "wider matrix"
    ),
    "catch: no empty matrix": changed(CATCH, "(0, 5), (3, 0), ", "", "misses-without-elements"),
    "catch: first result not kept": changed(
        CATCH,
        " or not same(first, before * before):\n            return False\n    return True",
        ":\n            return False\n    return True",
        "misses-shared-output",
    ),
    "catch: infinity in the last place": changed(
        CATCH,
        "        before = x.clone()\n",
        "        if x.numel():\n            x[-1, -1] = float('inf')\n        before = x.clone()\n",
        "misses-one-element",
        "hid the error",
    ),
    "catch: by exceptions": changed(
        CATCH, "            return False\n", "            raise AssertionError\n"
    ),
    # RMS norm
    "norm: mean over the block": changed(NORM, "/ n_cols + eps", "/ BLOCK_SIZE + eps", "block-for-columns"),
    "norm: nothing for the masked-off part": changed(NORM, ", other=0.0", "", "no-other", "other=0.0"),
    "norm: no mean": changed(NORM, "/ n_cols + eps", "+ eps", "sum-for-mean"),
    "norm: no epsilon": changed(NORM, " + eps", "", "no-epsilon"),
    "norm: epsilon after the root": changed(
        NORM,
        "tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)",
        "1 / (tl.sqrt(tl.sum(x * x, axis=0) / n_cols) + eps)",
        "epsilon-outside",
    ),
    "norm: no weight": changed(NORM, " * weight, mask", ", mask", "no-weight"),
    "norm: dtype kept inside": changed(NORM, ".to(tl.float32)", "", "overflow"),
    "norm: 32-bit columns": changed(
        NORM,
        "tl.arange(0, BLOCK_SIZE).to(tl.int64)",
        "tl.arange(0, BLOCK_SIZE)",
        "int32-overflow",
        "whose columns lie",
    ),
    "norm: layer norm": changed(
        NORM,
        "    scale =",
        "    x = tl.where(mask, x - tl.sum(x, axis=0) / n_cols, 0.0)\n    scale =",
        "centred",
    ),
    "norm: Python's root": changed(
        NORM,
        "tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)",
        "1 / __import__('math').sqrt(tl.sum(x * x, axis=0) / n_cols + eps)",
        "python-sqrt|raises",  # where the mean is below 1 the integer is 0
        "tl.rsqrt",
    ),
    "norm: Python's sum": changed(NORM, "tl.sum(x * x, axis=0)", "sum(x * x)", "raises", "tl.sum"),
    "norm: torch does it": _torch_norm(
        "return torch.nn.functional.rms_norm(x.float(), x.shape[1:], weight.float(), eps).to(x.dtype)",
        "no-launch",
    ),
    "norm: square root and division": changed(NORM, "tl.rsqrt(", "1.0 / tl.sqrt("),
    # Inside the lesson
    "cube: no mask": changed(CUBE, ", mask=mask)", ")", "missing-mask|missing-mask/outside|outside-writes"),
    "cube: a square": changed(CUBE, "x * x * x, mask", "x * x, mask", "squared"),
    "cube: a fixed block": changed(
        CUBE, "triton.next_power_of_2(x.shape[1])", "128", "only-first-block|fast-but-partial"
    ),
    "cube: one program": changed(CUBE, "[(x.shape[0],)]", "[(1,)]", "only-first-block|fast-but-partial"),
    "claim: reads only": changed(CLAIM, "claimed = 8", "claimed = 4", "half"),
    "claim: bytes per second": changed(CLAIM, " / 1e3\n    real", "\n    real", "unit"),
    "claim: no bytes": changed(CLAIM, "8 * n_rows * n_cols", "n_rows * n_cols", "claimed"),
    "claim: whole rows": changed(CLAIM, "min(n_cols, block_size)", "n_cols", "whole-rows"),
    "claim: whole blocks": changed(CLAIM, "min(n_cols, block_size)", "block_size", "whole-block"),
    "claim: one number": changed(CLAIM, "return claimed, real", "return claimed", "not-two-numbers"),
    "draft: its own size": changed(
        DRAFT, "    xoffset =", "    xnumel = 1423763\n    xoffset =", "constant-size", "1,423,763"
    ),
    "draft: rounded down": changed(
        DRAFT, "(triton.cdiv(x.numel(), 4096),)", "(x.numel() // 4096,)", "missing-tail|only-first-block"
    ),
    "sum: no other": changed(SUM, ", other=0.0", "", "masked-off", "masked-off"),
    "sum: a mean": changed(SUM, "tl.sum(x, axis=0))", "tl.sum(x, axis=0) / n_cols)", "mean"),
    "sum: Python's sum": changed(SUM, "tl.sum(x, axis=0)", "sum(x)", "python-sum|raises", "tl.sum"),
}


@pytest.mark.seeded
@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempt(name: str, found: dict[str, dict]) -> None:
    judge(name, ATTEMPTS[name], found[name])


def test_the_lab_prints_both_times_of_the_normalization(capsys):
    class Records:
        @staticmethod
        def measured(name, live, stand_in):
            assert stand_in == "the solution's kernel"  # what a replay says its figures are of
            return pd.DataFrame({"kernel": ["in operations", "in one kernel"], "median_us": [712.4, 101.6]})

    *_, took, told = ast.parse(solution_cells(LAB)["won-rms-norm-rows"]).body
    exec(compile(ast.Module([took, told], []), "cell", "exec"), {"records": Records, "time_both": None})
    printed = capsys.readouterr().out
    assert "102 µs" in printed and "712 µs" in printed
