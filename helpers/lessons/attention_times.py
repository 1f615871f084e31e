"""What lesson 12 measures on a GPU, the memory and the speed of attention, as the rows of records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

DEVICE = "cuda"


def measure_memory(functions: Mapping[str, Attention], lengths: Iterable[int]) -> list[dict[str, Any]]:
    """Measures how much memory each function needs beyond its inputs, for 128 heads of size 64 in bfloat16.

    Returns:
        A row per length and function: `n`, `kernel`, and `peak_gb`, or None if the memory ran out.
    """
    import torch

    rows = []
    for n in lengths:
        q, k, v = _inputs((4, 32, n, 64), torch.bfloat16)
        for name, function in functions.items():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            try:
                function(q, k, v)
                peak = (torch.cuda.max_memory_allocated() - before) / 1e9
            except torch.OutOfMemoryError:
                peak = None
            rows.append({"n": n, "kernel": name, "peak_gb": peak})
    return rows


def time_forward(
    functions: Mapping[str, Attention], shapes: Iterable[tuple[int, int, int, int]], *, budget_s: float = 0.6
) -> list[dict[str, Any]]:
    """Checks functions against float64 and times them in turns, together with PyTorch's three backends.

    Args:
        functions: Attention by name.
        shapes: (batch, heads, n, head size), for q, k and v in bfloat16.
        budget_s: Seconds of measurement per shape.

    Returns:
        A row per shape and function: `shape`, `kernel`, `median_us`, `ci_low_us`, `ci_high_us`, and
        `tflop_per_s`. A backend that refuses a shape is left out.
    """
    import torch

    rows = []
    for shape in shapes:
        q, k, v = _inputs(shape, torch.bfloat16)
        calls = {name: lambda f=f, q=q, k=k, v=v: f(q, k, v) for name, f in (backends() | functions).items()}
        flop = 4 * math.prod(shape) * shape[2]
        for row in _timed(calls, _exact(q, k, v), budget_s):
            tflops = {"tflop_per_s": flop / row["median_us"] / 1e6}
            rows.append({"shape": " × ".join(f"{n:,}" for n in shape)} | row | tflops)
    return rows


def time_masks(
    full: Mapping[str, Attention], causal: Mapping[str, Attention], lengths: Iterable[int]
) -> list[dict[str, Any]]:
    """Times functions with a causal mask and without one, for 64 heads of size 64 in bfloat16.

    Args:
        full: Attention without a mask, by name.
        causal: Attention with a causal mask, by the same names.
        lengths: The values of n.

    Returns:
        A row per length and function: `n`, `kernel`, `full_us`, `causal_us`, and `gain`, the ratio of both.
    """
    import torch

    rows = []
    for n in lengths:
        q, k, v = _inputs((4, 16, n, 64), torch.bfloat16)
        us: dict[str, dict[str, float]] = {}
        for kind, functions in {"full_us": full, "causal_us": causal}.items():
            calls = {name: lambda f=f, q=q, k=k, v=v: f(q, k, v) for name, f in functions.items()}
            for row in _timed(calls, _exact(q, k, v, is_causal=kind == "causal_us"), 0.4):
                us.setdefault(row["kernel"], {})[kind] = row["median_us"]
        for name, both in us.items():
            rows.append({"n": n, "kernel": name} | both | {"gain": both["full_us"] / both["causal_us"]})
    return rows


def time_decoding(
    functions: Mapping[str, Attention], batch: int, n_keys: int, *, heads: int = 32, kv_heads: int = 8,
    head_size: int = 128,
) -> list[dict[str, Any]]:  # fmt: skip
    """Times attention of one query per head to a long cache in bfloat16, together with PyTorch's own.

    Args:
        functions: Attention by name, for q of (batch, heads, 1, head_size).
        batch, n_keys, heads, kv_heads, head_size: The sizes of the cache.

    Returns:
        A row per function: `kernel`, `median_us`, `ci_low_us`, `ci_high_us`, and `gb_per_s`, counting that
        the keys and values are read once.
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    q = torch.randn(batch, heads, 1, head_size, device=DEVICE, dtype=torch.bfloat16)
    k, v = (
        torch.randn(batch, kv_heads, n_keys, head_size, device=DEVICE, dtype=torch.bfloat16) for _ in range(2)
    )
    own = {"torch": lambda q, k, v: scaled_dot_product_attention(q, k, v, enable_gqa=True)}
    calls = {name: lambda f=f: f(q, k, v) for name, f in (own | dict(functions)).items()}
    n_bytes = 2 * k.numel() * k.element_size()
    return [
        row | {"gb_per_s": n_bytes / row["median_us"] / 1e3} for row in _timed(calls, _exact(q, k, v), 0.6)
    ]


# Each kernel runs twice, and only its second launch is counted. 4 × 16 heads of 4,096 tokens, size 128.
_SCRIPT = """
import torch
from helpers.kernels.attention import attention_forward
from helpers.lessons.attention_times import backends

q, k, v = (torch.randn(4, 16, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
calls = backends() | {"the workbook's": lambda q, k, v: attention_forward(q, k, v)[0]}
del calls["torch, efficient"]
for name, call in calls.items():
    call(q, k, v)
    with torch.cuda.nvtx.range("counted"), torch.cuda.nvtx.range(name):
        call(q, k, v)
torch.cuda.synchronize()
"""
_BUSY = {
    "tensor_percent": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "exp_percent": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_elapsed",
}


def count_busy_units() -> list[dict[str, Any]]:
    """Counts how busy an SM's units are with attention, in the workbook's kernel and in PyTorch's.

    Returns:
        A row per kernel: `kernel`, `us`, and the percentage of all cycles in which the tensor cores multiply
        (`tensor_percent`), the units for exponentials take an instruction (`exp_percent`), and a scheduler
        issues an instruction (`issue_percent`).

    Raises:
        records.CannotMeasure: Nsight Compute can't count on this machine.
    """
    from helpers import ncu

    metrics = ["gpu__time_duration.sum", *_BUSY.values()]
    longest: dict[str, Any] = {}
    for kernel in ncu.count(_SCRIPT, nvtx="counted", set=None, metrics=metrics):
        for name in set(kernel.nvtx) - {"counted"}:
            if name not in longest or kernel.duration_us > longest[name].duration_us:
                longest[name] = kernel
    return [
        {"kernel": name, "us": one.duration_us}
        | {column: float(one.metrics[metric]) for column, metric in _BUSY.items()}
        for name, one in longest.items()
    ]


def backends() -> dict[str, Attention]:
    """PyTorch's three kernels for scaled_dot_product_attention, by name."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def by(backend: SDPBackend) -> Attention:
        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **how: Any) -> torch.Tensor:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q, k, v, **how)

        return attend

    names = {"torch, flash": SDPBackend.FLASH_ATTENTION, "torch, cuDNN": SDPBackend.CUDNN_ATTENTION,
             "torch, efficient": SDPBackend.EFFICIENT_ATTENTION}  # fmt: skip
    return {name: by(backend) for name, backend in names.items()}


def _inputs(shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    import torch

    return [torch.randn(shape, device=DEVICE, dtype=dtype) for _ in range(3)]


def _exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, is_causal: bool = False) -> torch.Tensor:
    """Attention of the first batch and the last head in float64; that of q belongs to the last one of k."""
    import torch

    q, k, v = (x[:1, -1:].double() for x in (q, k, v))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if is_causal:
        n = q.shape[2]
        hidden = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return torch.softmax(scores, -1) @ v


def _off(ours: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest error, relative to the size of the query's result: under a causal mask, those of the first
    queries are means of few values, and much larger than the others.
    """
    errors = (ours.double() - exact).abs().amax(-1)
    return (errors / exact.square().mean(-1).sqrt()).max().item()


def _timed(
    calls: Mapping[str, Callable[[], torch.Tensor]], exact: torch.Tensor, budget_s: float
) -> list[dict[str, Any]]:
    """Checks the last head of each result, leaves out functions that refuse their arguments, and times the
    others in turns.

    Raises:
        ValueError: A function is wrong.
    """
    from helpers.timing.interleaved import compare_many

    able = {}
    for name, call in calls.items():
        try:
            result = call()
        except RuntimeError as refusal:
            if "No available kernel" not in str(refusal):
                raise
            continue
        if not (error := _off(result[:1, -1:], exact)) <= 0.1:  # nor may it be NaN
            raise ValueError(f"{name} is wrong: a query's result is off by {error:.2g} of its size.")
        able[name] = call
    timings = compare_many(able, against=next(iter(able)), budget_s=budget_s)
    return [
        {
            "kernel": name,
            "median_us": one.median_us,
            "ci_low_us": one.ci95_us[0],
            "ci_high_us": one.ci95_us[1],
        }
        for name, one in timings.items()
    ]
