"""What the counters of two kernels say about the difference in their times, or that they do not say.

A difference between counters is named only where it tells the slower kernel from the faster. The sweeps that
are counted on an H200 tried each: of all pairs of kernels at one point whose times differ by 3 % or more,
this many had the difference on the side of the slower one (tests/widgets/test_differences.py counts again):

    full schedulers  94 % of 258      bytes         95 % of 343      spills        99 % of 102
    sectors          96 % of 1,423    in flight     98 % of 1,148    narrow loads  93 % of 948
    short blocks     98 % of 2,695    instructions  95 % of 718

That they go together does not make one the cause of the other: change one thing and count again. Pairs share
kernels, too, so they are fewer than they seem.

What did not pass: that its blocks fill less of the GPU was the faster one's in 91 % of the pairs (few blocks
with much work each are not idle SMs), and neither more launches nor fewer resident warps alone told one from
the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from helpers.widgets.reasons import RIGHT

Row = Mapping[str, Any]
SAME_TIME, MORE, FEWER = 1.03, 1.1, 0.8  # ratios
FULL_DRAM, BUSY_DRAM, FULL_ISSUE = 85.0, 60.0, 70.0  # per cent of the peak
_MOST = 3  # reasons in a sentence
# Of the instructions: a kernel that issues so many fewer can afford more sectors, spills and smaller
# requests.
_NOT_MUCH_LESS = 2 / 3
_IN_THE_COUNTED_RUN = 0.3  # of the bars' difference; with less of it, the counters cannot have the reason


@dataclass(frozen=True)
class Side:
    """One kernel at a point: its row of the table, and its counters.

    Attributes:
        name: what the figure calls it.
        row: of the table; None where it is not known.
        counted: of `counters`; None where nothing was counted.
        waves: how often its blocks fill the GPU, by arithmetic where nothing was counted.
        blocks: of its launch; None where that is not known.
        sm_count: of the GPU; None where that is not known.
    """

    name: str
    row: Row | None
    counted: Row | None
    waves: float | None = None
    blocks: int | None = None
    sm_count: int | None = None

    @property
    def us(self) -> float | None:
        """The bars' time; None where it was not timed or is not right."""
        return self.row["median_us"] if self.row is not None and self.row["verdict"] == "ok" else None

    @property
    def n_bytes(self) -> float | None:
        """What went through DRAM while the kernel ran: the last of what it stored is still in the L2 when it
        ends.
        """
        return None if self.counted is None else self.counted["read_bytes"] + self.counted["write_bytes"]

    def fact(self, name: str) -> Any:
        """What the compiler made, by `space.FACTS`; None where it is not known."""
        return None if self.row is None else self.row.get(name)

    @property
    def asked_at_once(self) -> float | None:
        """The bytes that an SM's resident warps can have on their way, as a number to compare: no unit."""
        if self.counted is None or not self.fact("loads"):
            return None
        of_a_thread = self.fact("loads") * self.fact("load_bytes")
        if self.blocks and self.fact("threads"):  # the code has loads that a mask leaves out
            n_threads = self.blocks * self.fact("threads")
            of_a_thread = min(of_a_thread, 32 * self.counted["load_sectors"] / n_threads)
        return self.counted["occupancy_percent"] * of_a_thread

    @property
    def bytes_a_load(self) -> float | None:
        """What a warp's load asks for, in sectors of 32 bytes; None of a kernel without loads."""
        if self.counted is None or not self.counted["load_requests"]:
            return None
        return 32 * self.counted["load_sectors"] / self.counted["load_requests"]


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
        both = f", and both keep DRAM at {busy:.0f} % of its peak or more" if busy >= FULL_DRAM else ""
        return f"{mine.name} and {rival.name} take the same time within 3 %{both}."
    begin = f"{slow.name} takes {_times(times)} the time of {fast.name}"
    counted = slow.counted["ncu_us"] / fast.counted["ncu_us"]
    if counted < 1 + _IN_THE_COUNTED_RUN * (times - 1):
        other = max(slow, fast, key=lambda one: abs(math.log(one.counted["ncu_us"] / one.us)))
        there = f"{other.name} took {other.counted['ncu_us']:,.1f} µs there and {other.us:,.1f} in the bars"
        return (
            f"{begin}, but {_times(counted)} in the run that was counted ({there}): the counters cannot "
            "say why."
        )
    said = [reason for look in LOOKS.values() if (reason := look(slow, fast))]
    if not said:
        return f"{begin}; these counters do not say why."
    return f"{begin}: {'; '.join(said[:_MOST])}."


def _times(ratio: float) -> str:
    return f"{ratio:.2f} ×" if ratio < 10 else f"{ratio:,.0f} ×"


def _ratio(slow: Side, fast: Side, column: str) -> float:
    """Of a counter; 1 where the faster kernel has none."""
    return slow.counted[column] / fast.counted[column] if fast.counted[column] else 1.0


def _moved(slow: Side, fast: Side) -> float:
    """The ratio of their bytes; 1 where nothing is moved."""
    return slow.n_bytes / fast.n_bytes if slow.n_bytes and fast.n_bytes else 1.0


def _same_bytes(slow: Side, fast: Side) -> bool:
    return 1 / MORE <= _moved(slow, fast) <= MORE


def _as_many_instructions(slow: Side, fast: Side) -> bool:
    return _ratio(slow, fast, "instructions") > _NOT_MUCH_LESS


def _more_sectors(slow: Side, fast: Side) -> float:
    many, few = (one.counted["load_sectors"] + one.counted["store_sectors"] for one in (slow, fast))
    return many / few if few else 1.0


def _resident(slow: Side, fast: Side) -> str:
    """How many warps are resident on each side, where the slower has fewer; "" otherwise."""
    mine, other = (one.counted["occupancy_percent"] for one in (slow, fast))
    return f", with {mine:.0f} % of the warps resident against {other:.0f} %" if mine <= FEWER * other else ""


def _bytes(slow: Side, fast: Side) -> str:
    moved, times = _moved(slow, fast), slow.us / fast.us
    if moved < MORE or not _as_many_instructions(slow, fast):
        return ""
    # Only of a kernel that the memory holds up can the bytes be all of it.
    enough = slow.counted["dram_percent"] >= BUSY_DRAM and 0.87 <= moved / times <= 1.15
    return f"{_times(moved)} the bytes through DRAM{', which is the difference' if enough else ''}"


def _spills(slow: Side, fast: Side) -> str:
    spilled, other = slow.fact("spill_bytes") or 0, fast.fact("spill_bytes") or 0
    if spilled <= other or not _as_many_instructions(slow, fast):
        return ""
    return f"{spilled} bytes a thread spilled, against {other}"


def _sectors(slow: Side, fast: Side) -> str:
    """Whether its loads and stores touch more sectors than the other's, beyond what its bytes say already."""
    more = _more_sectors(slow, fast)
    if more < MORE * max(1, _moved(slow, fast)) or not _as_many_instructions(slow, fast):
        return ""
    return f"its warps ask for {_times(more)} the sectors"


def _idle_sms(slow: Side, fast: Side) -> str:
    """Whether most of the GPU has nothing to do."""
    if not (slow.blocks and slow.sm_count) or slow.blocks >= slow.sm_count / 2:
        return ""
    if fast.blocks and fast.blocks <= slow.blocks:
        return ""
    idle = slow.sm_count - slow.blocks
    return (
        f"its {slow.blocks} block{'s leave' if slow.blocks > 1 else ' leaves'} {idle} of {slow.sm_count} "
        "SMs without one"
    )


def _in_flight(slow: Side, fast: Side) -> str:
    """Whether fewer bytes are on their way at once, by what the compiler made of both."""
    mine, other = slow.asked_at_once, fast.asked_at_once
    if not (mine and other and mine <= FEWER * other and _same_bytes(slow, fast)):
        return ""
    enough_to_do = _as_many_instructions(slow, fast) or mine <= 0.5 * other
    if not enough_to_do or _ratio(slow, fast, "waves") < 0.9:
        return ""
    return f"its resident warps can have {mine / other:.2f} × as many bytes on their way"


def _narrow(slow: Side, fast: Side) -> str:
    """The same by counters alone, of kernels whose code is not known: what a load asks for, times the warps
    that do.
    """
    mine, other = slow.bytes_a_load, fast.bytes_a_load
    if not (mine and other and _same_bytes(slow, fast)) or _more_sectors(slow, fast) >= MORE:
        return ""
    if mine * _ratio(slow, fast, "occupancy_percent") > 0.5 * other or _ratio(slow, fast, "waves") < 0.9:
        return ""
    if slow.asked_at_once and fast.asked_at_once:
        return ""  # `_in_flight` knows better
    smaller = f" against {other:.0f}" if mine < FEWER * other else ""
    return f"a warp's load asks for {mine:.0f} bytes{smaller}{_resident(slow, fast)}"


def _short_blocks(slow: Side, fast: Side) -> str:
    """Whether the same work comes in many more blocks, each over sooner: a block that begins has nothing in
    flight yet.
    """
    more = _ratio(slow, fast, "waves")
    if slow.counted["waves"] <= 1 or not _same_bytes(slow, fast):
        return ""
    resident = _resident(slow, fast)
    if more < (2 if resident else 3):
        return ""
    waves, other = slow.counted["waves"], fast.counted["waves"]
    told = "" if _narrow(slow, fast) else resident
    return f"the same work in {waves:,.1f} waves of blocks against {other:,.1f}{told}"


def _full_schedulers(slow: Side, fast: Side) -> str:
    """Whether there is hardly a cycle left in which an instruction more could be issued."""
    return _more_instructions(slow, fast) if slow.counted["issue_percent"] >= FULL_ISSUE else ""


def _instructions(slow: Side, fast: Side) -> str:
    """Whether it issues more, in so many cycles that loads wait for their turn."""
    return _more_instructions(slow, fast) if slow.counted["issue_percent"] < FULL_ISSUE else ""


def _more_instructions(slow: Side, fast: Side) -> str:
    busy, other = slow.counted["issue_percent"], fast.counted["issue_percent"]
    more = _ratio(slow, fast, "instructions")
    if more < 2 or busy < 40:
        return ""
    return (
        f"{_times(more)} the instructions, with the schedulers issuing in {busy:.0f} % of all cycles "
        f"against {other:.0f} %"
    )


# In the order of the sentence.
LOOKS: dict[str, Callable[[Side, Side], str]] = {
    "full schedulers": _full_schedulers,
    "bytes": _bytes,
    "spills": _spills,
    "sectors": _sectors,
    "idle SMs": _idle_sms,
    "in flight": _in_flight,
    "narrow loads": _narrow,
    "short blocks": _short_blocks,
    "instructions": _instructions,
}
