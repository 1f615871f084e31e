"""What became slower or faster between a record and a run, beyond the noise, and what the compiler did differently."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helpers.records import Provenance
from helpers.timing.changes import LEAST, Change, change_since
from helpers.workshop.bench.compiled import differences
from helpers.workshop.bench.suites import Measured

_PACKAGES = ("torch", "triton", "cuda", "driver")
EAGER = "eager"
Recompile = Callable[[Mapping[str, Any]], dict[str, int] | None]


@dataclass(frozen=True)
class Finding:
    """One point then and now.

    Attributes:
        then, now: as measured.
        since: everything that changed, unpaired; None where a run has no time.
        source: today's text over the record's, both by today's compiler in one run; None where that text was not run.
    """

    then: Measured
    now: Measured
    since: Change | None
    source: Change | None

    @property
    def verdict(self) -> str:
        """One of "slower", "faster", "same", "fails" (it was timed then and cannot be now) and "nothing" (no time then)."""
        if self.then.us is None:
            return "nothing"
        if self.since is None:
            return "fails"
        changes = [c for c in (self.since, self.source) if c]
        if any(c.slower for c in changes):
            return "slower"
        return "faster" if any(c.faster for c in changes) else "same"

    @property
    def worst(self) -> float:
        """The larger of the two ratios; infinite where it fails."""
        return max((c.ratio.value for c in (self.since, self.source) if c), default=math.inf)

    @property
    def name(self) -> str:
        """The point in words."""
        return ", ".join(
            f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in self.then.point.items() if v == v
        )


def compare(
    then: Measured, now: Measured, *, n_points: int = 1, least: float = LEAST, same_torch: bool = False
) -> Finding:
    """One point's record against its new measurement.

    Args:
        then, now: of the same point.
        n_points: how many points are compared in all: the intervals hold for all of them together.
        least: the smallest change that counts, as a share.
        same_torch: torch and triton are the same as then, and with them the peer "eager": a change must show over it too.
    """
    since = source = None
    if then.ratio and now.ratio:
        since = change_since(then.ratio, now.ratio, then.us.value, n_points=n_points, least=least)
        if same_torch and EAGER in (then.peers or {}) and EAGER in (now.peers or {}):
            over_eager = (m.ratio.over(m.peers[EAGER]) for m in (then, now))
            other = change_since(*over_eager, then.us.value, n_points=n_points, least=least)
            since = replace(since, ratio=since.ratio.spanning(other.ratio))
    if now.over_then:
        source = Change(now.over_then.for_one_of(n_points), paired=True, least=least)
    return Finding(then, now, since, source)


def is_same_torch(then: Provenance, now: Provenance) -> bool:
    """Whether torch's own kernels are the same in both runs."""
    return all(getattr(then, name) == getattr(now, name) for name in ("torch", "triton", "cuda", "driver"))


@dataclass(frozen=True)
class Report:
    """All points of a run against a record.

    Attributes:
        name: the record's.
        reference: what times are compared over.
        then, now: where both come from; the hashes of the kernels in `sources`.
        findings: a point each.
        recompile: gives what today's compiler makes of a recorded kernel, of `Measured.compiled`; None where its text is
            not at hand.
    """

    name: str
    reference: str
    then: Provenance
    now: Provenance
    findings: Sequence[Finding]
    recompile: Recompile = lambda kernel: None

    @property
    def exit_status(self) -> int:
        """1 where a point is slower or fails now, 2 where none could be compared, otherwise 0."""
        verdicts = {f.verdict for f in self.findings}
        if verdicts & {"slower", "fails"}:
            return 1
        return 0 if verdicts & {"same", "faster"} else 2

    def __str__(self) -> str:
        lines = [f"Against {self.name}: {self.then}", f"Measured here: {self.now}", *self._changed(), ""]
        by = {
            v: [f for f in self.findings if f.verdict == v]
            for v in ("fails", "slower", "faster", "same", "nothing")
        }
        for verdict in ("fails", "slower", "faster"):
            for finding in by[verdict]:
                lines += self._of(finding)
        compared = len(self.findings) - len(by["nothing"])
        said = [
            f"{len(by[v])} {word}"
            for v, word in (("slower", "slower"), ("fails", "failing"), ("faster", "faster"))
            if by[v]
        ]
        said.append(f"{len(by['same'])} without a change beyond the noise")
        lines.append(f"{compared} point{'s' * (compared != 1)} compared: {', '.join(said)}.")
        if by["nothing"]:
            lines.append(f"{len(by['nothing'])} have no time in the record: {by['nothing'][0].then.note}")
        return "\n".join([*lines, *self._peers(), self._how()])

    def _changed(self) -> list[str]:
        """What differs between the two runs, apart from the day."""
        packages = [
            f"{name} {a} -> {b}"
            for name in _PACKAGES
            if (a := getattr(self.then, name)) != (b := getattr(self.now, name))
        ]
        both = self.then.sources.keys() & self.now.sources.keys()
        edited = sorted(k for k in both if self.then.sources[k] != self.now.sources[k])
        new = sorted(self.now.sources.keys() - both)
        told = [*packages, *([f"the text of {', '.join(edited)}"] if edited else [])]
        told += [f"{', '.join(new)}, of which the record has no text"] if new else []
        same = " and the texts of the kernels are" if both and not edited else " are"
        return [f"Changed since: {'; '.join(told)}."] if told else [f"The versions{same} the same."]

    def _of(self, finding: Finding) -> list[str]:
        then, now = finding.then, finding.now
        if finding.verdict == "fails":
            return [f"fails   {finding.name}: {now.note} ({then.us.value:,.2f} µs then)", ""]
        since = finding.since
        lines = [
            f"{finding.verdict:<7} {finding.name}: {since.ratio} of its time then, over {self.reference}, unpaired; "
            f"{then.us.value:,.2f} µs then, {now.us.value:,.2f} µs now"
        ]
        if finding.source:
            lines.append(f"        {finding.source.ratio} of its recorded text's time in this run, in turns")
        elif now.note:
            lines.append(f"        the recorded text was not run: {now.note}")
        for kernel in now.compiled:
            old = next((k for k in then.compiled if k["kernel"] == kernel["kernel"]), None)
            if old is None:
                continue
            edited = old.get("sha256") != kernel.get("sha256")
            columns = {
                "recorded": old["counts"],
                **({"recompiled": self.recompile(old)} if edited else {}),
                "now": kernel["counts"],
            }
            if found := differences(columns):
                lines += [f"        {kernel['kernel']}", *(f"          {line}" for line in found)]
            else:
                lines.append(f"        {kernel['kernel']}: the same registers, memory and instructions")
        return [*lines, ""]

    def _peers(self) -> list[str]:
        """How the peers moved: where torch is the same, they tell how far the runs differ by themselves."""
        moved: dict[str, list[float]] = {}
        for f in self.findings:
            for name in (f.then.peers or {}).keys() & (f.now.peers or {}).keys():
                moved.setdefault(name, []).append(f.now.peers[name].value / f.then.peers[name].value)
        return [
            f"{name}, beside it: {statistics.median(found):.3f} × its time then ({min(found):.3f} to {max(found):.3f} at "
            f"{len(found)} point{'s' * (len(found) != 1)}), over {self.reference}."
            for name, found in sorted(moved.items())
        ]

    def _how(self) -> str:
        text = (
            f"Times of two days are compared over {self.reference}, measured in each run, and over eager where nothing of "
            "torch has changed; intervals are 95 % for all points together."
        )
        if any(f.now.compiled and not f.then.compiled for f in self.findings):
            text += (
                " The record keeps no registers and instructions to compare with; one that is saved now does."
            )
        if self.reference.startswith("torch.") and self.then.torch != self.now.torch:
            text += f" {self.reference} may have changed with torch itself."
        return text
