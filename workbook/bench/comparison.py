"""Compare a run with an earlier one: which points became slower or faster by more than the noise."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from helpers.records import Provenance
from helpers.timing.changes import LEAST, Change, change_since
from workbook.bench.compiled import differences
from workbook.bench.points import PointResult

EAGER = "eager"
_PACKAGES = ("torch", "triton", "cuda", "driver")
_METHOD = (
    "Times of different runs are compared relative to PyTorch's copy, which each run measures, and also "
    "relative to eager if PyTorch has not changed. The intervals are 95 % for all points together."
)


@dataclass(frozen=True)
class PointComparison:
    """One point in an earlier run and now.

    Attributes:
        before, now: the two results.
        change: the change of the time relative to the copy's; None if one of the runs has no time.
    """

    before: PointResult
    now: PointResult
    change: Change | None

    @property
    def verdict(self) -> str:
        """ "slower", "faster", "same", "fails" (only timed before), or "nothing" (not timed before)."""
        if self.before.us is None:
            return "nothing"
        if self.change is None:
            return "fails"
        return "slower" if self.change.slower else "faster" if self.change.faster else "same"

    @property
    def name(self) -> str:
        """The point in words, such as "op softmax, n_cols 8192"."""
        return ", ".join(f"{name} {value}" for name, value in self.before.point.items())

    def __str__(self) -> str:
        before, now = self.before, self.now
        if self.change is None:
            return f"{self.verdict:<7} {self.name}: {now.note} ({before.us.value:,.2f} µs before)"
        lines = [
            f"{self.verdict:<7} {self.name}: {self.change.ratio} its earlier time relative to the copy; "
            f"{before.us.value:,.2f} µs before, {now.us.value:,.2f} µs now"
        ]
        counts = {kernel["kernel"]: kernel["counts"] for kernel in before.compiled}
        for kernel in now.compiled:
            if kernel["kernel"] in counts:
                changed = differences(counts[kernel["kernel"]], kernel["counts"])
                lines.append(f"        {kernel['kernel']}: {changed or 'the compiled code has not changed'}")
        return "\n".join(lines)


def compare(
    before: PointResult,
    now: PointResult,
    *,
    n_points: int = 1,
    least: float = LEAST,
    same_torch: bool = False,
) -> PointComparison:
    """Compare two results of one point.

    Args:
        before, now: the earlier and the new result.
        n_points: how many points are compared altogether; the intervals hold for all of them together.
        least: the smallest change that counts, as a fraction.
        same_torch: PyTorch's own kernels are the same in both runs (see `is_same_torch`). A change must then
            also show relative to the peer "eager".
    """
    if not (before.ratio and now.ratio):
        return PointComparison(before, now, None)
    change = change_since(before.ratio, now.ratio, before.us.value, n_points=n_points, least=least)
    if same_torch and EAGER in before.peers and EAGER in now.peers:
        over_eager = (result.ratio.over(result.peers[EAGER]) for result in (before, now))
        other = change_since(*over_eager, before.us.value, n_points=n_points, least=least)
        change = replace(change, ratio=change.ratio.spanning(other.ratio))
    return PointComparison(before, now, change)


def is_same_torch(before: Provenance, now: Provenance) -> bool:
    """Whether PyTorch's own kernels are the same in both runs."""
    return all(getattr(before, name) == getattr(now, name) for name in _PACKAGES)


@dataclass(frozen=True)
class Report:
    """All points of a run, compared with an earlier run.

    Attributes:
        name: what the earlier run is called.
        before, now: the provenance of both runs, with the hashes of the kernels in `sources`.
        points: the comparison of each point.
    """

    name: str
    before: Provenance
    now: Provenance
    points: Sequence[PointComparison]

    @property
    def exit_status(self) -> int:
        """1 if a point is slower or fails now, 2 if no point could be compared, otherwise 0."""
        verdicts = {point.verdict for point in self.points}
        if verdicts & {"slower", "fails"}:
            return 1
        return 0 if verdicts & {"same", "faster"} else 2

    def __str__(self) -> str:
        changed = [str(p) for v in ("fails", "slower", "faster") for p in self.points if p.verdict == v]
        return "\n".join(
            [
                f"Before: {self.name}, {self.before}",
                f"Now:    {self.now}",
                f"Changed since then: {'; '.join(self._differences()) or 'neither versions nor kernels'}.",
                "",
                *changed,
                *([""] if changed else []),
                self._counted(),
                *self._peers(),
                _METHOD,
            ]
        )

    def _differences(self) -> list[str]:
        """What differs between the two runs: versions and the source of kernels."""
        versions = [
            f"{name} {before} -> {now}"
            for name in _PACKAGES
            if (before := getattr(self.before, name)) != (now := getattr(self.now, name))
        ]
        old, new = self.before.sources, self.now.sources
        edited = sorted(kernel for kernel in old.keys() & new.keys() if old[kernel] != new[kernel])
        return [*versions, *(f"the source of {kernel}" for kernel in edited)]

    def _counted(self) -> str:
        n = {verdict: 0 for verdict in ("slower", "fails", "faster", "same", "nothing")}
        for point in self.points:
            n[point.verdict] += 1
        n_compared = len(self.points) - n["nothing"]
        words = {"slower": "slower", "fails": "failing", "faster": "faster"}
        counted = [f"{n[verdict]} {word}" for verdict, word in words.items() if n[verdict]]
        counted.append(f"{n['same']} unchanged within the noise")
        text = f"Compared {n_compared} point{'s' * (n_compared != 1)}: {', '.join(counted)}."
        return f"{text} {n['nothing']} were not timed before." if n["nothing"] else text

    def _peers(self) -> list[str]:
        """How much the peers' times moved. If PyTorch is the same, this is the noise between two runs."""
        ratios_by_peer: dict[str, list[float]] = {}
        for point in self.points:
            before, now = point.before.peers, point.now.peers
            for name in before.keys() & now.keys():
                ratios_by_peer.setdefault(name, []).append(now[name].value / before[name].value)
        return [
            f"For comparison, {name} takes {statistics.median(ratios):.3f} × its earlier time relative to "
            f"the copy ({min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} points)."
            for name, ratios in sorted(ratios_by_peer.items())
        ]
