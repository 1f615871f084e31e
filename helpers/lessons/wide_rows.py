"""Lesson 09's measurements: the gain from each trick of the tuned softmax kernel, and hardware counters of
this kernel and other softmaxes.

All records need a GPU: wide_rows/tricks has the tuned kernel with one trick removed at a time,
wide_rows/steps the steps from the lesson's plain kernel to the tuned one, and wide_rows/counters has our
softmax and others under Nsight Compute.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from helpers import records

if TYPE_CHECKING:
    import pandas as pd
    import torch

ELEMENTS = 1 << 28
NO_NAP, ONE_SECTOR, MANY_LOOK, LARGE_PARTS, AS_TUNED = (
    *("no nap", "words of two rows in a sector", "each warp looks at every word"),
    *("32 KB a program", "as tuned"),
)
# what the kernel does without a trick -> the name of the trick in the lesson
TRICKS = {
    ONE_SECTOR: "words apart",
    NO_NAP: "a nap",
    MANY_LOOK: "one look a word",
    LARGE_PARTS: "smaller programs",
}
_SHORT = {"bfloat16": "bf16", "float32": "fp32"}
_POINTS = (("bfloat16", 131_072), ("bfloat16", 262_144), ("bfloat16", 393_216), ("float32", 262_144))


# one trick less


def kernel_without_nap() -> Any:
    """Returns the tuned kernel without its nap, so that waiting programs poll the words all the time."""
    import triton

    from helpers.kernels import softmax

    original = softmax.softmax_split_kernel.fn
    names = {**original.__globals__, "nap": _no_nap()}
    copy = types.FunctionType(original.__code__, names, original.__name__, original.__defaults__)
    copy.__annotations__ = original.__annotations__  # the annotations mark constant arguments
    return triton.jit(copy)


def _no_nap() -> Any:
    from helpers.lessons.spin_wait import no_nap

    return no_nap


def _launch(trick: str, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> tuple:
    """Returns the tuned launch with one trick removed: its plan, the stride between the words of two rows,
    and the block that reads the words of a row.
    """
    import triton

    from helpers.kernels import softmax as kernels

    plan = kernels.plan_softmax(*shape, dtype, device=device)
    if plan.kernel != "split" or plan.parts == 1:
        raise ValueError(
            f"without: rows of {shape[1]:,} columns are not shared by several programs; use wider rows."
        )
    if trick == LARGE_PARTS:
        size = kernels.PART_CHUNKS * 16 * 128 // dtype.itemsize
        plan = kernels.plan_parts(shape, dtype, size, 4, kernels.PART_REGISTERS)
    stride = plan.parts if trick == ONE_SECTOR else plan.words_stride
    return plan, stride, triton.next_power_of_2(plan.parts + 1) if trick == MANY_LOOK else plan.words_block


def without(trick: str, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Returns a call that computes the softmax of `x` with the tuned kernel, but with one trick removed.

    The call allocates the output, clears the words and launches the kernel.

    Args:
        trick: One of this module's constants; `AS_TUNED` removes none.
        x: A tensor (n_rows, n_cols) on the GPU, wide enough that programs share a row.

    Raises:
        ValueError: The row isn't shared, or its programs may not fit on the GPU at once.
    """
    import torch

    from helpers.kernels import softmax as kernels

    plan, stride, block = _launch(trick, tuple(x.shape), x.dtype, x.device)
    kernel = kernel_without_nap() if trick == NO_NAP else kernels.softmax_split_kernel
    if plan.parts > kernels.max_parts(x.device, plan.num_warps, plan.max_registers):
        raise ValueError(f"without: the {plan.parts} programs of a row may not fit on this GPU at once.")

    def run() -> torch.Tensor:
        y = torch.empty_like(x)
        words = torch.zeros(plan.n_rows * stride, dtype=torch.int64, device=x.device)
        kernel[(plan.n_programs,)](
            y,
            x,
            x.stride(0),
            y.stride(0),
            plan.n_cols,
            words,
            PARTS=plan.parts,
            PARTS_BLOCK=block,
            WORDS_STRIDE=stride,
            CHUNK=plan.block_size,
            CHUNKS=plan.chunks,
            ALIGN=kernels.alignment(x, y),
            REPACK=x.element_size() == 2,
            PUBLISH_ONLY=False,
            num_warps=plan.num_warps,
            maxnreg=plan.max_registers,
        )
        return y

    return run


def changes(trick: str, dtype: str, n_cols: int) -> bool:
    """Returns whether removing a trick changes the launch or the kernel.

    If it doesn't, the tuned kernel is timed twice.
    """
    import torch

    shape, torch_dtype = (ELEMENTS // n_cols, n_cols), getattr(torch, dtype)
    # The answer depends on the shape, not on the available GPU, which may be too small to share such rows.
    any_device = torch.device("cpu")
    tuned = _launch(AS_TUNED, shape, torch_dtype, any_device)
    return trick == NO_NAP or _launch(trick, shape, torch_dtype, any_device) != tuned


def tricks() -> list[dict[str, Any]]:
    """Measures the rows of wide_rows/tricks on this GPU.

    Each trick is removed in turn and timed interleaved with the tuned kernel and a copy. A trick that makes
    no difference at a width (see `changes`) has a row too: timing the same launch twice shows the resolution
    of the measurement.

    Raises:
        records.CannotMeasure: A row of these widths isn't shared on this GPU.
    """
    import torch

    from helpers.timing.interleaved import compare_many

    found = []
    for dtype, n_cols in _POINTS:
        x = torch.randn(ELEMENTS // n_cols, n_cols, device="cuda", dtype=getattr(torch, dtype))
        expected, y = torch.softmax(x, dim=1), torch.empty_like(x)
        calls: dict[str, Callable[[], Any]] = {"copy": lambda x=x, y=y: y.copy_(x)}
        for trick in (AS_TUNED, *TRICKS):
            try:
                call = without(trick, x)
            except ValueError as error:
                raise records.CannotMeasure(str(error)) from error
            if not torch.allclose(call(), expected, rtol=2e-2 if dtype == "bfloat16" else 1e-4, atol=0):
                raise RuntimeError(
                    f"The softmax of {n_cols:,} {dtype} columns is wrong for the variant {trick!r}."
                )
            calls[trick] = call
        del expected
        timings = compare_many(calls, against=AS_TUNED, budget_s=0.4)
        for trick, one in timings.items():
            row = {"trick": trick, "dtype": dtype, "n_cols": n_cols, "median_us": one.median_us}
            row |= {"of_copy": timings["copy"].median_us / one.median_us, "over_tuned": one.ratio}
            found.append(row | {"ratio_low": one.ratio_ci95[0], "ratio_high": one.ratio_ci95[1]})
    return found


def bought(tricks: pd.DataFrame) -> pd.DataFrame:
    """Returns what each trick gains.

    The columns include `trick` (its name in the lesson), `row`, `bought` (in % of the time) with the ends of
    its confidence interval, and `changes`, which is false if the launch is the same without the trick.

    Args:
        tricks: The record wide_rows/tricks.
    """
    rows = tricks[tricks.trick.isin(TRICKS)]
    rows = rows.iloc[rows.trick.map([*TRICKS].index).argsort(kind="stable")]
    points = list(zip(rows.trick, rows.dtype, rows.n_cols, strict=True))
    return rows.assign(
        trick=rows.trick.map(TRICKS),
        row=[f"{_SHORT[dtype]}, {n_cols:,}" for _, dtype, n_cols in points],
        changes=[changes(*point) for point in points],
        bought=100 * (rows.over_tuned - 1),
        bought_low=100 * (rows.ratio_low - 1),
        bought_high=100 * (rows.ratio_high - 1),
    )


# from the plain kernel to the tuned one

STEP_ELEMENTS, STEP_COLUMNS = 1 << 26, 262_144


def steps(plain: Callable[..., torch.Tensor]) -> list[dict[str, Any]]:
    """Measures the rows of wide_rows/steps on this GPU: a copy, the plain kernel, changes to it, and the
    tuned kernel, all interleaved, on fp32 rows of 262,144 columns.

    Args:
        plain: The lesson's wrapper, with the arguments `block_size` and `max_registers`.

    Raises:
        records.CannotMeasure: The programs of such a row may not fit on this GPU at once.
    """
    import torch

    from helpers.kernels.softmax import softmax_split
    from helpers.timing.interleaved import compare_many

    x = torch.randn(STEP_ELEMENTS // STEP_COLUMNS, STEP_COLUMNS, device="cuda")
    expected, y = torch.softmax(x, dim=1), torch.empty_like(x)
    calls: dict[str, Callable[[], Any]] = {
        "copy": lambda: y.copy_(x),
        "plain": lambda: plain(x),
        "plain, at most 96 registers": lambda: plain(x, max_registers=96),
        "plain, parts of 4,096": lambda: plain(x, block_size=4096),
        "tuned": lambda: softmax_split(x),
    }
    for name, call in calls.items():
        try:
            result = call()
        except ValueError as error:
            raise records.CannotMeasure(str(error)) from error
        if name != "copy" and not torch.allclose(result, expected, rtol=1e-4, atol=0):
            raise RuntimeError(f"The softmax of {STEP_COLUMNS:,} columns is wrong for {name!r}.")
    found = []
    timings = compare_many(calls, against="copy", budget_s=0.6)
    for name, one in timings.items():
        low, high = one.ratio_ci95
        row = {"kernel": name, "median_us": one.median_us, "percent_of_copy": 100 / one.ratio}
        found.append(row | {"percent_low": 100 / high, "percent_high": 100 / low})
    return found


def resident(plain_kernel: Any) -> pd.DataFrame:
    """Compiles the plain and the tuned kernel for sm_90, as launched for fp32 rows of 262,144 columns.

    Args:
        plain_kernel: The lesson's Triton kernel.

    Returns:
        A DataFrame with `kernel`, `registers` (per thread), `spilled` (bytes per thread), `programs` (that
        an SM's registers hold) and `kb_held` (the KB of rows that they hold).
    """
    import pandas as pd

    from helpers import ptx
    from helpers.kernels import softmax
    from helpers.kernels.chip import REGISTERS_PER_SM

    plain = {"y_ptr": "*fp32", "x_ptr": "*fp32", "n_cols": "i32", "words_ptr": "*i64"}
    tuned = {"output_ptr": "*fp32", "input_ptr": "*fp32", "input_row_stride": "i32"}
    tuned |= {"output_row_stride": "i32", "n_cols": "i32", "words_ptr": "*i64"}
    sizes = {"PARTS": 32, "PARTS_BLOCK": 128, "WORDS_STRIDE": 32, "CHUNK": 512, "CHUNKS": 16, "ALIGN": 4}
    sizes |= {"REPACK": False, "PUBLISH_ONLY": False}

    def block(size: int) -> dict[str, Any]:
        parts = STEP_COLUMNS // size
        return {"PARTS": parts, "PARTS_BLOCK": parts, "BLOCK_SIZE": size, "PUBLISH_ONLY": False}

    kernels = {
        "plain": (plain_kernel, plain, block(8192), 8192, {}),
        "plain, at most 96 registers": (plain_kernel, plain, block(8192), 8192, {"maxnreg": 96}),
        "plain, parts of 4,096": (plain_kernel, plain, block(4096), 4096, {}),
        "tuned": (softmax.softmax_split_kernel, tuned, sizes, 8192, {"maxnreg": 96}),
    }
    found = []
    for name, (kernel, signature, constexprs, part, options) in kernels.items():
        made = ptx.stages(
            kernel, signature=signature, constexprs=constexprs, target="sm_90",
            divisible_by_16=tuple(signature), **options,
        )  # fmt: skip
        allocated = -(-made.n_registers // 8) * 8
        programs = REGISTERS_PER_SM // (allocated * 128)
        row = {"kernel": name, "registers": made.n_registers, "spilled": made.spill_bytes}
        found.append(row | {"programs": programs, "kb_held": programs * part * 4 // 1024})
    return pd.DataFrame(found)


# counters of peers

NAMES = {
    "ours": "tuned",
    "quack": "QuACK",
    "compile-max": "torch.compile, max-autotune",
    "compile": "torch.compile",
    "eager": "torch.softmax",
    "liger": "Liger",
}
_SECTIONS = (
    "SpeedOfLight",
    "LaunchStats",
    "Occupancy",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",
)
_COUNTED = (("bfloat16", 65_536), ("bfloat16", 262_144), ("float32", 262_144))
_SCRIPT = "from helpers.lessons import wide_rows\nwide_rows.launch_peers()\n"


def _peers(x: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Returns the available contestants: ours, torch, torch.compile, and QuACK if it is installed."""
    import importlib.util

    import torch

    from helpers.kernels.ops import softmax

    torch._dynamo.reset()
    compiled = torch.compile(lambda t: torch.softmax(t, dim=-1), dynamic=False)
    found = {
        "ours": lambda: softmax(x),
        "eager": lambda: torch.softmax(x, dim=-1),
        "compile": lambda: compiled(x),
    }
    if importlib.util.find_spec("quack"):
        from quack import softmax as quack

        found["quack"] = lambda: quack(x)
    return found


def launch_peers() -> None:
    """Launches each contestant once at each point, in a range that names both, for Nsight Compute."""
    import torch
    from torch.cuda import nvtx

    for dtype, n_cols in _COUNTED:
        x = torch.randn(ELEMENTS // n_cols, n_cols, device="cuda", dtype=getattr(torch, dtype))
        for name, call in _peers(x).items():
            call()  # compile outside the range
            torch.cuda.synchronize()
            with nvtx.range("measured"), nvtx.range(f"{name}|{dtype}|{n_cols}"):
                call()
            torch.cuda.synchronize()


def counters() -> list[dict[str, Any]]:
    """Measures the rows of wide_rows/counters on this GPU: one per contestant and point.

    Raises:
        records.CannotMeasure: Nsight Compute can't count on this machine.
    """
    from helpers import ncu

    return of_report(ncu.count(_SCRIPT, nvtx="measured", set=None, sections=_SECTIONS, timeout_s=900))


def of_report(report: Any) -> list[dict[str, Any]]:
    """Sums a report's launches by contestant and point.

    Args:
        report: A report with launches in ranges named "name|dtype|columns".

    Returns:
        Dictionaries with `contestant`, `dtype`, `n_cols`, `launches`, `ncu_us`, `read_gb` and `written_gb`,
        and for the longest launch `dram_percent`, `issue_percent` and `warps_percent` (of their peaks) and
        `registers` (per thread).
    """
    from helpers import ncu

    table = ncu.summary(report)
    found: dict[str, dict[str, Any]] = {}
    for kernel, row in zip(report, table.to_dict("records"), strict=True):
        range_name = next((one for one in kernel.nvtx if one.count("|") == 2), None)
        if range_name is None:
            continue
        name, dtype, n_cols = range_name.split("|")
        empty = {"launches": 0, "ncu_us": 0.0, "read_gb": 0.0, "written_gb": 0.0, "longest_us": 0.0}
        totals = found.setdefault(
            range_name, {"contestant": name, "dtype": dtype, "n_cols": int(n_cols)} | empty
        )
        totals["launches"] += 1
        totals["ncu_us"] += kernel.duration_us
        totals["read_gb"] += row["dram_read_bytes"] / 1e9
        totals["written_gb"] += row["dram_write_bytes"] / 1e9
        if kernel.duration_us > totals["longest_us"]:
            m = kernel.metrics
            totals |= {
                "longest_us": kernel.duration_us,
                "dram_percent": float(m["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"]),
                "issue_percent": float(m["sm__issue_active.avg.pct_of_peak_sustained_elapsed"]),
                "warps_percent": float(m["sm__warps_active.avg.pct_of_peak_sustained_active"]),
                "registers": int(m["launch__registers_per_thread"]),
            }
    return [{k: v for k, v in one.items() if k != "longest_us"} for one in found.values()]
