"""Two kernels at a point, side by side by their counters, and what these say about the difference in time."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.ncu import STALLS, NcuError
from helpers.widgets import counters
from helpers.widgets.reasons import RIGHT, waves_of
from helpers.widgets.table import Table

Row = Mapping[str, Any]
SAME_TIME, SAME_BYTES, LESS_BUSY = 1.03, 1.1, 5.0  # ratios, and per cents of the peak
FULL_MEMORY, FULL_ISSUE = 85.0, 70.0  # per cent of the peak


@dataclass(frozen=True)
class Side:
    """One kernel at a point: its row of the table, and its counters.

    Attributes:
        name: what the figure calls it.
        row: of the table; None where it is not known.
        counted: of `counters`; None where nothing was counted.
        waves: how often its blocks fill the GPU, by arithmetic where nothing was counted.
    """

    name: str
    row: Row | None
    counted: Row | None
    waves: float | None = None

    @property
    def us(self) -> float | None:
        """The bars' time; None where it was not timed or is not right."""
        return self.row["median_us"] if self.row is not None and self.row["verdict"] == "ok" else None

    @property
    def n_bytes(self) -> float | None:
        """What DRAM gave and the kernel stored: when that reaches DRAM is the L2's affair."""
        return (
            None if self.counted is None else self.counted["read_bytes"] + 32 * self.counted["store_sectors"]
        )

    def fact(self, name: str) -> Any:
        """What the compiler made, by `space.FACTS`; None where it is not known."""
        return None if self.row is None else self.row.get(name)

    @property
    def asked_at_once(self) -> float | None:
        """The bytes that an SM's resident warps can have asked for at once, as a number to compare: no unit."""
        if self.counted is None or not self.fact("loads"):
            return None
        return self.counted["occupancy_percent"] * self.fact("loads") * self.fact("load_bytes")


def side(table: Table, kernel: str, point: Mapping[str, Any]) -> Side:
    """What is known of a kernel at a point."""
    row = table.row(kernel, point)
    waves = (
        waves_of(table, row) if row is not None and row["verdict"] in RIGHT and row.get("registers") else None
    )
    return Side(kernel, row, table.counted.get(table.space.key(kernel, point)), waves)


def rival_of(table: Table, kernel: str, others: Sequence[str], point: Mapping[str, Any]) -> str | None:
    """The fastest other kernel at a point, or the first that is there; None where there is none."""
    timed = {
        name: us for name in others if name != kernel and (us := side(table, name, point).us) is not None
    }
    left = [name for name in others if name != kernel]
    return min(timed, key=timed.get) if timed else left[0] if left else None


def sentence(mine: Side, rival: Side | None) -> str:
    """What the counters say about the difference between two kernels, or that they do not say."""
    if rival is None:
        return "There is no other kernel to compare with."
    for one in (mine, rival):
        if one.row is not None and one.row["verdict"] not in (*RIGHT, "untimed", "unchecked"):
            return f"{one.name} is {one.row['verdict']} here: there is nothing to explain."
    if mine.counted is None or rival.counted is None:
        missing = " and ".join(one.name for one in (mine, rival) if one.counted is None)
        return f"Nothing was counted of {missing} here."
    if mine.us is None or rival.us is None:
        return "One of the two was not timed here: compare the counters, not the speeds."
    slow, fast = (mine, rival) if mine.us >= rival.us else (rival, mine)
    times = slow.us / fast.us
    if times < SAME_TIME:
        busy = min(slow.counted["dram_percent"], fast.counted["dram_percent"])
        both = f", and both keep DRAM at {busy:.0f} % of its peak or more" if busy >= FULL_MEMORY else ""
        return f"{mine.name} and {rival.name} take the same time within 3 %{both}."
    said = [reason for look in _LOOKS if (reason := look(slow, fast, times))]
    if not said:
        return f"{slow.name} takes {times:.2f} × the time of {fast.name}; these counters do not say why."
    return f"{slow.name} takes {times:.2f} × the time of {fast.name}: {'; '.join(said)}."


def _ratio(slow: float | None, fast: float | None) -> float | None:
    return slow / fast if slow and fast else None


def _bytes(slow: Side, fast: Side, times: float) -> str:
    moved = _ratio(slow.n_bytes, fast.n_bytes)
    if moved is None or moved < SAME_BYTES:
        return ""
    enough = "which is the difference" if moved >= 0.9 * times else "which is a part of the difference"
    return f"{moved:.2f} × the bytes read from DRAM and stored, {enough}"


def _spills(slow: Side, fast: Side, times: float) -> str:
    spilled, other = slow.fact("spill_bytes") or 0, fast.fact("spill_bytes") or 0
    return f"{spilled} bytes a thread spilled, against {other}" if spilled > other else ""


def _sectors(slow: Side, fast: Side, times: float) -> str:
    """Whether its loads and stores touch more sectors than the other's, beyond what its bytes say already."""
    many, few = (one.counted["load_sectors"] + one.counted["store_sectors"] for one in (slow, fast))
    more, moved = _ratio(many, few), _ratio(slow.n_bytes, fast.n_bytes) or 1
    return (
        f"its warps ask for {more:.2f} × the sectors" if more and more >= SAME_BYTES * max(1, moved) else ""
    )


def _issue(slow: Side, fast: Side, times: float) -> str:
    busy = slow.counted["issue_percent"]
    more = _ratio(slow.counted["instructions"], fast.counted["instructions"])
    if busy < FULL_ISSUE or more is None or more < SAME_BYTES:
        return ""
    return f"{more:.1f} × the instructions, with the schedulers issuing in {busy:.0f} % of all cycles"


def _few_blocks(slow: Side, fast: Side, times: float) -> str:
    waves = slow.counted["waves"]
    return (
        f"its blocks fill {100 * waves:.0f} % of the GPU"
        if waves < 0.9 and waves < fast.counted["waves"]
        else ""
    )


def _in_flight(slow: Side, fast: Side, times: float) -> str:
    """Whether the memory is less busy with the same bytes, since fewer loads are asked for at once."""
    moved = _ratio(slow.n_bytes, fast.n_bytes)
    idle = fast.counted["dram_percent"] - slow.counted["dram_percent"]
    asked = _ratio(slow.asked_at_once, fast.asked_at_once)
    if moved is None or moved >= SAME_BYTES or idle < LESS_BUSY or asked is None or asked > 0.8:
        return ""
    return (
        f"the same bytes, with {asked:.2f} × as many asked for at once, and DRAM at {slow.counted['dram_percent']:.0f} % "
        f"of its peak against {fast.counted['dram_percent']:.0f} %"
    )


def _launches(slow: Side, fast: Side, times: float) -> str:
    n, other = slow.counted["launches"], fast.counted["launches"]
    return f"{n} launches against {other}" if n > other else ""


_LOOKS: tuple[Callable[[Side, Side, float], str], ...] = (
    _launches,
    _bytes,
    _spills,
    _sectors,
    _few_blocks,
    _in_flight,
    _issue,
)


def lines(table: Table, one: Side) -> dict[str, str]:
    """The comparison's lines of one side, by their titles; what is not known is a dash."""
    c, us = one.counted, one.us

    def counted(write: Callable[[Row], str]) -> str:
        return "–" if c is None else write(c)

    def fact(name: str, unit: str = "") -> str:
        value = one.fact(name)
        return "–" if value is None else f"{value:,}{unit}"

    loads = one.fact("loads")
    most = counters.stalls(c) if c is not None else []
    return {
        "time, µs (bars)": "–" if us is None else f"{us:,.1f}",
        "from DRAM": counted(lambda c: _megabytes(c["read_bytes"])),
        "to DRAM": counted(lambda c: _megabytes(c["write_bytes"])),
        "DRAM, % of its peak": counted(lambda c: f"{c['dram_percent']:.0f}"),
        "L2, % of its peak": counted(lambda c: f"{c['l2_percent']:.0f}"),
        "issue slots, %": counted(lambda c: f"{c['issue_percent']:.0f}"),
        "warps resident, % of the most": counted(lambda c: f"{c['occupancy_percent']:.0f}"),
        "waves": f"{c['waves']:,.1f}" if c is not None else "–" if one.waves is None else f"{one.waves:,.1f}",
        "launches": counted(lambda c: f"{c['launches']:.0f}"),
        "registers a thread": fact("registers"),
        "spilled, bytes a thread": fact("spill_bytes"),
        "loads a thread": f"{loads} × {one.fact('load_bytes')} bytes" if loads else "–",
        "instructions, thousands": counted(lambda c: f"{c['instructions'] / 1e3:,.1f}"),
        "of them loads, and stores": counted(
            lambda c: f"{c['load_requests'] / 1e3:,.1f}, and {c['store_requests'] / 1e3:,.1f}"
        ),
        "sectors a load": counted(lambda c: _each(c["load_sectors"], c["load_requests"])),
        "sectors a store": counted(lambda c: _each(c["store_sectors"], c["store_requests"])),
        "warps waited most for": "–" if not most else _waits(most),
    }


def _waits(most: list[tuple[str, float]]) -> str:
    return "; ".join(f"{STALLS.get(reason, reason)} ({cycles:.1f} cycles)" for reason, cycles in most)


def _megabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:,.1f} MB"


def _each(sectors: float, requests: float) -> str:
    return f"{sectors / requests:.1f}" if requests else "none"


def must_move(table: Table, point: Mapping[str, Any]) -> str:
    """The bytes that a kernel must read and write at a point, in words; "" where only the inputs would say."""
    import torch

    space = table.space
    if callable(space.n_bytes):
        return ""
    n_bytes = (
        space.n_bytes
        * space.rows(point["n_cols"])
        * point["n_cols"]
        * getattr(torch, point["dtype"]).itemsize
    )
    return f"{_megabytes(n_bytes)} must move"


def as_html(
    table: Table,
    mine: str,
    rival: str | None,
    point: Mapping[str, Any],
    before: Mapping[str, str] | None = None,
) -> str:
    """The comparison as HTML: a line for each counter, a sentence, and what a line of the first kernel was before.

    Args:
        table: with what is known and counted.
        mine: the kernel of the first column.
        rival: that of the second.
        point: the sliders' positions.
        before: `lines` of the first kernel at the last position: what has changed says what it was.
    """
    one, other = side(table, mine, point), None if rival is None else side(table, rival, point)
    first, second = lines(table, one), None if other is None else lines(table, other)
    rows = []
    for title, text in first.items():
        was = before.get(title) if before else None
        changed = (
            f' <span style="opacity:.75">(was {html.escape(was)})</span>' if was not in (None, text) else ""
        )
        mark = f"<b>{html.escape(text)}</b>{changed}" if changed else html.escape(text)
        beside = "" if second is None else f'<td style="{_CELL}">{html.escape(second[title])}</td>'
        rows.append(
            f'<tr><th scope="row" style="{_HEAD}">{title}</th><td style="{_CELL}">{mark}</td>{beside}</tr>'
        )
    names = [mine] if rival is None else [mine, rival]
    heads = "".join(f'<th scope="col" style="{_CELL};font-weight:600">{html.escape(n)}</th>' for n in names)
    moved = must_move(table, point)
    note = f"Counted by Nsight Compute behind empty caches{f'; {moved}' if moved else ''}."
    return (
        f'<div role="status" style="font:13px/1.5 sans-serif"><p style="margin:4px 0">{html.escape(sentence(one, other))}</p>'
        f'<table style="border-collapse:collapse"><thead><tr><td></td>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
        f'<p style="margin:4px 0;opacity:.8">{html.escape(note)}</p></div>'
    )


class Why:
    """The comparison under the live figure: against which kernel, a button that counts, and what is said.

    Attributes:
        box: all of it; empty where nothing is counted and nothing can be.
        rival: the kernels to compare with.
        button: has Nsight Compute count the two at this point, on a GPU.
        said: the comparison.
    """

    def __init__(self, table: Table, mine: str, kernels: Sequence[str], point: Mapping[str, Any]) -> None:
        import ipywidgets as w

        self.table, self.mine, self.point = table, mine, dict(point)
        self.now: dict[str, str] = {}
        self.before: dict[str, str] = {}
        self.rival = w.ToggleButtons(
            options=list(kernels), style={"button_width": "auto"}, layout={"width": "auto"}
        )
        self.button = w.Button(description=_COUNT, layout={"width": "auto"})
        self.button.on_click(self._count)
        self.said = w.HTML()
        against = w.HBox([w.Label("Why: against"), self.rival])
        self.box = w.VBox(
            [
                w.HBox([against, self.button], layout={"flex_flow": "row wrap", "align_items": "center"}),
                self.said,
            ]
        )
        self.show(table, mine, kernels, point)
        self.rival.observe(self._another, "value")

    def show(self, table: Table, mine: str, kernels: Sequence[str], point: Mapping[str, Any]) -> None:
        """Bring the comparison to a point; what changed there since the last one says what it was."""
        others = [kernel for kernel in kernels if kernel != mine]
        self.table, self.mine, self.point = table, mine, dict(point)
        self.before, self.now = self.now, lines(table, side(table, mine, point))
        with self.rival.hold_trait_notifications():
            chosen = self.rival.value
            if tuple(self.rival.options) != tuple(others):
                self.rival.options = others
            self.rival.value = chosen if chosen in others else rival_of(table, mine, others, point)
        counts_here = table.live and table.timed
        self.box.layout.display = None if others and (counts_here or table.counted) else "none"
        self.button.layout.display = None if counts_here else "none"
        self._say()

    def _another(self, change: dict) -> None:
        self.before = {}
        self._say()

    def _say(self, note: str = "") -> None:
        self.said.value = as_html(self.table, self.mine, self.rival.value, self.point, self.before) + note

    def _count(self, button: Any) -> None:
        """Count the two kernels at this point; the notebook waits, so that nothing else is timed meanwhile."""
        wanted = [kernel for kernel in (self.mine, self.rival.value) if kernel is not None]
        self.button.disabled, self.button.description = True, "Nsight Compute counts …"
        begin = time.perf_counter()
        try:
            self.table.count(wanted, self.point)
            note = f"<div>counted in {time.perf_counter() - begin:.1f} s</div>"
        except (NcuError, ValueError) as error:
            note = f'<div role="alert">not counted: {html.escape(str(error))}</div>'
        finally:
            self.button.disabled, self.button.description = False, _COUNT
        self.now = lines(self.table, side(self.table, self.mine, self.point))
        self._say(note)


_COUNT = "Count both with Nsight Compute (some seconds)"
_HEAD = (
    "text-align:left;font-weight:400;padding:1px 14px 1px 0;background:none;border:none;vertical-align:top"
)
_CELL = "text-align:left;padding:1px 14px 1px 0;background:none;border:none;max-width:24em;vertical-align:top"
