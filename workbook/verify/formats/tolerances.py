"""How FlashInfer-Bench and SOL-ExecBench compare results.

Read in flashinfer-ai/flashinfer-bench (bench/evaluators/default.py and lowbit.py, bench/utils.py,
bench/config.py, of 2025 and 2026): an element is wrong if its absolute error exceeds 1e-2 and its relative
error exceeds 1e-2; all must be right (95 % for mixtures of experts in float8), and none may be infinite or
NaN. Shapes and dtypes must agree.

Read in NVIDIA/SOL-ExecBench (src/sol_execbench/bench/correctness.py, commit 266784c, and data/workload.py,
d5c0656): an element is right if |x - y| <= atol + rtol * |y|, with 1e-2 for both. A workload may have values
of its own under "correctness", with the share of elements that must be right, by default all of them. Newer
workloads have them under "tolerance" instead, with 99 % as the default, a cap on single errors, and a flag
for results that are -inf; that version of workload.py was read in public copies of the project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from workbook.usage import UsageError


@dataclass(frozen=True)
class Rule:
    """What a benchmark accepts.

    Attributes:
        rtol, atol: the permitted relative and absolute error.
        share: the share of elements that must be right.
        is_sum: whether the two errors are added, as SOL-ExecBench does, or an element may use the larger
            one, as in FlashInfer-Bench.
        cap: an absolute error that no element may exceed, or None.
        infinite_agree: whether elements that are -inf in both results are right.
    """

    rtol: float = 1e-2
    atol: float = 1e-2
    share: float = 1.0
    is_sum: bool = False
    cap: float | None = None
    infinite_agree: bool = False

    def __str__(self) -> str:
        how = "atol + rtol * |y|" if self.is_sum else "atol or rtol * |y|"
        share = "all elements" if self.share >= 1 else f"{100 * self.share:g} % of the elements"
        cap = "" if self.cap is None else f", none off by more than {self.cap:g}"
        return f"{share} within {how}, rtol={self.rtol:g}, atol={self.atol:g}{cap}"

    def accepts(self, got: torch.Tensor, expected: torch.Tensor) -> bool:
        """Whether the benchmark would accept one result."""
        if got.shape != expected.shape or got.dtype != expected.dtype:
            return False
        x, y = got.float(), expected.float()
        if not self.is_sum and not x.isfinite().all():
            return False
        if self.infinite_agree:
            both = x.isneginf() & y.isneginf()
            x, y = x.masked_fill(both, 0.0), y.masked_fill(both, 0.0)
        if not x.numel():
            return True
        error = (x - y).abs()
        if self.is_sum:
            wrong = (error > self.atol + self.rtol * y.abs()) | ~error.isfinite()
        else:
            wrong = (error > self.atol) & (error / (y.abs() + 1e-8) > self.rtol)
        if self.cap is not None and not bool((error <= self.cap).all()):
            return False
        return 1 - float(wrong.sum()) / wrong.numel() >= self.share


def flashinfer_rule(definition: Mapping[str, Any]) -> Rule:
    """FlashInfer-Bench's rule for a definition."""
    return Rule(share=0.95 if "moe_fp8_block_scale" in str(definition.get("name")) else 1.0)


def sol_rule(workload: Mapping[str, Any], where: str) -> Rule:
    """SOL-ExecBench's rule for a workload.

    Raises:
        UsageError: its tolerance is malformed.
    """
    name = "correctness" if "correctness" in workload else "tolerance"
    own = workload.get(name) or {}
    try:
        cap = own.get("max_error_cap")
        return Rule(
            rtol=float(own.get("max_rtol", 1e-2)),
            atol=float(own.get("max_atol", 1e-2)),
            share=float(own.get("required_matched_ratio", 0.99 if name == "tolerance" else 1.0)),
            is_sum=True,
            cap=None if cap is None else float(cap),
            infinite_agree=own.get("allow_negative_inf") is True,
        )
    except (AttributeError, TypeError, ValueError):
        raise UsageError(f'"{name}" of {where} is {own!r}; it must be an object with numbers.') from None
