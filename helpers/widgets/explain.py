"""Explain a row of the table in words: what the compiler produced, and why one kernel is slower than another.

`RULES` is the table behind `sentence`. A rule names a difference between the counters of two kernels only if
that difference distinguishes the slower kernel from the faster one. The sweeps that were counted on an H200
tested each rule on all pairs of kernels at the same point whose times differ by 3 % or more. This is how
often the difference was on the side of the slower kernel (tests/widgets/test_explain.py counts again):

    full schedulers  94 % of 258      bytes         95 % of 343      spills        99 % of 102
    sectors          96 % of 1,423    in flight     98 % of 1,148    narrow loads  93 % of 948
    short blocks     98 % of 2,695    instructions  95 % of 718

A correlation is not a cause, so change one thing and count again. Because pairs share kernels, there are also
fewer independent observations than pairs.

Some candidates failed. Blocks that fill less of the GPU were on the side of the faster kernel in 91 % of the
pairs (a few blocks with much work each don't leave SMs idle). Neither more launches nor fewer resident warps
distinguished the two kernels on their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.ncu import STALLS
from helpers.widgets import counting
from helpers.widgets.residence import occupancy, percent_held
from helpers.widgets.table import Table

Row = Mapping[str, Any]
RIGHT = ("ok", "right")  # timed, and checked without being timed
UNTIMED = ("untimed", "unchecked")
SAME_TIME, MORE, FEWER = 1.03, 1.1, 0.8  # ratios
FULL_DRAM, BUSY_DRAM, FULL_ISSUE, BUSY_ISSUE = 85.0, 60.0, 70.0, 40.0  # percent of the peak
_MAX_REASONS = 3
# A kernel that issues a smaller share of the instructions can afford more sectors, spills and requests.
_FEWER_INSTRUCTIONS = 2 / 3
# If the counted run shows less than this share of the timed difference, its counters cannot explain it.
_COUNTED_SHARE = 0.3


@dataclass(frozen=True)
class Side:
    """One kernel at a point: its row of the table and its counters.

    Attributes:
        name: the kernel's name.
        row: its row; None if it isn't known.
        counted: its row of `counting`; None if it wasn't counted.
        waves: how many times its blocks fill the GPU; None if that isn't known.
        blocks: the blocks of its launch; None if that isn't known.
        sm_count: the SMs of the GPU; None if that isn't known.
    """

    name: str
    row: Row | None
    counted: Row | None
    waves: float | None = None
    blocks: int | None = None
    sm_count: int | None = None

    @property
    def us(self) -> float | None:
        """The time that the bars show, in µs; None if the kernel wasn't timed or is wrong."""
        return self.row["median_us"] if self.row is not None and self.row["verdict"] == "ok" else None

    def fact(self, name: str) -> Any:
        """One of `space.FACTS`; None if it isn't known."""
        return None if self.row is None else self.row.get(name)

    @property
    def spilled(self) -> int:
        return self.fact("spill_bytes") or 0

    @property
    def n_bytes(self) -> float:
        """The bytes that went through DRAM while it ran; its last stores are still in L2 when it ends."""
        return self.counted["read_bytes"] + self.counted["write_bytes"]

    @property
    def sectors(self) -> float:
        """The 32-byte sectors that its loads and stores touch."""
        return self.counted["load_sectors"] + self.counted["store_sectors"]

    @property
    def in_flight(self) -> float | None:
        """A number proportional to the bytes that an SM's resident warps can have in flight."""
        if not self.fact("loads"):
            return None
        per_thread = self.fact("loads") * self.fact("load_bytes")
        if self.blocks and self.fact("threads"):  # the code also has loads that a mask disables
            per_thread = min(
                per_thread, 32 * self.counted["load_sectors"] / (self.blocks * self.fact("threads"))
            )
        return self.counted["occupancy_percent"] * per_thread

    @property
    def bytes_per_load(self) -> float | None:
        """The bytes of the sectors that a warp's load requests; None for a kernel without loads."""
        n = self.counted["load_requests"]
        return 32 * self.counted["load_sectors"] / n if n else None


class _Times(float):
    """A ratio that is written as "2.00 times" or "31 times"; 1 if one of the two is 0."""

    def __new__(cls, many: float, few: float) -> _Times:
        return super().__new__(cls, many / few if many and few else 1.0)

    def __str__(self) -> str:
        return f"{self:.2f} times" if self < 10 else f"{self:,.0f} times"


@dataclass(frozen=True)
class Pair:
    """The slower and the faster of two kernels, with the quantities that `RULES` compare and print."""

    slow: Side
    fast: Side

    def ratio(self, column: str) -> _Times:
        """The slower kernel's counter divided by the faster one's."""
        return _Times(self.slow.counted[column], self.fast.counted[column])

    @property
    def time(self) -> _Times:
        return _Times(self.slow.us, self.fast.us)

    @property
    def moved(self) -> _Times:
        return _Times(self.slow.n_bytes, self.fast.n_bytes)

    @property
    def same_bytes(self) -> bool:
        return 1 / MORE <= self.moved <= MORE

    @property
    def instructions(self) -> _Times:
        return self.ratio("instructions")

    @property
    def as_many_instructions(self) -> bool:
        return self.instructions > _FEWER_INSTRUCTIONS

    @property
    def sectors(self) -> _Times:
        return _Times(self.slow.sectors, self.fast.sectors)

    @property
    def in_flight(self) -> float | None:
        mine, other = self.slow.in_flight, self.fast.in_flight
        return mine / other if mine and other else None

    @property
    def accounts(self) -> str:
        """Set if the bytes are the whole difference, which is only possible if memory limits the kernel."""
        busy = self.slow.counted["dram_percent"] >= BUSY_DRAM
        return (
            ", which accounts for the difference" if busy and 0.87 <= self.moved / self.time <= 1.15 else ""
        )

    @property
    def fewer_warps(self) -> bool:
        return self.slow.counted["occupancy_percent"] <= FEWER * self.fast.counted["occupancy_percent"]

    @property
    def resident(self) -> str:
        """The share of resident warps of both, if the slower kernel has fewer."""
        mine, other = (one.counted["occupancy_percent"] for one in (self.slow, self.fast))
        share = f", with {mine:.0f} % of the warps resident instead of {other:.0f} %"
        return share if self.fewer_warps else ""

    @property
    def resident_once(self) -> str:
        """As `resident`, unless the rule "narrow loads" has already printed it."""
        return "" if _narrow_loads(self) else self.resident

    @property
    def instead_per_load(self) -> str:
        other = self.fast.bytes_per_load
        return f" instead of {other:.0f}" if self.slow.bytes_per_load < FEWER * other else ""


def _idle_sms(p: Pair) -> bool:
    """Most of the GPU has nothing to do."""
    mine, other, n_sms = p.slow.blocks, p.fast.blocks, p.slow.sm_count
    return bool(mine and n_sms) and mine < n_sms / 2 and not (other and other <= mine)


def _fewer_in_flight(p: Pair) -> bool:
    """Fewer bytes are in flight at once, according to the compiled code of both."""
    if p.in_flight is None or p.in_flight > FEWER or not p.same_bytes or p.ratio("waves") < 0.9:
        return False
    return p.as_many_instructions or p.in_flight <= 0.5


def _narrow_loads(p: Pair) -> bool:
    """The same according to the counters alone, for kernels whose compiled code isn't known."""
    mine, other = p.slow.bytes_per_load, p.fast.bytes_per_load
    if not (mine and other) or p.in_flight is not None or not p.same_bytes or p.sectors >= MORE:
        return False
    return mine * p.ratio("occupancy_percent") <= 0.5 * other and p.ratio("waves") >= 0.9


def _short_blocks(p: Pair) -> bool:
    """The same work is split into many more blocks, and a block that begins has nothing in flight yet."""
    return p.slow.counted["waves"] > 1 and p.same_bytes and p.ratio("waves") >= (2 if p.fewer_warps else 3)


def _more_instructions(p: Pair) -> bool:
    return p.instructions >= 2 and p.slow.counted["issue_percent"] >= BUSY_ISSUE


def _full(p: Pair) -> bool:
    """There is hardly a cycle left in which another instruction could be issued."""
    return p.slow.counted["issue_percent"] >= FULL_ISSUE


@dataclass(frozen=True)
class Rule:
    """A difference that explains why a kernel is slower.

    Attributes:
        name: as in the table of the module's docstring.
        applies: whether the pair has this difference.
        text: what is said of the slower kernel, "it"; a template with the properties of the `Pair` p.
    """

    name: str
    applies: Callable[[Pair], bool]
    text: str


_INSTRUCTIONS = (
    "it executes {p.instructions} as many instructions, and its schedulers issue in "
    "{p.slow.counted[issue_percent]:.0f} % of all cycles instead of {p.fast.counted[issue_percent]:.0f} %"
)
RULES = (  # in the order in which a sentence names them
    Rule("full schedulers", lambda p: _more_instructions(p) and _full(p), _INSTRUCTIONS),
    Rule(
        "bytes",
        lambda p: p.moved >= MORE and p.as_many_instructions,
        "it moves {p.moved} as many bytes through DRAM{p.accounts}",
    ),
    Rule(
        "spills",
        lambda p: p.slow.spilled > p.fast.spilled and p.as_many_instructions,
        "it spills {p.slow.spilled} bytes per thread instead of {p.fast.spilled}",
    ),
    Rule(
        "sectors",  # beyond what the bytes explain already
        lambda p: p.sectors >= MORE * max(1, p.moved) and p.as_many_instructions,
        "its loads and stores touch {p.sectors} as many sectors",
    ),
    Rule(
        "idle SMs",
        _idle_sms,
        "its grid size of {p.slow.blocks} leaves most of the {p.slow.sm_count} SMs idle",
    ),
    Rule(
        "in flight",
        _fewer_in_flight,
        "its resident warps can have only {p.in_flight:.2f} times as many bytes in flight",
    ),
    Rule(
        "narrow loads",
        _narrow_loads,
        "each load of a warp requests {p.slow.bytes_per_load:.0f} bytes{p.instead_per_load}{p.resident}",
    ),
    Rule(
        "short blocks",
        _short_blocks,
        "it does the same work in {p.slow.counted[waves]:,.1f} waves of blocks instead of "
        "{p.fast.counted[waves]:,.1f}{p.resident_once}",
    ),
    Rule("instructions", lambda p: _more_instructions(p) and not _full(p), _INSTRUCTIONS),
)


def sentence(mine: Side, rival: Side | None) -> str:
    """What the counters say about the difference between two kernels, or that they don't explain it.

    If a kernel is wrong or doesn't run, the sentence says what is wrong with it.
    """
    for one in (mine, rival):
        if one is not None and one.row is not None and one.row["verdict"] not in (*RIGHT, *UNTIMED):
            state = "is wrong" if one.row["verdict"] == "wrong" else "does not run"
            return f"{one.name} {state} here: {one.row['reason'].rstrip('.')}."
    if rival is None:
        return "There is no other kernel to compare with."
    uncounted = " and ".join(one.name for one in (mine, rival) if one.counted is None)
    if uncounted:
        return f"Nsight Compute has no counters of {uncounted} at this point."
    if mine.us is None or rival.us is None:
        return "One of the two kernels was not timed here, so only their counters can be compared."
    pair = Pair(mine, rival) if mine.us >= rival.us else Pair(rival, mine)
    slow, fast = pair.slow, pair.fast
    if pair.time < SAME_TIME:
        busy = min(slow.counted["dram_percent"], fast.counted["dram_percent"])
        both = f", and both use {busy:.0f} % of the peak DRAM throughput or more" if busy >= FULL_DRAM else ""
        return f"{mine.name} and {rival.name} take the same time within 3 %{both}."
    begin = f"{slow.name} takes {pair.time} as long as {fast.name}"
    if pair.ratio("ncu_us") < 1 + _COUNTED_SHARE * (pair.time - 1):
        other = max(slow, fast, key=lambda one: abs(math.log(one.counted["ncu_us"] / one.us)))
        return (
            f"{begin}, but only {pair.ratio('ncu_us')} as long in the run that was counted, in which "
            f"{other.name} took {other.counted['ncu_us']:,.1f} µs instead of {other.us:,.1f} µs. The "
            "counters cannot explain a difference that was not there."
        )
    reasons = [rule.text.format(p=pair) for rule in RULES if rule.applies(pair)]
    if not reasons:
        return f"{begin}, and these counters do not explain why."
    return f"{begin}: {'; '.join(reasons[:_MAX_REASONS])}."


def side(table: Table, kernel: str, point: Mapping[str, Any]) -> Side:
    """What is known about a kernel at a point."""
    row = table.row(kernel, point)
    compiled = row is not None and row["verdict"] in RIGHT and bool(row.get("registers"))
    waves = _residence(table, row)[-1] if compiled else None
    blocks = table.space.n_blocks(row) if waves is not None and kernel in table.space.mapped else None
    counted = table.counted.get(table.space.key(kernel, point))
    return Side(kernel, row, counted, waves, blocks, table.spec.sm_count or None)


def rival_of(table: Table, kernel: str, others: Sequence[str], point: Mapping[str, Any]) -> str | None:
    """The fastest other kernel at a point, or the first if none was timed; None if there is no other."""
    left = [name for name in others if name != kernel]
    timed = {name: us for name in left if (us := side(table, name, point).us) is not None}
    return min(timed, key=timed.get) if timed else left[0] if left else None


# From a counter's title to its text.
_COUNTERS: dict[str, Callable[[Row], str]] = {
    "read from DRAM": lambda c: _megabytes(c["read_bytes"]),
    "written to DRAM": lambda c: _megabytes(c["write_bytes"]),
    "DRAM throughput, % of peak": lambda c: f"{c['dram_percent']:.0f}",
    "L2 throughput, % of peak": lambda c: f"{c['l2_percent']:.0f}",
    "issue slots in use, %": lambda c: f"{c['issue_percent']:.0f}",
    "resident warps, % of maximum": lambda c: f"{c['occupancy_percent']:.0f}",
    "waves": lambda c: f"{c['waves']:,.1f}",
    "launches": lambda c: f"{c['launches']:.0f}",
    "instructions, thousands": lambda c: f"{c['instructions'] / 1e3:,.1f}",
    "load instructions, thousands": lambda c: f"{c['load_requests'] / 1e3:,.1f}",
    "store instructions, thousands": lambda c: f"{c['store_requests'] / 1e3:,.1f}",
    "sectors per load": lambda c: _per(c["load_sectors"], c["load_requests"]),
    "sectors per store": lambda c: _per(c["store_sectors"], c["store_requests"]),
    "warps mostly waited for": lambda c: "; ".join(
        f"{STALLS.get(reason, reason)} ({cycles:.1f} cycles)" for reason, cycles in counting.stalls(c)
    ),
}


def lines(table: Table, one: Side) -> dict[str, str]:
    """The counters of a kernel, from title to text; a dash for what isn't known."""
    c, loads = one.counted, one.fact("loads")
    compiled = one.fact("spill_bytes") is not None
    found = {
        "time, µs": one.us and f"{one.us:,.1f}",
        "must move": _must_move(table, one.row),
        **{title: c and text(c) for title, text in _COUNTERS.items()},
        "registers per thread": one.fact("registers") and f"{one.fact('registers')}",
        "bytes spilled per thread": compiled and f"{one.spilled:,}",
        "loads per thread": loads and f"{loads} × {one.fact('load_bytes')} bytes",
    }
    if c is None and one.waves is not None:
        found["waves"] = f"{one.waves:,.1f}"
    return {title: text or "–" for title, text in found.items()}


def _must_move(table: Table, row: Row | None) -> str | None:
    """The bytes that the operation must read and write; None if only the inputs determine them."""
    import torch

    space = table.space
    if row is None or callable(space.n_bytes) or space.n_flops is not None:
        return None
    itemsize = getattr(torch, row["dtype"]).itemsize
    return _megabytes(space.n_bytes * space.rows(row["n_cols"]) * row["n_cols"] * itemsize)


def _megabytes(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:,.1f} MB"


def _per(sectors: float, requests: float) -> str:
    return f"{sectors / requests:.1f}" if requests else "none"


def reason(table: Table, row: Row | None) -> str:
    """The line under the bars: the verdict, or the compiled code and how the launch fits on an SM."""
    if row is None:
        return table.refusal or "not measured yet"
    checked = f"{row['reason']} · " if row["reason"] else ""
    if row["verdict"] not in RIGHT:
        if row["verdict"] not in ("unchecked", "skipped") or not row["registers"]:
            return f"{row['verdict']}: {row['reason']}"
        checked = f"{row['verdict']}: {checked}"
    if not row.get("registers"):
        return f"{checked}its compiled code is not available"
    blocks, limit, percent, waves = _residence(table, row)
    spills = f"{row['spill_bytes']} bytes spilled" if row["spill_bytes"] else "none spilled"
    shared = f" · {row['shared_bytes']:,} bytes of shared memory per block" if row["shared_bytes"] else ""
    return (
        f"{checked}{row['registers']} registers per thread ({spills}){shared} · "
        f"{_work(row, '-byte')} · "
        f"{blocks} block{'s' * (blocks != 1)} per SM, {percent} % of its threads (limit: {limit})"
        + (f" · {waves:,.1f} waves" if waves is not None else "")
    )


def brief(table: Table, row: Row | None) -> str:
    """A shorter `reason` for a tooltip."""
    if row is None or row["verdict"] not in RIGHT or not row.get("registers"):
        return reason(table, row)[:90]
    _, _, percent, waves = _residence(table, row)
    spills = f", {row['spill_bytes']} B spilled" if row["spill_bytes"] else ""
    return f"{row['registers']} registers{spills}, {_work(row, ' B')}, {percent} % occupied" + (
        f", {waves:,.1f} waves" if waves is not None else ""
    )


def _work(row: Row, unit: str) -> str:
    """The loads of a kernel that memory limits, or the main loop of one that arithmetic limits."""
    if row.get("loop_opcode") is None:
        return f"{row['loads']} × {row['load_bytes']}{unit} loads"
    if not row["loop_products"]:
        return "no loop that multiplies"
    n, total = row["loop_products"], row["loop_instructions"]
    return f"{n} {row['loop_opcode']} of {total:,} instructions per loop iteration"


def _residence(table: Table, row: Row) -> tuple[int, str, int, float | None]:
    """Blocks per SM, what limits them, the percentage of an SM's threads, and the waves of a launch."""
    spec = table.spec
    blocks, limit = occupancy(spec, row["threads"], row["registers"], row["shared_bytes"] or 0)
    waves = table.space.n_blocks(row) / max(1, blocks * spec.sm_count) if spec.sm_count else None
    return blocks, limit, percent_held(spec, blocks, row["threads"]), waves
