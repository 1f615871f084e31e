"""Lesson 02's kernels with their launchers, and what is measured of them.

The launchers take addresses, so that a build needs none of PyTorch's headers. `time_*` need a GPU; they are
the live half of `records.measured`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from helpers import check, cuda, timing

if TYPE_CHECKING:
    import torch

NAMES = ("one", "four in turn", "four, loads first", "eight, loads first", "neighbours", "float4")
_SIGNATURE = (
    "const char* square_rung(int64_t rung, int64_t threads, int64_t x, int64_t y, int64_t n, int64_t stream)"
)
_LAUNCHER = f"""
{_SIGNATURE} {{
    decltype(&one_kernel) kernels[] = {{one_kernel, in_turn_kernel, loads_first_kernel<4>,
                                       loads_first_kernel<8>, neighbours_kernel, float4_kernel}};
    const int64_t elements[] = {{1, 4, 4, 8, 4, 4}};  // per thread
    if (rung == 5 && (x | y) % 16) rung = 2;  // a float4 begins at a multiple of 16 bytes
    int64_t block = threads * elements[rung];
    auto kernel = kernels[rung];
    kernel<<<(n + block - 1) / block, threads, 0, (cudaStream_t)stream>>>((const float*)x, (float*)y, n);
    return cudaGetErrorString(cudaGetLastError());
}}
"""


def build(text: str) -> Callable[[torch.Tensor, int, int], torch.Tensor]:
    """Builds the kernels of lesson 02's ladder.

    Args:
        text: the CUDA source of `one_kernel`, `in_turn_kernel`, `loads_first_kernel`, `neighbours_kernel` and
            `float4_kernel`.

    Returns:
        `square(x, rung, threads)`: the square of a contiguous tensor by the kernel number `rung` of `NAMES`,
        in blocks of `threads`.
    """
    module = cuda.load_cuda(
        "ladder", f"#include <cstdint>\n{text}{_LAUNCHER}", ["square_rung"],
        cpp_source=f"#include <cstdint>\n{_SIGNATURE};", torch_headers=False,
    )  # fmt: skip

    def square(x: torch.Tensor, rung: int, threads: int = 256) -> torch.Tensor:
        import torch

        if not x.is_contiguous():
            raise ValueError("square: x must be contiguous; call .contiguous() first")
        y = torch.empty_like(x)
        if x.numel():
            stream = torch.cuda.current_stream().cuda_stream if x.is_cuda else 0
            error = module.square_rung(rung, threads, x.data_ptr(), y.data_ptr(), x.numel(), stream)
            if error != "no error":
                raise RuntimeError(error)
        return y

    return square


def time_squares(kernels: dict[str, Callable], n_rows: int, n_cols: int) -> list[dict[str, Any]]:
    """Checks and times kernels that square a matrix."""
    import torch

    x = torch.randn(n_rows, n_cols, device="cuda")
    return [_timed(name, kernel, x, torch.square) for name, kernel in kernels.items()]


def time_rungs(
    first: Callable, rung: Callable, threads: int, n_rows: int, n_cols: int
) -> list[dict[str, Any]]:
    """Checks and times the ladder between the lesson's first kernel and `torch.square`, and a copy."""
    import torch

    kernels: dict[str, Callable] = {"blocks of 16 × 16": first}
    kernels |= {name: lambda x, i=i: rung(x, i, threads) for i, name in enumerate(NAMES)}
    rows = time_squares(kernels | {"torch.square": torch.square}, n_rows, n_cols)
    x = torch.randn(n_rows, n_cols, device="cuda")
    return [*rows, _timed("copy", torch.clone, x, torch.clone)]


def time_gelus(
    kernels: dict[str, Callable], reference: Callable, n_rows: int, n_cols: int
) -> list[dict[str, Any]]:
    """Checks and times spellings of GELU, and PyTorch's own."""
    import torch

    x = torch.randn(n_rows, n_cols, device="cuda")
    return [_timed(name, f, x, reference) for name, f in (kernels | {"F.gelu": reference}).items()]


def _timed(label: str, kernel: Callable, x: torch.Tensor, reference: Callable) -> dict[str, Any]:
    check.assert_matches(kernel, reference, shapes=[(17, 33)], timed_shape=tuple(x.shape), name=label)
    found = timing.time_gpu(lambda: kernel(x))
    low, high = found.ci95_us
    row = {"kernel": label, "median_us": found.median_us, "ci_low_us": low, "ci_high_us": high}
    return {**row, "gb_per_s": found.gb_per_s(2 * x.nbytes), "n_rows": x.shape[0], "n_cols": x.shape[1]}


def count_wrong_reversals(text: str, launches: int = 1000) -> list[dict[str, Any]]:
    """Launches `reverse_kernel` many times on a GPU, and counts the launches with a wrong result."""
    import torch

    kernel, x = cuda.load_kernel(text, "reverse_kernel"), torch.randn(1 << 20, device="cuda")
    expected, wrong = x.view(-1, 256).flip(1).flatten(), []
    for _ in range(launches):
        y = torch.full_like(x, float("nan"))
        kernel(x, y, grid=len(x) // 256, block=256)
        wrong.append(int((y != expected).sum()))
    row = {"launches": launches, "wrong_launches": sum(map(bool, wrong)), "most_wrong": max(wrong)}
    return [row | {"elements": len(x)}]


def loads_under_way(n_loads: int, gb_per_s: float, sm_count: int, threads_per_sm: int) -> Sequence[float]:
    """Little's law for a kernel that reads as much as it writes.

    Returns:
        The MB of loads that can be under way at once, if each thread has `n_loads` of 4 bytes, and the most
        ns that each of them then takes on average.
    """
    n_bytes = 4 * n_loads * sm_count * threads_per_sm
    return n_bytes / 1e6, n_bytes / (gb_per_s / 2)
