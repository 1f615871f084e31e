"""Our attention against the backends of scaled_dot_product_attention and flex_attention, interleaved.

    python benchmarks/attention.py                      every case
    python benchmarks/attention.py forward decode       some: forward, causal, backward, decode, window

A backend that refuses a case is left out. Each function is checked against float64 on one head before it is
timed. "of flash" is the flash backend's time divided by ours, with a 95 % interval: above 1, ours is faster.
"best" is the fastest backend.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from helpers import device
from helpers.kernels.ops import attention
from helpers.timing.interleaved import RelativeTiming, compare_many

SHAPES = ((4, 32, 4096, 64), (4, 16, 4096, 128), (1, 16, 16384, 128))
DTYPES = (torch.bfloat16, torch.float16)
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
HEADS, KV_HEADS, HEAD_SIZE = 32, 8, 128  # of decoding

compiled_flex = torch.compile(flex_attention, dynamic=False)


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        name: What is computed.
        calls: The functions to compare, by name; "ours" is among them. Each returns its results as a tuple.
        exact: What they return for the first batch and the last head, in float64.
        goals: The least ratio of a peer's time and ours, by the peer's name; "best" is the fastest backend.
        flop: The floating-point operations of the products.
        n_bytes: The bytes that must be moved, if the case is bound by memory.
    """

    name: str
    calls: dict[str, Callable[[], tuple[torch.Tensor, ...]]]
    exact: Callable[[], tuple[torch.Tensor, ...]]
    goals: dict[str, float] = field(default_factory=dict)
    flop: float = 0.0
    n_bytes: int = 0


def _inputs(batch: int, heads: int, kv_heads: int, n_queries: int, n_keys: int, head_size: int,
            dtype: torch.dtype) -> list[torch.Tensor]:  # fmt: skip
    sizes = ((heads, n_queries), (kv_heads, n_keys), (kv_heads, n_keys))
    return [torch.randn(batch, *size, head_size, device="cuda", dtype=dtype) for size in sizes]


def _by_backend(backend: SDPBackend, *qkv: torch.Tensor, **how) -> torch.Tensor:
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(*qkv, **how)


def _last_head(q, k, v, *, is_causal: bool = False, window: int | None = None) -> torch.Tensor:
    """Attention of the first batch and the last head in float64."""
    scores = q[:1, -1:] @ k[:1, -1:].transpose(2, 3) * q.shape[3] ** -0.5
    if is_causal:
        rows = torch.arange(q.shape[2], device=q.device)[:, None]
        cols = torch.arange(k.shape[2], device=q.device)
        hidden = cols > rows if window is None else (cols > rows) | (cols <= rows - window)
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.softmax(scores, 3) @ v[:1, -1:]


def _wide(*qkv: torch.Tensor) -> list[torch.Tensor]:
    return [x[:1, -1:].detach().double().requires_grad_(x.requires_grad) for x in qkv]


def _name(what: str, shape: tuple[int, ...], dtype: torch.dtype) -> str:
    return f"{what}, {str(dtype).removeprefix('torch.')} {' × '.join(f'{n:,}' for n in shape)}"


def _forward(is_causal: bool) -> Iterator[Case]:
    for dtype in DTYPES:
        for batch, heads, n, head_size in SHAPES:
            qkv = _inputs(batch, heads, heads, n, n, head_size, dtype)
            calls = {
                name: lambda backend=backend, qkv=qkv: (_by_backend(backend, *qkv, is_causal=is_causal),)
                for name, backend in BACKENDS.items()
            }
            if dtype == torch.bfloat16:  # each case is compiled again, which takes seconds
                block_mask = _block_mask(n, None) if is_causal else None
                calls["flex"] = lambda qkv=qkv, mask=block_mask: (compiled_flex(*qkv, block_mask=mask),)
            calls["ours"] = lambda qkv=qkv: (attention(*qkv, is_causal=is_causal),)
            yield Case(
                _name("causal" if is_causal else "full", (batch, heads, n, head_size), dtype), calls,
                lambda qkv=qkv: (_last_head(*_wide(*qkv), is_causal=is_causal),),
                {"flash": 1.35, "best": 0.92}, 4 * batch * heads * n * n * head_size / (1 + is_causal),
            )  # fmt: skip


def forward() -> Iterator[Case]:
    """The forward pass without a mask."""
    yield from _forward(False)


def causal() -> Iterator[Case]:
    """The forward pass with a causal mask."""
    yield from _forward(True)


def backward() -> Iterator[Case]:
    """The backward pass alone, without a mask and with a causal one."""
    for is_causal in (False, True):
        for dtype in DTYPES:
            for batch, heads, n, head_size in SHAPES:
                qkv = [x.requires_grad_() for x in _inputs(batch, heads, heads, n, n, head_size, dtype)]
                g = torch.randn_like(qkv[0])
                functions = {
                    name: lambda backend=backend, qkv=qkv, c=is_causal: _by_backend(
                        backend, *qkv, is_causal=c
                    )
                    for name, backend in BACKENDS.items()
                }
                functions["ours"] = lambda qkv=qkv, c=is_causal: attention(*qkv, is_causal=c)
                yield Case(
                    _name(f"backward{', causal' * is_causal}", (batch, heads, n, head_size), dtype),
                    {name: _gradients(function, qkv, g) for name, function in functions.items()},
                    lambda qkv=qkv, g=g, c=is_causal: _exact_gradients(qkv, g, c),
                    {"flash": 1.0}, 10 * batch * heads * n * n * head_size / (1 + is_causal),
                )  # fmt: skip


def _gradients(function: Callable, qkv: list[torch.Tensor], g: torch.Tensor) -> Callable:
    """A function that computes the gradients, and nothing else from its second call on."""
    outputs: list[torch.Tensor] = []

    def call() -> tuple[torch.Tensor, ...]:
        if not outputs:
            outputs.append(function())
        return torch.autograd.grad(outputs[0], qkv, g, retain_graph=True)

    return call


def _exact_gradients(qkv: list[torch.Tensor], g: torch.Tensor, is_causal: bool) -> tuple[torch.Tensor, ...]:
    wide = _wide(*qkv)
    return torch.autograd.grad(_last_head(*wide, is_causal=is_causal), wide, g[:1, -1:].double())


def decode() -> Iterator[Case]:
    """One query per head against a long cache, with grouped heads."""
    for dtype in DTYPES:
        for batch, n_keys in ((8, 32768), (64, 8192)):
            qkv = _inputs(batch, HEADS, KV_HEADS, 1, n_keys, HEAD_SIZE, dtype)
            calls = {
                name: lambda backend=backend, qkv=qkv: (_by_backend(backend, *qkv, enable_gqa=True),)
                for name, backend in BACKENDS.items()
            }
            half = torch.empty_like(qkv[1])
            if dtype == torch.bfloat16:
                calls["flex"] = lambda qkv=qkv: (compiled_flex(*qkv, enable_gqa=True),)
            calls["copy of as many bytes"] = lambda qkv=qkv, half=half: (half.copy_(qkv[1]),)
            calls["ours"] = lambda qkv=qkv: (attention(*qkv, enable_gqa=True),)
            yield Case(
                _name("decode", (batch, n_keys), dtype), calls,
                lambda qkv=qkv: (_last_head(*_wide(*qkv)),), {"best": 0.98},
                n_bytes=2 * qkv[1].numel() * dtype.itemsize,
            )  # fmt: skip


def window() -> Iterator[Case]:
    """A causal mask with a window, against flex_attention."""
    size = 1024
    for batch, heads, n, head_size in SHAPES:
        qkv = _inputs(batch, heads, heads, n, n, head_size, torch.bfloat16)
        mask = _block_mask(n, size)
        calls = {
            "flex": lambda qkv=qkv, mask=mask: (compiled_flex(*qkv, block_mask=mask),),
            "ours": lambda qkv=qkv: (attention(*qkv, window=size),),
        }
        yield Case(
            _name(f"window of {size:,}", (batch, heads, n, head_size), torch.bfloat16), calls,
            lambda qkv=qkv: (_last_head(*_wide(*qkv), is_causal=True, window=size),),
            flop=4 * batch * heads * head_size * (n * size - size * size / 2),
        )  # fmt: skip


def _block_mask(n: int, size: int | None):
    def sees(b, h, row, col):
        return col <= row if size is None else (col <= row) & (col > row - size)

    return create_block_mask(sees, None, None, n, n, device="cuda")


CASES = {one.__name__: one for one in (forward, causal, backward, decode, window)}


def off(got: tuple[torch.Tensor, ...], exact: tuple[torch.Tensor, ...]) -> float:
    """The largest error of any result, relative to the size of that result."""
    return max(
        ((one[:1, -1:].double() - other).abs().max() / other.square().mean().sqrt()).item()
        for one, other in zip(got, exact, strict=True)
    )


def checked(case: Case) -> dict[str, float]:
    """Calls each function once and returns its error; functions that refuse the case are removed."""
    torch.compiler.reset()  # after a few shapes, PyTorch would stop compiling flex_attention
    exact, errors = case.exact(), {}
    for name in list(case.calls):
        if name.startswith("copy"):
            case.calls[name]()
            continue
        try:
            errors[name] = off(case.calls[name](), exact)
        except RuntimeError as error:
            if name == "ours":
                raise
            del case.calls[name]
            print(f"{case.name}: {name} is left out ({str(error).splitlines()[0][:80]})")
    peer = max((error for name, error in errors.items() if name != "ours"), default=0.0)
    if errors["ours"] > max(3 * peer, 1e-3):
        raise SystemExit(f"{case.name}: ours is off by {errors['ours']:.2g}, the others by {peer:.2g}.")
    return errors


def report(case: Case, budget_s: float) -> int:
    """Checks, times and prints one case; returns how many of its goals are missed."""
    errors = checked(case)
    timings = compare_many(case.calls, against="ours", budget_s=budget_s)
    ours = timings["ours"]
    backends = [one for name, one in timings.items() if name in BACKENDS]
    if case.n_bytes:
        rate = f"{case.n_bytes / ours.median_us / 1e3:,.0f} GB/s"
    else:
        rate = f"{case.flop / ours.median_us / 1e6:,.0f} TFLOP/s"
    words, missed = [f"{case.name}: {ours.median_us:,.1f} µs, {rate}"], 0
    for name, goal in case.goals.items():
        peer = min(backends, key=lambda one: one.ratio, default=None) if name == "best" else timings.get(name)
        if peer is None:
            words.append(f"{name} doesn't run")
            continue
        missed += peer.ratio < goal
        words.append(f"{_ratio(name, peer)}, goal {goal:.2f} {'reached' if peer.ratio >= goal else 'MISSED'}")
    others = [f"{name} {one.median_us:,.1f} µs ({one.ratio:.3f})" for name, one in timings.items()
              if name != "ours"]  # fmt: skip
    print("; ".join([*words, ", ".join(others), f"off by {errors['ours']:.1g}"]), flush=True)
    return missed


def _ratio(name: str, peer: RelativeTiming) -> str:
    low, high = peer.ratio_ci95
    label = f"best ({peer.label})" if name == "best" else name
    return f"{peer.ratio:.3f} of {label} ({low:.3f} to {high:.3f})"


def main() -> None:
    """Runs the cases that the command line names."""
    parser = argparse.ArgumentParser(description="Our attention against its peers.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
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
    missed = sum(report(case, args.budget) for name in args.cases or CASES for case in CASES[name]())
    print(f"{missed} goals missed")


if __name__ == "__main__":
    main()
