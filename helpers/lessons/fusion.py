"""Shared code of lessons 06 and 09: it checks and times softmaxes, finds launches in a profile, reads
generated kernels, draws which program holds which part of a row, and evaluates the league.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import plotly.graph_objects as go
    import torch

    from helpers.timing import Timing
    from helpers.trace import Trace

# The elements of a softmax are about 1/N, so an absolute tolerance would hide any error in wide rows.
# That's why the tolerance is relative.
TOLERANCE = {"float32": (1e-5, 1e-12), "float16": (4e-3, 1e-7), "bfloat16": (1.6e-2, 1e-9)}


# checked, then timed


def torch_softmax(x: torch.Tensor) -> torch.Tensor:
    """Returns PyTorch's softmax of each row."""
    import torch

    return torch.softmax(x, dim=1)


def check_softmax(kernel: Callable, **options: Any) -> Any:
    """Checks a kernel against `torch.softmax` of each row, with a tolerance relative to the size of the
    elements.

    Args:
        kernel: A function that takes a 2-D tensor and returns its softmax over rows.
        **options: Options of `check.assert_matches`; `dtype` defaults to float32.

    Raises:
        helpers.check.Mismatch: The kernel returned wrong elements.
    """
    import torch

    from helpers import check

    dtype = options.setdefault("dtype", torch.float32)
    return check.assert_matches(kernel, torch_softmax, tolerance=TOLERANCE[str(dtype)[6:]], **options)


def awkward_rows(
    shape: tuple[int, int], generator: torch.Generator, device: str, dtype: torch.dtype
) -> tuple[torch.Tensor]:
    """Returns rows that break many softmaxes: all −inf, one NaN, one +inf, half −inf, and values far apart.

    Pass it as `make_inputs`. The matrix needs at least five rows.
    """
    import torch

    infinity = float("inf")
    x = torch.randn(shape, generator=generator, device=device, dtype=dtype)
    x[0], x[1, 3], x[2, -1], x[3, : shape[1] // 2] = -infinity, float("nan"), infinity, -infinity
    x[4] *= 1e4
    return (x,)


def row_of(name: str, timing_result: Timing, shape: Sequence[int], n_bytes: int) -> dict[str, Any]:
    """Returns a timing as a row of a record: `kernel`, `n_rows`, `n_cols`, `median_us`, its confidence
    interval, and the effective `gb_per_s`.
    """
    low, high = timing_result.ci95_us
    row = {"kernel": name, "n_rows": shape[0], "n_cols": shape[1], "median_us": timing_result.median_us}
    return row | {"ci_low_us": low, "ci_high_us": high, "gb_per_s": timing_result.gb_per_s(n_bytes)}


def time_softmax(
    name: str,
    f: Callable[[torch.Tensor], torch.Tensor],
    shape: tuple[int, int],
    dtype: torch.dtype | None = None,
    budget_s: float = 0.05,
) -> dict[str, Any]:
    """Checks a softmax at a shape, times it there on the GPU with a cold L2, and returns a row as in
    `row_of`.

    Args:
        name: The name of the kernel in the row.
        f: The softmax over rows.
        shape: The rows and columns.
        dtype: The dtype, by default float32.
        budget_s: The time limit for the timer in seconds.

    Raises:
        helpers.check.Mismatch: The kernel returned wrong elements.
    """
    import torch

    from helpers import timing

    dtype = dtype or torch.float32
    check_softmax(f, shapes=[shape], dtype=dtype, name=name)
    x = torch.randn(shape, device="cuda", dtype=dtype)
    return row_of(name, timing.time_gpu(lambda: f(x), budget_s=budget_s), shape, 2 * x.nbytes)


def softmax_curve(
    kernels: Mapping[str, Callable | None],
    n_elements: int,
    sizes: Sequence[int],
    narrowest: Mapping[str, int] | None = None,
) -> list[dict[str, Any]]:
    """Times softmaxes of matrices with the same number of elements and ever wider rows.

    Args:
        kernels: The softmaxes by name, in the order of the rows. "one block" is skipped if a row doesn't fit
            in a block. A name that starts with "torch.compile" is recompiled for each size, so that it never
            becomes a kernel for dynamic sizes.
        n_elements: The number of elements in every matrix.
        sizes: The numbers of columns.
        narrowest: The smallest number of columns at which a kernel is timed, by its name.
    """
    import torch

    from helpers.kernels.softmax import MAX_ROW_BLOCK

    rows = []
    for n in sizes:
        for name, f in kernels.items():
            if n < (narrowest or {}).get(name, 0) or (name == "one block" and n > MAX_ROW_BLOCK):
                continue
            if name.startswith("torch.compile"):
                torch._dynamo.reset()
                f = torch.compile(f, dynamic=False)  # the check before it compiles it
            rows.append(time_softmax(name, f, (n_elements // n, n)))
    return rows


def launched_by(
    function: str, form: str, f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> dict[str, Any]:
    """Times `f(x)` and returns what it launched: `function`, `form`, `launches`, `median_us`, `gb_per_s` and
    `kernels`.
    """
    from helpers import timing, trace

    timing_result = timing.time_gpu(lambda: f(x), budget_s=0.1)
    names = [f"{k.calls} × {trace.short_name(k.name)}" for k in timing_result.kernels]
    row = {"function": function, "form": form, "launches": sum(k.calls for k in timing_result.kernels)}
    row |= {"median_us": timing_result.median_us, "gb_per_s": timing_result.gb_per_s(2 * x.nbytes)}
    return row | {"kernels": ", ".join(names)}


# named stretches


def named_launches(trace: Trace) -> pd.DataFrame:
    """Returns the named ranges of a profile with the first kernel that was launched in each.

    Args:
        trace: A trace from `trace.load_trace` with ranges of `record_function`, which may be nested.

    Returns:
        A DataFrame with a row per range that launched a kernel, in order: `range`, `range_ends_us` on the
        CPU, `kernel` (the full name), `kernel_begins_us`, `kernel_ends_us`, and `still_open` (whether the
        range was still open when its kernel started).
    """
    import pandas as pd

    launches = {
        e["args"].get("correlation"): e for e in trace.events if e["cat"] in ("cuda_runtime", "cuda_driver")
    }
    kernels = [e for e in trace.events if e["cat"] == "kernel" and e["args"].get("correlation") in launches]
    rows = []
    for event in trace.events:
        if event["cat"] != "user_annotation" or event["name"].startswith("ProfilerStep"):
            continue
        end_us = event["ts"] + event["dur"]
        for kernel in kernels:
            launch = launches[kernel["args"]["correlation"]]
            if launch.get("tid") == event.get("tid") and event["ts"] <= launch["ts"] <= end_us:
                row = {"range": event["name"], "range_ends_us": end_us, "kernel": kernel["name"]}
                row |= {"kernel_begins_us": kernel["ts"], "kernel_ends_us": kernel["ts"] + kernel["dur"]}
                rows.append(row | {"still_open": kernel["ts"] < end_us})
                break
    columns = ["range", "range_ends_us", "kernel", "kernel_begins_us", "kernel_ends_us", "still_open"]
    return pd.DataFrame(rows, columns=columns)


# which program holds which part


def draw_holders(n_rows: int = 3, n_cols: int = 6, block: int = 2, parts: int = 3) -> go.Figure:
    """Draws three ways to assign rows to programs: a row in one block, a row in steps, and a shared row.

    Args:
        n_rows: The rows of the small matrix in the drawing.
        n_cols: Its columns.
        block: Columns per step of the online kernel.
        parts: Programs per row.

    Raises:
        ValueError: The columns are not a multiple of the steps or the parts.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    from helpers import plots

    if n_cols % block or n_cols % parts:
        raise ValueError(
            f"draw_holders: {n_cols} columns are not a multiple of both {block} (the step) and {parts} (the "
            "parts)."
        )
    padded = 1 << (n_cols - 1).bit_length()
    titles = ("one block, padded", "online: in steps, twice", "shared, in parts")
    fig = make_subplots(rows=1, cols=3, subplot_titles=titles, horizontal_spacing=0.06)

    def piece(
        panel: int, row: int, start: float, width: float, program: int, text: str, color: str = ""
    ) -> None:
        fill = color or plots.PALETTE[program % 7]
        fig.add_trace(
            go.Bar(
                orientation="h", y=[row], base=[start], x=[width], width=0.8, text=[text], textangle=0,
                textposition="inside", insidetextanchor="middle", hoverinfo="skip", showlegend=False,
                insidetextfont={"color": plots.text_on(fill)},
                marker={"color": fill, "line": {"color": "white", "width": 2}},
            ),
            row=1, col=panel,
        )  # fmt: skip

    shades = [(_paler(color), color) for color in plots.PALETTE[:7]]
    for row in range(n_rows):
        piece(1, row, 0, n_cols, row, f"program {row}")
        piece(1, row, n_cols, padded - n_cols, row, "−∞", color="#C8C8C8")
        for step in range(n_cols // block):
            piece(2, row, step * block, block, row, f"{row}, step {step}", color=shades[row % 7][step % 2])
        for part in range(parts):
            width = n_cols / parts
            piece(3, row, part * width, width, row * parts + part, f"{row * parts + part}")
        for part in range(1, parts):
            fig.add_annotation(
                x=part * n_cols / parts,
                y=row,
                text="⇄",
                showarrow=False,
                font={"size": 20, "color": "white"},
                bgcolor="rgba(60,60,60,0.85)",
                row=1,
                col=3,
            )
    plots.layout(fig, "Which program holds what", height=320)
    note = "color: program · ⇄: neighbors exchange two numbers, a maximum and a sum"
    fig.update_layout(title_text=f"Which program holds what<br><sub>{note}</sub>", barmode="overlay")
    fig.update_layout(margin={"t": 110})
    fig.update_xaxes(title_text="columns", range=[0, padded], showgrid=False, dtick=block)
    fig.update_yaxes(range=[n_rows - 0.4, -0.6], tickvals=list(range(n_rows)), title_text="", showgrid=False)
    fig.update_yaxes(title_text="row", col=1)
    return fig


def _paler(color: str) -> str:
    """Returns a color that is halfway to white."""
    return "#" + "".join(f"{(int(color[i : i + 2], 16) + 255) // 2:02X}" for i in (1, 3, 5))


# the league


def league_gaps(league: pd.DataFrame) -> pd.DataFrame:
    """Compares our time with the fastest other contestant's at each point of the league.

    Args:
        league: The table of `benchmarks/kernels.py` (the record fusion/league).

    Returns:
        A DataFrame with a row per point at which both our kernel and a peer were timed: `op`, `dtype`,
        `n_rows`, `n_cols`, `best_peer`, `peer_over_ours` (the peer's time over ours, so above 1 ours is
        faster) with its 95 % confidence interval in `low` and `high`, and `fastest`: "ours", the peer's name,
        or "no difference seen" if the interval contains 1.

    Raises:
        ValueError: The table has no point at which both our kernel and a peer were timed.
    """
    import pandas as pd

    points = ["op", "dtype", "n_rows", "n_cols"]
    timed = league[league.ours_ratio.notna()]
    rows = []
    for point, group in timed.groupby(points, sort=False):
        peers = group[~group.contestant.isin(["ours", "copy"])]
        if peers.empty or not group.contestant.eq("ours").any():
            continue
        best = peers.loc[peers.ours_ratio.idxmin()]
        no_difference = best.ratio_low <= 1 <= best.ratio_high
        fastest = (
            "no difference seen" if no_difference else "ours" if best.ours_ratio > 1 else best.contestant
        )
        rows.append(
            dict(zip(points, point, strict=True))
            | {"best_peer": best.contestant, "peer_over_ours": best.ours_ratio}
            | {"low": best.ratio_low, "high": best.ratio_high, "fastest": fastest}
        )
    if not rows:
        raise ValueError(
            "league_gaps: the table has no point at which both our kernel and a peer were timed."
        )
    return pd.DataFrame(rows)
