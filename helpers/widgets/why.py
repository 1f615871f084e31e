"""Two kernels at a point, side by side by their counters, under the live figure and in a saved page."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helpers.ncu import STALLS, NcuError
from helpers.widgets import counters
from helpers.widgets.differences import Side, sentence
from helpers.widgets.reasons import RIGHT, waves_of
from helpers.widgets.table import Table


def side(table: Table, kernel: str, point: Mapping[str, Any]) -> Side:
    """What is known of a kernel at a point."""
    row = table.row(kernel, point)
    waves = (
        waves_of(table, row) if row is not None and row["verdict"] in RIGHT and row.get("registers") else None
    )
    known = table.counted.get(table.space.key(kernel, point))
    blocks = table.space.n_blocks(row) if waves is not None and kernel in table.space.mapped else None
    return Side(kernel, row, known, waves, blocks, table.spec.sm_count or None)


def rival_of(table: Table, kernel: str, others: Sequence[str], point: Mapping[str, Any]) -> str | None:
    """The fastest other kernel at a point, or the first that is there; None where there is none."""
    timed = {
        name: us for name in others if name != kernel and (us := side(table, name, point).us) is not None
    }
    left = [name for name in others if name != kernel]
    return min(timed, key=timed.get) if timed else left[0] if left else None


def lines(table: Table, one: Side) -> dict[str, str]:
    """The comparison's lines of one side, by their titles; what is not known is a dash."""
    c, us = one.counted, one.us

    def counted(write: Callable[[Mapping[str, Any]], str]) -> str:
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
    """The bytes that a kernel must read and write at a point, in words; "" where only the inputs
    would say.
    """
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
    *,
    with_counters: bool = True,
) -> str:
    """The comparison as HTML: a sentence, a line for each counter, and what a line of the first kernel was
    before.

    Args:
        table: with what is known and counted.
        mine: the kernel of the first column.
        rival: that of the second.
        point: the sliders' positions.
        before: `lines` of the first kernel at the last position: what has changed says what it was.
        with_counters: whether the lines are shown, or the sentence alone.
    """
    one, other = side(table, mine, point), None if rival is None else side(table, rival, point)
    said = f'<p style="margin:4px 0">{html.escape(sentence(one, other))}</p>'
    shown = _counters(table, one, other, point, before or {}) if with_counters else ""
    return f'<div role="status" style="font:13px/1.5 sans-serif">{said}{shown}</div>'


def _counters(
    table: Table, one: Side, other: Side | None, point: Mapping[str, Any], before: Mapping[str, str]
) -> str:
    first, second = lines(table, one), None if other is None else lines(table, other)
    rows = []
    for title, text in first.items():
        was = before.get(title)
        changed = (
            f' <span style="opacity:.75">(was {html.escape(was)})</span>' if was not in (None, text) else ""
        )
        mark = f"<b>{html.escape(text)}</b>{changed}" if changed else html.escape(text)
        beside = "" if second is None else f'<td style="{_CELL}">{html.escape(second[title])}</td>'
        rows.append(
            f'<tr><th scope="row" style="{_HEAD}">{title}</th><td style="{_CELL}">{mark}</td>{beside}</tr>'
        )
    names = [each.name for each in (one, other) if each is not None]
    heads = "".join(f'<th scope="col" style="{_CELL};font-weight:600">{html.escape(n)}</th>' for n in names)
    moved = must_move(table, point)
    note = f"Counted by Nsight Compute behind empty caches{f'; {moved}' if moved else ''}."
    return (
        f'<table style="border-collapse:collapse"><thead><tr><td></td>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
        f'<p style="margin:4px 0;opacity:.8">{html.escape(note)}</p>'
    )


class Why:
    """The comparison under the live figure: against which kernel, a button that counts, and what is said.

    Attributes:
        box: all of it; empty where nothing is counted and nothing can be.
        rival: the kernels to compare with.
        open: whether the counters are shown, or the sentence alone.
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
        self.open = w.ToggleButton(description="Show the counters", layout={"width": "auto"})
        self.button = w.Button(description=_COUNT, layout={"width": "auto"})
        self.button.on_click(self._count)
        self.said = w.HTML()
        against = w.HBox([w.Label("Why: against"), self.rival])
        self.box = w.VBox(
            [
                w.HBox(
                    [against, self.open, self.button],
                    layout={"flex_flow": "row wrap", "align_items": "center"},
                ),
                self.said,
            ]
        )
        self.show(table, mine, kernels, point)
        self.rival.observe(self._another, "value")
        self.open.observe(lambda change: self._say(), "value")

    def show(self, table: Table, mine: str, kernels: Sequence[str], point: Mapping[str, Any]) -> None:
        """Bring the comparison to a point; what changed there since the last one says what it was."""
        others = [kernel for kernel in kernels if kernel != mine]
        self.table, self.mine, self.point = table, mine, dict(point)
        chosen = self.rival.value
        if tuple(self.rival.options) != tuple(others):
            self.rival.options = others  # which takes the first of them
        self.rival.value = chosen if chosen in others else rival_of(table, mine, others, point)
        self.before, self.now = self.now, lines(table, side(table, mine, point))
        counts_here = table.live and table.timed
        self.box.layout.display = None if others and (counts_here or table.counted) else "none"
        self.button.layout.display = None if counts_here else "none"
        self._say()

    def _another(self, change: dict) -> None:
        self.before = {}
        self._say()

    def _say(self, note: str = "") -> None:
        self.said.value = (
            as_html(
                self.table,
                self.mine,
                self.rival.value,
                self.point,
                self.before,
                with_counters=self.open.value,
            )
            + note
        )

    def _count(self, button: Any) -> None:
        """Count the two kernels at this point; the notebook waits, so that nothing else is timed
        meanwhile.
        """
        wanted = [kernel for kernel in (self.mine, self.rival.value) if kernel is not None]
        self.button.disabled, self.button.description = True, "Nsight Compute counts …"
        begin = time.perf_counter()
        try:
            self.table.count(wanted, self.point)
            note = f"<div>counted in {time.perf_counter() - begin:.1f} s</div>"
            self.open.value = True
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
