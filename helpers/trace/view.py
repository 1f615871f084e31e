"""A trace drawn: lanes of CPU operators, CUDA calls and GPU streams over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers.trace.chrome import CALLS, DEVICE, HOST, KIND, Trace
from helpers.trace.names import short_name

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Okabe and Ito's palette, told apart by the colour-blind too: https://jfly.uni-koeln.de/color/
_COLOURS = {
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
    """Draw a trace: a lane for each CPU thread's operators and CUDA calls, and one for each GPU stream.

    Args:
        trace: from `load_trace`.
        start_us: left edge of the view.
        stop_us: right edge; the end of the trace by default. Drag in the figure to zoom further.
        arrows: draw a line from each CUDA call to what it launched.
        title: shown above the figure.
        max_events: beyond this the shortest events are left out, and the title says how many.

    Raises:
        ValueError: the trace is empty, or nothing lies between the edges.
    """
    import plotly.graph_objects as go

    from helpers import plots

    stop_us = trace.duration_us if stop_us is None else stop_us
    rows, lanes = _lanes(trace)
    rows = [r for r in rows if r["start"] <= stop_us and r["start"] + r["dur"] >= start_us]
    if not rows:
        raise ValueError(
            f"{trace.path.name} has no event between {start_us:,.0f} and {stop_us:,.0f} µs to draw."
        )
    left_out = len(rows) - max_events
    if left_out > 0:
        rows = sorted(rows, key=lambda r: r["dur"], reverse=True)[:max_events]
        title = f"{title or trace.path.name} (without the {left_out:,} shortest events)"
    figure = go.Figure()
    for kind, (colour, legend) in _COLOURS.items():
        some = [r for r in rows if r["kind"] == kind]
        # A bar that begins left of the view starts at its edge, so that its name is seen.
        base = [max(r["start"], start_us) for r in some]
        if some:
            figure.add_bar(
                orientation="h",
                base=base,
                x=[r["start"] + r["dur"] - b for r, b in zip(some, base, strict=True)],
                y=[r["y"] for r in some],
                width=0.86,
                marker={"color": colour, "line": {"color": "white", "width": 0.5}},
                text=[r["label"] for r in some],
                textposition="inside",
                insidetextanchor="start",
                hovertext=[r["hover"] for r in some],
                hoverinfo="text",
                name=legend,
            )
    if arrows and (flow := _flow(rows)):
        xs, ys = flow
        line = {"color": "#555555", "width": 1, "dash": "dot"}
        figure.add_scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", name="launch → work")
    height = round(150 + 26 * (max(last for _, _, last in lanes) + 1))
    plots.layout(figure, title or "", "time since the trace began (µs)", height=height)
    figure.update_layout(
        barmode="overlay",
        margin={"l": 130, "r": 20, "t": 50 if title else 20, "b": 50},
        legend={
            "orientation": "h",
            "y": -60 / (height - 100),
            "yanchor": "top",
            "x": 0,
            "traceorder": "normal",
        },
        uniformtext={"minsize": 9, "mode": "hide"},
    )
    figure.update_xaxes(range=[start_us, stop_us], tickformat=",~f", showspikes=True, spikethickness=1)
    ticks, labels = [first for _, first, _ in lanes], [name for name, _, _ in lanes]
    bottom = max(last for _, _, last in lanes)
    figure.update_yaxes(
        tickvals=ticks, ticktext=labels, range=[bottom + 0.6, -0.6], showgrid=False, zeroline=False
    )
    for _, first, _ in lanes[1:]:
        figure.add_hline(y=first - 0.8, line={"color": plots.GRID_COLOUR, "width": 1})
    return figure


def _lanes(trace: Trace) -> tuple[list[dict], list[tuple[str, float, float]]]:
    """Rows to draw (kind, start, dur, y, label, hover, correlation) and lanes (name, first y, last y), top down."""
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
    groups += [(f"GPU stream {stream}", streams[stream]) for stream in sorted(streams, key=str)]
    rows, lanes, top = [], [], 0.0
    for name, events in groups:
        if not events:
            continue
        deepest, stack = 0, []
        for event in events:
            while stack and stack[-1] <= event["ts"]:
                stack.pop()
            deepest = max(deepest, len(stack))
            rows.append(_row(event, top + len(stack)))
            stack.append(event["ts"] + event["dur"])
        lanes.append((name, top, top + deepest))
        top += deepest + 1.6  # the gap leaves room for the arrows
    return rows, lanes


def _row(event: dict, y: float) -> dict:
    kind, args = KIND[event["cat"]], event["args"]
    name = event["name"]
    short = short_name(name) if kind == "kernel" else name
    label = _escape(short)
    facts = [f"<b>{label}</b>", f"{event['dur']:,.3f} µs, from {event['ts']:,.3f} µs"]
    if "grid" in args and "block" in args:
        facts.append("grid {} × {} × {}, block {} × {} × {}".format(*args["grid"], *args["block"]))
        shared = f"{args.get('shared memory', 0):,} bytes of shared memory a block"
        facts.append(f"{args.get('registers per thread', '?')} registers a thread, {shared}")
    if "bytes" in args:
        rate = f", {args['bytes'] / event['dur'] / 1e3:,.1f} GB/s" if event["dur"] else ""
        facts.append(f"{args['bytes']:,} bytes{rate}")
    if kind in ("kernel", "memcpy", "memset"):
        facts.append(f"stream {args.get('stream', '?')}")
    if kind == "kernel" and short != name:
        facts += [_escape(name[i : i + 100]) for i in range(0, min(len(name), 400), 100)]
    hover = "<br>".join(facts)
    start, dur = event["ts"], event["dur"]
    return dict(kind=kind, start=start, dur=dur, y=y, label=label, hover=hover, link=args.get("correlation"))


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _flow(rows: list[dict]) -> tuple[list, list] | None:
    """Lines from each CUDA call to the work with the same correlation number, as x and y broken by None."""
    work = {
        r["link"]: r for r in rows if r["kind"] in ("kernel", "memcpy", "memset") and r["link"] is not None
    }
    xs, ys = [], []
    for call in rows:
        done = work.get(call["link"]) if call["kind"] == "runtime" else None
        if done:
            xs += [call["start"], done["start"], None]
            ys += [call["y"] + 0.43, done["y"] - 0.43, None]
    return (xs, ys) if xs else None
