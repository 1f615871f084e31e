"""The functions that `benchmarks/timer_truth.py` times, and the truth by CUPTI, independent of the timer's
code.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from helpers import device
from timer.traps import Fn


def cases() -> dict[str, Callable[[], Fn]]:
    """Thirteen functions with kernels from 1.5 µs to 5 ms, and a copy by the driver; each is created on
    demand.
    """
    import torch

    from helpers.kernels.square import square_flat, square_rows

    def randn(*shape: int, dtype=torch.float32) -> torch.Tensor:
        return torch.randn(shape, device="cuda", dtype=dtype)

    def flat(*shape: int) -> Fn:
        x = randn(*shape)
        return lambda: square_flat(x)

    def rows() -> Fn:
        x = randn(4096, 4096)
        return lambda: square_rows(x)

    def add_then_square() -> Fn:
        x = randn(256, 1024)
        return lambda: torch.square(torch.add(x, 1.0))

    def column_sums() -> Fn:
        x = randn(1024, 4096)
        return lambda: x.sum(dim=0)

    def softmax(*shape: int) -> Fn:
        x = randn(*shape)
        return lambda: torch.softmax(x, dim=-1)

    def log_softmax_bf16() -> Fn:
        x = randn(32768, 4096, dtype=torch.bfloat16)
        return lambda: torch.log_softmax(x, dim=-1)

    def copy() -> Fn:
        x = randn(4096, 1024)
        out = torch.empty_like(x)
        return lambda: out.copy_(x)

    def to_bf16() -> Fn:
        x = randn(4096, 1024)
        return lambda: x.bfloat16()

    def matmul() -> Fn:
        a, b = randn(2048, 2048, dtype=torch.bfloat16), randn(2048, 2048, dtype=torch.bfloat16)
        return lambda: a @ b

    def compiled() -> Fn:
        x = randn(8192, 4096)

        @torch.compile(dynamic=False)
        def gelu_and_scale(x):
            return torch.nn.functional.gelu(x, approximate="tanh") * 2

        return lambda: gelu_and_scale(x)

    return {
        "square_flat 8 × 1,024": lambda: flat(8, 1024),
        "square_flat 512 × 1,024": lambda: flat(512, 1024),
        "softmax 64 × 4,096": lambda: softmax(64, 4096),
        "add, then square 256 × 1,024": add_then_square,
        "sum of columns 1,024 × 4,096": column_sums,
        "to bf16 4,096 × 1,024": to_bf16,
        "copy 4,096 × 1,024": copy,
        "matmul bf16 2,048": matmul,
        "square_rows 4,096 × 4,096": rows,
        "compiled gelu · 2 8,192 × 4,096": compiled,
        "square_flat 16,384 × 8,192": lambda: flat(16384, 8192),
        "log_softmax bf16 32,768 × 4,096": log_softmax_bf16,
        "softmax 32,768 × 4,096": lambda: softmax(32768, 4096),
        "square_flat 114,688 × 16,384": lambda: flat(114688, 16384),
    }


def watched_functions() -> Iterator[tuple[str, str, int, int, Fn]]:
    """Functions that CUPTI may slow: name, dtype, rows, columns, and the function itself."""
    import torch
    from torch.nn import functional

    from helpers.kernels import ops, softmax

    compiled = torch.compile(lambda x: torch.softmax(x, -1), dynamic=False)
    operations: dict[str, Callable] = {
        "torch.square": torch.square,
        "torch.softmax": lambda x: torch.softmax(x, -1),
        "torch.log_softmax": lambda x: torch.log_softmax(x, -1),
        "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
        "sum of rows": lambda x: x.sum(-1),
        "compiled softmax": compiled,
        "softmax_online": softmax.softmax_online,
        "ops.softmax": ops.softmax,
    }
    for n_cols in (1024, 2048, 4096, 8192, 16384, 65536):
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn((1 << 27) // n_cols, n_cols, device="cuda").to(dtype)
            for name, operation in operations.items():
                if n_cols == 4096 or name in ("torch.square", "torch.softmax"):
                    yield name, str(dtype).removeprefix("torch."), *x.shape, lambda f=operation, x=x: f(x)


class Flush:
    """The same flush as `time_gpu`'s, implemented independently: zeros over twice the L2 cache."""

    def __init__(self) -> None:
        import torch

        self._buffer = torch.ones(max(2 * device.gpu_spec().l2_bytes, 32 << 20) // 4, device="cuda")

    def __call__(self) -> None:
        self._buffer.zero_()


@dataclasses.dataclass(frozen=True)
class Call:
    """What ran between two flushes: total µs, number of kernels, and what else ("memset", "memcpy")."""

    us: float = 0.0
    kernels: int = 0
    others: tuple[str, ...] = ()


def split_calls(events: list[dict]) -> list[Call]:
    """Split a Chrome trace into calls: what ran between two flushes, in the GPU's order.

    Args:
        events: the trace's events. The first activity on the GPU is a flush, and so is everything of the
            same kind, name and size. A fill by the function itself (a reduction zeroes its semaphores)
            belongs to the call.
    """
    work = sorted((e for e in events if e.get("cat") in WORK), key=lambda e: e["ts"])
    calls: list[Call] = []
    for event in work:
        if kind_of(event) == kind_of(work[0]):
            calls.append(Call())
            continue
        last, other = calls[-1], event["cat"].removeprefix("gpu_")
        calls[-1] = Call(
            last.us + event["dur"],
            last.kernels + (other == "kernel"),
            last.others if other == "kernel" else (*last.others, other),
        )
    return calls


WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def kind_of(event: dict) -> tuple:
    facts = event.get("args", {})
    return event["cat"], event["name"], str(facts.get("grid")), facts.get("bytes")


LEAD = 12  # calls at the start of a trace that are discarded


def cupti_calls(fn: Fn, n: int, flush: Flush) -> list[Call]:
    """Measure `n` calls, each after a flush, from a Chrome trace; 40 calls before them raise the clocks."""
    import torch

    for _ in range(40):
        flush()
        fn()
    torch.accelerator.synchronize()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA],
        acc_events=True,  # there is only one cycle; without this, PyTorch warns about it
    ) as session:
        for _ in range(LEAD + n):
            flush()
            fn()
        torch.accelerator.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        session.export_chrome_trace(str(path))
        found = split_calls(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"])
    if len(found) != LEAD + n:
        raise RuntimeError(f"the trace holds {len(found)} calls instead of {LEAD + n}")
    return found[LEAD:]


def cupti_samples(fn: Fn, n: int, flush: Flush) -> list[float]:
    """The durations in µs of `cupti_calls`."""
    return [call.us for call in cupti_calls(fn, n, flush)]
