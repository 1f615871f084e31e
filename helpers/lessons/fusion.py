"""What lessons 06 and 09 share: softmaxes checked and timed, launches found in a profile, generated kernels read, who holds
which part of a row, and who wins the league.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import plotly.graph_objects as go
    import torch

    from helpers.timing import Timing
    from helpers.trace import Trace

# A softmax's elements are about 1/N: an absolute tolerance would hide anything in wide rows, so it is relative.
TOLERANCE = {"float32": (1e-5, 1e-12), "float16": (4e-3, 1e-7), "bfloat16": (1.6e-2, 1e-9)}


# ------------------------------------------------------------------------------------------------- checked, then timed


def torch_softmax(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's softmax of each row."""
    import torch

    return torch.softmax(x, dim=1)


def check_softmax(kernel: Callable, **options: Any) -> Any:
    """`check.assert_matches` against `torch.softmax` of each row, with a tolerance relative to the elements' size.

    Args:
        kernel: takes a 2-D tensor, returns its softmax over rows.
        **options: of `check.assert_matches`; `dtype` is float32 where none is given.

    Raises:
        helpers.check.Mismatch: the kernel is wrong somewhere.
    """
    import torch

    from helpers import check

    dtype = options.setdefault("dtype", torch.float32)
    return check.assert_matches(kernel, torch_softmax, tolerance=TOLERANCE[str(dtype)[6:]], **options)


def awkward_rows(
    shape: tuple[int, int], generator: torch.Generator, device: str, dtype: torch.dtype
) -> tuple[torch.Tensor]:
    """Rows that break softmaxes, for `make_inputs`: all −inf; a NaN; a +inf; half −inf; values far apart. Five at least."""
    import torch

    infinity = float("inf")
    x = torch.randn(shape, generator=generator, device=device, dtype=dtype)
    x[0], x[1, 3], x[2, -1], x[3, : shape[1] // 2] = -infinity, float("nan"), infinity, -infinity
    x[4] *= 1e4
    return (x,)


def row_of(name: str, took: Timing, shape: Sequence[int], n_bytes: int) -> dict[str, Any]:
    """A timing as a row of a record: `kernel`, `n_rows`, `n_cols`, `median_us`, its interval, effective `gb_per_s`."""
    low, high = took.ci95_us
    row = {"kernel": name, "n_rows": shape[0], "n_cols": shape[1], "median_us": took.median_us}
    return row | {"ci_low_us": low, "ci_high_us": high, "gb_per_s": took.gb_per_s(n_bytes)}


def time_softmax(
    name: str,
    f: Callable[[torch.Tensor], torch.Tensor],
    shape: tuple[int, int],
    dtype: torch.dtype | None = None,
    budget_s: float = 0.05,
) -> dict[str, Any]:
    """Check a softmax at this very shape, then time it on the GPU, L2 cold: a row as `row_of` makes it.

    Args:
        name: what the row calls it.
        f: the softmax over rows.
        shape: rows and columns.
        dtype: float32 where none is given.
        budget_s: seconds that the timer may take.

    Raises:
        helpers.check.Mismatch: it is wrong there.
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
    """Time softmaxes of the same number of elements in ever wider rows.

    Args:
        kernels: by name, in the order of the rows. "one block" is left out where a row does not fit a block.
        n_elements: of every matrix.
        sizes: columns.
        narrowest: for a kernel, the columns from which on it is timed. A name that begins with "torch.compile" is compiled
            anew for each size, so that none is compiled for any size.
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
                f = torch.compile(f, dynamic=False)  # the check, which comes first, compiles it
            rows.append(time_softmax(name, f, (n_elements // n, n)))
    return rows


def launched_by(
    function: str, form: str, f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> dict[str, Any]:
    """Time `f(x)` and say what it launched: `function`, `form`, `launches`, `median_us`, `gb_per_s`, `kernels`."""
    from helpers import timing, trace

    took = timing.time_gpu(lambda: f(x), budget_s=0.1)
    names = [f"{k.calls} × {trace.short_name(k.name)}" for k in took.kernels]
    row = {"function": function, "form": form, "launches": sum(k.calls for k in took.kernels)}
    row |= {"median_us": took.median_us, "gb_per_s": took.gb_per_s(2 * x.nbytes)}
    return row | {"kernels": ", ".join(names)}


# ------------------------------------------------------------------------------------------------- named stretches


def named_launches(trace: Trace) -> pd.DataFrame:
    """The ranges of a profile beside the first kernel that was launched inside each.

    Args:
        trace: from `trace.load_trace`; ranges of `record_function`, one inside the other or not.

    Returns:
        A row for each range that launched a kernel, in order: `range`, `range_ends_us` on the CPU, `kernel` (in full),
        `kernel_begins_us`, `kernel_ends_us`, and `still_open`: the range was open when its kernel began.
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


# ------------------------------------------------------------------------------------------------- generated code


def generated_by_compile(f: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, int]) -> str:
    """What torch.compile writes for `f` on a fp32 matrix on the GPU: the text that TORCH_LOGS=output_code prints."""
    import torch
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    with torch._inductor.config.patch(
        fx_graph_cache=False
    ):  # what comes from a cache may come without its text
        _, codes = run_and_get_code(torch.compile(f, dynamic=False), torch.randn(shape, device="cuda"))
    lines = [line for line in codes[0].splitlines() if not line.startswith("# kernel path:")]
    return "\n".join(lines) + "\n"


def kernel_texts(code: str) -> list[str]:
    """The Triton functions in what torch.compile wrote, with their decorator.

    Raises:
        ValueError: there is none.
    """
    found = re.findall(r"^@triton\.jit\n(?:.*\n)+?(?=''')", code, re.MULTILINE)
    if not found:
        raise ValueError(
            "kernel_texts: there is no Triton function in this text; torch.compile left it to eager."
        )
    return found


def walks(kernel: str) -> tuple[int, int]:
    """How often a kernel's text loads and stores: each is a walk over the matrix, where the kernel takes whole rows."""
    return kernel.count("tl.load("), kernel.count("tl.store(")


# ------------------------------------------------------------------------------------------------- who holds what


def draw_holders(n_rows: int = 3, n_cols: int = 6, block: int = 2, parts: int = 3) -> go.Figure:
    """Three ways to give rows to programs, side by side: a row in one block, a row in steps, a row shared.

    Args:
        n_rows: rows of the small matrix that is drawn.
        n_cols: its columns.
        block: columns of one step of the online kernel.
        parts: programs that share a row.

    Raises:
        ValueError: columns that do not divide into the steps or the parts.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    from helpers import plots

    if n_cols % block or n_cols % parts:
        raise ValueError(
            f"draw_holders: {n_cols} columns divide neither into steps of {block} nor {parts} parts."
        )
    padded = 1 << (n_cols - 1).bit_length()
    titles = ("one block, padded", "online: in steps, twice", "split: shared")
    fig = make_subplots(rows=1, cols=3, subplot_titles=titles, horizontal_spacing=0.06)

    def piece(
        panel: int, row: int, start: float, width: float, program: int, text: str, color: str = ""
    ) -> None:
        colour = color or plots.PALETTE[program % 7]
        fig.add_trace(
            go.Bar(
                orientation="h", y=[row], base=[start], x=[width], width=0.8, text=[text], textangle=0,
                textposition="inside", insidetextanchor="middle", hoverinfo="skip", showlegend=False,
                insidetextfont={"color": plots.text_on(colour)},
                marker={"color": colour, "line": {"color": "white", "width": 2}},
            ),
            row=1, col=panel,
        )  # fmt: skip

    shades = [(_paler(colour), colour) for colour in plots.PALETTE[:7]]
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
                x=part * n_cols / parts, y=row, text="⇄", showarrow=False, font={"size": 20, "color": "white"},
                bgcolor="rgba(60,60,60,0.85)", row=1, col=3,
            )  # fmt: skip
    plots.layout(fig, "Which program holds what", height=320)
    note = "colour: the program · ⇄: what neighbours exchange is two numbers, a maximum and a sum"
    fig.update_layout(title_text=f"Which program holds what<br><sub>{note}</sub>", barmode="overlay")
    fig.update_layout(margin={"t": 110})
    fig.update_xaxes(title_text="columns", range=[0, padded], showgrid=False, dtick=block)
    fig.update_yaxes(range=[n_rows - 0.4, -0.6], tickvals=list(range(n_rows)), title_text="", showgrid=False)
    fig.update_yaxes(title_text="row", col=1)
    return fig


def _paler(colour: str) -> str:
    """A colour halfway to white."""
    return "#" + "".join(f"{(int(colour[i : i + 2], 16) + 255) // 2:02X}" for i in (1, 3, 5))


# ---------------------------------------------------------------------------------------------------- the league


def league_gaps(league: pd.DataFrame) -> pd.DataFrame:
    """Our time beside the fastest other contestant's at each point, so that a chart can say where a peer wins.

    Args:
        league: the table of `benchmarks/kernels.py` (columns `helpers.timing.league.COLUMNS`).

    Returns:
        A row for each point at which we and a peer were timed: `op`, `dtype`, `n_rows`, `n_cols`, `best_peer`,
        `peer_over_ours` (its time over ours: above 1, ours is faster) with its 95 % interval in `low` and `high`, and
        `fastest`: "ours", the peer's name, or "no difference seen" where the interval holds 1.

    Raises:
        ValueError: a table without us or without a peer.
    """
    import pandas as pd

    from helpers.timing.league import COPY, OURS

    points = ["op", "dtype", "n_rows", "n_cols"]
    timed = league[league.ours_ratio.notna()]
    rows = []
    for point, group in timed.groupby(points, sort=False):
        peers = group[~group.contestant.isin([OURS, COPY])]
        if peers.empty or not group.contestant.eq(OURS).any():
            continue
        best = peers.loc[peers.ours_ratio.idxmin()]
        tie = best.ratio_low <= 1 <= best.ratio_high
        fastest = "no difference seen" if tie else OURS if best.ours_ratio > 1 else best.contestant
        rows.append(
            dict(zip(points, point, strict=True))
            | {"best_peer": best.contestant, "peer_over_ours": best.ours_ratio}
            | {"low": best.ratio_low, "high": best.ratio_high, "fastest": fastest}
        )
    if not rows:
        raise ValueError("league_gaps: the table has no point at which both ours and a peer were timed.")
    return pd.DataFrame(rows)
