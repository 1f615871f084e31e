"""Draw a trace as a timeline with lanes for CPU operators, CUDA calls and GPU streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers import plots
from helpers.trace.chrome import CALLS, DEVICE, HOST, KIND, Trace
from helpers.trace.names import short_name

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Okabe and Ito's palette, which people with color blindness can distinguish: https://jfly.uni-koeln.de/color/
_COLORS = {
    "range": ("#999999", "ranges and steps"),
    "op": ("#56B4E9", "operators on the CPU"),
    "runtime": ("#E69F00", "CUDA calls on the CPU"),
    "kernel": ("#009E73", "kernels"),
    "memcpy": ("#D55E00", "copies"),
    "memset": ("#CC79A7", "fills"),
}


def timeline(
    trace: Trace,
    *,
    start_us: float = 0.0,
    stop_us: float | None = None,
    arrows: bool = True,
    title: str | None = None,
    max_events: int = 3000,
) -> go.Figure:
    """Draws a trace with lanes for each CPU thread's operators and CUDA calls and for each GPU stream.

    Args:
        trace: a trace from `load_trace`.
        start_us: the left edge of the view.
        stop_us: the right edge; the end of the trace by default. Drag in the figure to zoom in further.
        arrows: whether to draw a line from each CUDA call to the work that it launched.
        title: the figure's title.
        max_events: the maximum number of events; if there are more, the shortest ones are left out and the
            title shows how many.

    Raises:
        ValueError: the trace is empty, or there is no event between the edges.
    """
    import plotly.graph_objects as go

    stop_us = trace.duration_us if stop_us is None else stop_us
    bars, lanes = _bars_and_lanes(trace)
    bars = [b for b in bars if b.start_us <= stop_us and b.start_us + b.duration_us >= start_us]
    if not bars:
        raise ValueError(
            f"{trace.path.name} has no event between {start_us:,.0f} and {stop_us:,.0f} µs to draw."
        )
    left_out = len(bars) - max_events
    if left_out > 0:
        bars = sorted(bars, key=lambda b: b.duration_us, reverse=True)[:max_events]
        title = f"{title or trace.path.name} (without the {left_out:,} shortest events)"
    figure = go.Figure()
    _draw_bars(figure, bars, start_us)
    if arrows:
        _draw_arrows(figure, bars)
    bottom = max(lane.last_y for lane in lanes)
    above, below = 50 if title else 20, 130
    height = round(above + below + 26 * (bottom + 1))
    plots.layout(figure, title or "", "time since the trace began (µs)", height=height)
    figure.update_layout(
        barmode="overlay",
        margin={"l": 130, "r": 20, "t": above, "b": below},
        legend={
            "orientation": "h",
            # At the figure's lower edge, with room for three lines, even if the window is resized later.
            "yref": "container",
            "y": 0.01,
            "yanchor": "bottom",
            "x": 0,
            "traceorder": "normal",
        },
        uniformtext={"minsize": 9, "mode": "hide"},
    )
    figure.update_xaxes(range=[start_us, stop_us], tickformat=",~f", showspikes=True, spikethickness=1)
    figure.update_yaxes(
        tickvals=[lane.first_y for lane in lanes],
        ticktext=[lane.name for lane in lanes],
        range=[bottom + 0.6, -0.6],
        showgrid=False,
        zeroline=False,
    )
    for lane in lanes[1:]:
        figure.add_hline(y=lane.first_y - 0.8, line={"color": plots.GRID_COLOUR, "width": 1})
    return figure


@dataclass(frozen=True)
class _Bar:
    """An event as it is drawn; `link` is the ID that a CUDA call shares with the work it launched."""

    kind: str
    start_us: float
    duration_us: float
    y: float
    label: str
    hover: str
    link: int | None


@dataclass(frozen=True)
class _Lane:
    """The rows of one CPU thread or GPU stream, counted from the top."""

    name: str
    first_y: float
    last_y: float


def _draw_bars(figure: go.Figure, bars: list[_Bar], left_us: float) -> None:
    for kind, (color, legend) in _COLORS.items():
        subset = [b for b in bars if b.kind == kind]
        # Clip bars at the left edge of the view, so that their names are visible.
        base = [max(b.start_us, left_us) for b in subset]
        if subset:
            figure.add_bar(
                orientation="h",
                base=base,
                x=[b.start_us + b.duration_us - left for b, left in zip(subset, base, strict=True)],
                y=[b.y for b in subset],
                width=0.86,
                marker={"color": color, "line": {"color": "white", "width": 0.5}},
                text=[b.label for b in subset],
                textposition="inside",
                insidetextanchor="start",
                insidetextfont={"color": plots.text_on(color)},
                hovertext=[b.hover for b in subset],
                hoverinfo="text",
                name=legend,
            )


def _draw_arrows(figure: go.Figure, bars: list[_Bar]) -> None:
    """Draws a line from each CUDA call to the work that it launched."""
    work = {b.link: b for b in bars if b.kind in ("kernel", "memcpy", "memset") and b.link is not None}
    xs, ys = [], []
    for call in bars:
        launched = work.get(call.link) if call.kind == "runtime" else None
        if launched:
            # None ends a line segment.
            xs += [call.start_us, launched.start_us, None]
            ys += [call.y + 0.43, launched.y - 0.43, None]
    if xs:
        line = {"color": plots.TEXT_COLOUR, "width": 1, "dash": "dot"}
        figure.add_scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", name="launch → work")


def _bars_and_lanes(trace: Trace) -> tuple[list[_Bar], list[_Lane]]:
    bars, lanes, top = [], [], 0.0
    for name, events in _groups(trace):
        if not events:
            continue
        # `open_ends` has the end times of the open events; a nested event is drawn one row below its parent.
        max_depth, open_ends = 0, []
        for event in events:
            while open_ends and open_ends[-1] <= event["ts"]:
                open_ends.pop()
            max_depth = max(max_depth, len(open_ends))
            bars.append(_bar(event, top + len(open_ends)))
            open_ends.append(event["ts"] + event["dur"])
        lanes.append(_Lane(name, top, top + max_depth))
        # The gap leaves room for the arrows.
        top += max_depth + 1.6
    return bars, lanes


def _groups(trace: Trace) -> list[tuple[str, list[dict]]]:
    """Returns the lanes from top to bottom as (name, events); a lane may have no events."""
    host, calls, streams = {}, {}, {}
    for event in trace.events:
        if event["cat"] in HOST:
            host.setdefault((event.get("pid"), event.get("tid")), []).append(event)
        elif event["cat"] in CALLS:
            calls.setdefault((event.get("pid"), event.get("tid")), []).append(event)
        elif event["cat"] in DEVICE:
            streams.setdefault(event["args"].get("stream", event.get("tid")), []).append(event)
    threads = list(dict.fromkeys([*host, *calls]))
    groups = []
    for number, key in enumerate(threads, 1):
        name = "CPU" if len(threads) == 1 else f"CPU thread {number}"
        groups += [(name, host.get(key, [])), (f"{name}, CUDA calls", calls.get(key, []))]
    return groups + [(f"GPU stream {stream}", streams[stream]) for stream in sorted(streams, key=str)]


def _bar(event: dict, y: float) -> _Bar:
    kind, args = KIND[event["cat"]], event["args"]
    name = event["name"]
    short = short_name(name) if kind == "kernel" else name
    label = _escape(short)
    facts = [f"<b>{label}</b>", f"{event['dur']:,.3f} µs, from {event['ts']:,.3f} µs"]
    if "grid" in args and "block" in args:
        facts.append("grid {} × {} × {}, block {} × {} × {}".format(*args["grid"], *args["block"]))
        shared = f"{args.get('shared memory', 0):,} bytes of shared memory per block"
        facts.append(f"{args.get('registers per thread', '?')} registers per thread, {shared}")
    if "bytes" in args:
        rate = f", {args['bytes'] / event['dur'] / 1e3:,.1f} GB/s" if event["dur"] else ""
        facts.append(f"{args['bytes']:,} bytes{rate}")
    if kind in ("kernel", "memcpy", "memset"):
        facts.append(f"stream {args.get('stream', '?')}")
    if kind == "kernel" and short != name:
        facts += [_escape(name[i : i + 100]) for i in range(0, min(len(name), 400), 100)]
    hover = "<br>".join(facts)
    return _Bar(kind, event["ts"], event["dur"], y, label, hover, link=args.get("correlation"))


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
