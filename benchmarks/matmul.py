"""Our matrix products against PyTorch's (cuBLAS) and torch.compile's, interleaved in one run.

    python benchmarks/matmul.py                     every case
    python benchmarks/matmul.py square skinny       some: square, odd, float8, epilogue, skinny, float32
    python benchmarks/matmul.py --compile           torch.compile(mode="max-autotune") takes part as well

Inputs are random, because a product of zeros draws less power and so runs at a higher clock. Each function is
checked against float64 on a sample of rows before it is timed. "of torch" is its time divided by ours, with
a 95 % interval: above 1, ours is faster.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from helpers import device
from helpers.kernels.matmul import FP8, matmul_forward
from helpers.kernels.ops import matmul
from helpers.lessons import products
from helpers.timing.interleaved import compare_many

SIZES = (2048, 4096, 8192)


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        name: What is computed.
        m, n, k: The sizes.
        calls: The functions to compare, by name; "ours" and the peer are among them.
        exact: The result in float64 for the first `ROWS` rows.
        peer: The function that the goal refers to, or "copy": the rate at which this GPU copies.
        goal: The least ratio of the peer's time and ours; None if there is no goal.
        n_bytes: The bytes that must be moved, if the product is bound by memory.
        l2: The L2 cache before each call, as in `time_gpu`.
    """

    name: str
    m: int
    n: int
    k: int
    calls: dict[str, Callable[[], torch.Tensor]]
    exact: Callable[[], torch.Tensor]
    peer: str = "torch"
    goal: float | None = None
    n_bytes: int | None = None
    l2: str = "cold"


ROWS = 64


def _random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def _product(m: int, n: int, k: int, dtype: torch.dtype, goal: float | None, name: str = "") -> Case:
    a, b = _random(m, k, dtype=dtype), _random(k, n, dtype=dtype)
    calls = {"torch": lambda: a @ b, "ours": lambda: matmul(a, b)}
    short = str(dtype).removeprefix("torch.")
    return Case(name or f"{short} {m:,} × {n:,} × {k:,}", m, n, k, calls,
                lambda: a[:ROWS].double() @ b.double(), goal=goal)  # fmt: skip


def square() -> Iterator[Case]:
    """bf16 and fp16, n = 2,048 to 8,192."""
    for dtype in (torch.bfloat16, torch.float16):
        for n in SIZES:
            yield _product(n, n, n, dtype, 1.0 if n == 8192 else 0.97)


def odd() -> Iterator[Case]:
    """Sizes that no vector width divides."""
    yield _product(4095, 4097, 4099, torch.bfloat16, 2.0)


def float8() -> Iterator[Case]:
    """e4m3 with a scale per row of a and per column of b, against `torch._scaled_mm`."""
    n = 8192
    a, b = _random(n, n, dtype=FP8), _random(n, n, dtype=FP8).T
    scales = torch.rand(n, device="cuda") + 0.5, torch.rand(n, device="cuda") + 0.5
    for fast in (False, True):
        calls = {
            "torch": lambda fast=fast: torch._scaled_mm(
                a, b, scale_a=scales[0][:, None], scale_b=scales[1][None], out_dtype=torch.bfloat16,
                use_fast_accum=fast,
            ),
            "ours": lambda fast=fast: matmul_forward(
                a, b, scale_a=scales[0], scale_b=scales[1], fast_accumulation=fast
            ),
        }  # fmt: skip
        exact = a[:ROWS].double() * scales[0][:ROWS, None].double()
        yield Case(f"float8 {n:,}³{', fast accumulation' * fast}", n, n, n, calls,
                   lambda exact=exact: exact @ (b.double() * scales[1].double()), goal=0.95)  # fmt: skip


def epilogue() -> Iterator[Case]:
    """Bias and GELU in the product's kernel, against torch.compile."""
    m, n, k = 8192, 4096, 4096
    a, b = _random(m, k, dtype=torch.bfloat16), _random(k, n, dtype=torch.bfloat16)
    bias = _random(n, dtype=torch.bfloat16)
    calls = products.by_torch(a, b, bias) | {"ours": lambda: matmul(a, b, bias, gelu=True)}
    yield Case(f"bias and GELU, bfloat16 {m:,} × {n:,} × {k:,}", m, n, k, calls,
               lambda: products.bias_and_gelu(a[:ROWS].double(), b.double(), bias.double()),
               peer="compiled", goal=1.07)  # fmt: skip


def skinny() -> Iterator[Case]:
    """Few rows against a large matrix, as in decoding: bound by memory, so the peer is a copy of 1 GiB.

    The L2 cache is clean before each call, because a kernel that only reads would otherwise have to wait
    until up to an L2 of another kernel's output is written.
    """
    n = k = 8192
    weights = _random(n, k, dtype=torch.bfloat16)
    for m in (1, 8, 16, 64):
        a = _random(m, k, dtype=torch.bfloat16)
        calls = {"torch": lambda a=a: a @ weights.T, "ours": lambda a=a: matmul(a, weights.T)}
        yield Case(f"bfloat16 {m} × {n:,} × {k:,}", m, n, k, calls,
                   lambda a=a: a.double() @ weights.T.double(), peer="copy", goal=0.9, n_bytes=n * k * 2,
                   l2="clean")  # fmt: skip


def float32() -> Iterator[Case]:
    """float32 with exact products and with TF32, each against cuBLAS in the same precision."""
    n = 4096
    a, b = _random(n, n, dtype=torch.float32), _random(n, n, dtype=torch.float32)

    def by_torch(tf32: bool) -> torch.Tensor:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        return a @ b

    for precision in ("ieee", "tf32"):
        calls = {
            "torch": lambda p=precision: by_torch(p == "tf32"),
            "ours": lambda p=precision: matmul(a, b, precision=p),
        }
        yield Case(f"float32 {n:,}³, {precision}", n, n, n, calls, lambda: a[:ROWS].double() @ b.double())
    torch.backends.cuda.matmul.allow_tf32 = False


CASES = {one.__name__: one for one in (square, odd, float8, epilogue, skinny, float32)}


def off(got: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest error, relative to the size of the result."""
    return ((got[:ROWS].double() - exact).abs().max() / exact.square().mean().sqrt()).item()


def report(case: Case, budget_s: float) -> bool:
    """Checks, times and prints one case; returns whether it reaches its goal."""
    exact = case.exact()
    errors = {name: off(call(), exact) for name, call in case.calls.items()
              if name in ("ours", "torch", "compiled")}  # fmt: skip
    if errors["ours"] > max(4 * errors["torch"], 1e-5):
        raise SystemExit(f"{case.name}: ours is off by {errors['ours']:.2g}, torch by {errors['torch']:.2g}.")
    timings = compare_many(case.calls, against="ours", l2=case.l2, budget_s=budget_s)
    ours = timings["ours"]
    if case.peer == "copy":
        copy_us = case.n_bytes / device.gpu_spec().copy_gb_per_s / 1e3
        ratio, low, high = (copy_us / us for us in (ours.median_us, *reversed(ours.ci95_us)))
    else:
        ratio, (low, high) = timings[case.peer].ratio, timings[case.peer].ratio_ci95
    words = f"{case.name}: {ours.median_us:,.1f} µs, "
    if case.n_bytes:
        words += f"{case.n_bytes / ours.median_us / 1e3:,.0f} GB/s"
    else:
        words += f"{2 * case.m * case.n * case.k / ours.median_us / 1e6:,.0f} TFLOP/s"
    words += f", {ratio:.3f} of {case.peer} ({low:.3f} to {high:.3f})"
    others = [f"{name} {one.median_us:,.1f} µs" for name, one in timings.items() if name != "ours"]
    reached = case.goal is None or ratio >= case.goal
    if case.goal is not None:
        words += f", goal {case.goal:.2f} {'reached' if reached else 'MISSED'}"
    print(
        f"{words}; {', '.join(others)}; off by {errors['ours']:.1g}, torch by {errors['torch']:.1g}",
        flush=True,
    )
    return reached


def main() -> None:
    """Runs the cases that the command line names."""
    parser = argparse.ArgumentParser(description="Our matrix products against their peers.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--compile", action="store_true", help="time torch.compile(mode='max-autotune') too")
    parser.add_argument("--budget", type=float, default=0.6, help="seconds per case")
    args = parser.parse_args()
    if unknown := set(args.cases) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}; choose from {', '.join(CASES)}.")
    try:
        device.require("gpu")
    except device.Missing as missing:
        print(missing)
        return
    print(device.gpu_spec())
    missed = 0
    for name in args.cases or CASES:
        for case in CASES[name]():
            if args.compile and "torch" in case.calls and name in ("square", "odd"):
                case.calls["max-autotune"] = torch.compile(
                    case.calls["torch"], mode="max-autotune-no-cudagraphs", dynamic=False
                )
            missed += not report(case, args.budget)
    print(f"{missed} goals missed")


if __name__ == "__main__":
    main()
