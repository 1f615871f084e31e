"""Simulates programs that wait for each other (lesson 09): which program occupies which place of a GPU, and
whether all of them end.

This is a model, not a measurement. Every program loads for two units of time, publishes, waits until all
parts of its row have published, and writes for one unit. Programs start in the order of their numbers as soon
as a place is free, and they keep their place while they wait.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from helpers import plots

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

LOAD, WRITE = 2, 1  # units of time
LOADS, WAITS, WRITES, HANGS = "loads", "waits", "writes", "waits for ever"
_AFTER = 3  # units of time that a plot shows after a hang
_MOST_PROGRAMS = 10_000


def follow(n_rows: int, parts: int, places: int, *, neighbours: bool = True) -> pd.DataFrame:
    """Returns what each program does over time on a GPU with `places` places.

    Args:
        n_rows: The number of rows.
        parts: Programs per row.
        places: The number of programs that run at once.
        neighbours: Whether the programs of a row have consecutive numbers. Otherwise, the first parts of all
            rows come first.

    Returns:
        A DataFrame with a row per interval: `program`, `row`, `part`, `place`, `what` ("loads", "waits",
        "writes" or "waits for ever"), `start` and `end` (in units of time). `.attrs["hangs"]` is whether the
        programs hang, `.attrs["published"]` is how many have published, and `.attrs["not_started"]` lists
        those that never start.

    Raises:
        ValueError: A number is below 1, or there are too many programs to draw.
    """
    import pandas as pd

    n = n_rows * parts
    if min(n_rows, parts, places) < 1 or n > _MOST_PROGRAMS:
        raise ValueError(
            "follow: rows, parts and places must be at least 1, and rows × parts at most "
            f"{_MOST_PROGRAMS:,}; "
            f"you passed {n_rows} rows, {parts} parts and {places} places."
        )
    row_of = [p // parts if neighbours else p % n_rows for p in range(n)]
    not_started, free = deque(range(n)), list(range(places))
    events: list[tuple[int, int, str]] = []  # time, program, the activity that ends
    place, published, waiting_programs = {}, {}, defaultdict(list)
    intervals = []

    def add_interval(program: int, what: str, start: int, end: int) -> None:
        if end > start:
            row = row_of[program]
            part = program % parts if neighbours else program // n_rows
            intervals.append((program, row, part, place[program], what, start, end))

    def start_programs(now: int) -> None:
        while not_started and free:
            program = not_started.popleft()
            place[program] = heapq.heappop(free)
            add_interval(program, LOADS, now, now + LOAD)
            heapq.heappush(events, (now + LOAD, program, LOADS))

    now = 0
    start_programs(now)
    while events:
        now, program, ended = heapq.heappop(events)
        if ended == WRITES:
            heapq.heappush(free, place[program])
        else:
            published[program] = now
            waiting_programs[row_of[program]].append(program)
            if len(waiting_programs[row_of[program]]) == parts:
                for one in waiting_programs.pop(row_of[program]):
                    add_interval(one, WAITS, published[one], now)
                    add_interval(one, WRITES, now, now + WRITE)
                    heapq.heappush(events, (now + WRITE, one, WRITES))
        if not events or events[0][0] > now:
            start_programs(now)
    for programs in waiting_programs.values():
        for one in programs:
            add_interval(one, HANGS, published[one], now + _AFTER)
    columns = ["program", "row", "part", "place", "what", "start", "end"]
    table = pd.DataFrame(sorted(intervals), columns=columns)
    table.attrs |= {
        "hangs": bool(waiting_programs),
        "published": len(published),
        "not_started": list(not_started),
    }
    return table


def draw(
    n_rows: int = 2, parts: int = 6, places: Sequence[int] = (4, 5, 6, 8, 12), *, neighbours: bool = True
) -> go.Figure:
    """Draws a lane per place of a GPU, with a bar per program in it. A slider changes the number of places.

    Args:
        n_rows: The number of rows.
        parts: Programs per row.
        places: The numbers of places that the slider offers; the first one is shown.
        neighbours: As in `follow`.
    """
    import plotly.graph_objects as go

    fig, tables = go.Figure(), []
    stages = {LOADS: (1.0, ""), WAITS: (0.35, ""), HANGS: (0.35, "x"), WRITES: (1.0, "/")}
    for n in places:
        table = follow(n_rows, parts, n, neighbours=neighbours)
        tables.append(table)
        for what, (opacity, pattern) in stages.items():
            subset = table[table.what == what]
            colors = [plots.PALETTE[row % 7] for row in subset.row]
            label = "" if what in (WAITS, WRITES) else what
            fig.add_trace(
                go.Bar(
                    orientation="h",
                    y=[f"place {one}" for one in subset.place],
                    x=list(subset.end - subset.start),
                    base=list(subset.start),
                    width=0.8,
                    visible=n == places[0],
                    showlegend=False,
                    text=[
                        f"{p}" if what == LOADS else what if label or e - s > 1 else ""
                        for p, s, e in zip(subset.program, subset.start, subset.end, strict=True)
                    ],
                    textposition="inside",
                    insidetextanchor="middle",
                    textangle=0,
                    constraintext="none",
                    insidetextfont={
                        "color": [plots.text_on(c) if opacity == 1 else "#000000" for c in colors],
                        "size": 13,
                    },
                    marker={
                        "color": [c if opacity == 1 else _pale(c) for c in colors],
                        "line": {"color": colors, "width": 2},
                        "pattern": {
                            "shape": pattern,
                            "fgcolor": plots.PAPER_COLOUR if pattern == "/" else "#767676",
                            "size": 6,
                            "solidity": 0.3,
                        },
                    },
                    customdata=[
                        (p, r, q, what)
                        for p, r, q in zip(subset.program, subset.row, subset.part, strict=True)
                    ],
                    hovertemplate="program %{customdata[0]}: row %{customdata[1]}, part %{customdata[2]}, "
                    "%{customdata[3]}<extra></extra>",
                )
            )
    steps = []
    for i, (n, table) in enumerate(zip(places, tables, strict=True)):
        visible = [j // len(stages) == i for j in range(len(places) * len(stages))]
        title = _title(table, parts, n)
        axis = {"yaxis.categoryarray": [f"place {k}" for k in range(n)], "title.text": title}
        steps.append({"label": str(n), "method": "update", "args": [{"visible": visible}, axis]})
    plots.layout(fig, "", "time (units of the model)", height=520)
    fig.update_layout(
        barmode="overlay",
        bargap=0.15,
        title_text=_title(tables[0], parts, places[0]),
        sliders=[
            {
                "active": 0,
                "steps": steps,
                "currentvalue": {"prefix": "places of the chip: "},
                "pad": {"t": 55},
            }
        ],
        margin={"t": 90, "l": 80, "b": 120},
    )
    fig.update_yaxes(
        categoryorder="array",
        categoryarray=[f"place {k}" for k in range(places[0])],
        autorange="reversed",
        showgrid=False,
    )
    fig.update_xaxes(range=[0, max(int(table.end.max()) for table in tables) + 0.2], dtick=1)
    return fig


def _title(table: pd.DataFrame, parts: int, places: int) -> str:
    not_started = table.attrs["not_started"]
    heading = f"{parts} programs per row, {places} places: "
    if not table.attrs["hangs"]:
        return f"{heading}all end<br><sub>number: program · color: row · pale: waits · hatched: writes</sub>"
    first, last = not_started[0], not_started[-1]
    programs = f"program {first}" if len(not_started) == 1 else f"programs {first} to {last}"
    return (
        f"{heading}it hangs<br><sub>number: program · color: row · {programs} cannot start: "
        "waiting programs occupy all places</sub>"
    )


def _pale(color: str) -> str:
    """Returns a color that is two thirds of the way to white."""
    return "#" + "".join(f"{(int(color[i : i + 2], 16) + 2 * 255) // 3:02X}" for i in (1, 3, 5))
