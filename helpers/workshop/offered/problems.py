"""Look at a set of records from every side: a sentence for each problem."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from helpers import records
from helpers.workshop import catalogue
from helpers.workshop.offered import complete, origins, plausible, private, reasons
from helpers.workshop.offered.reading import Offer, Problem, read


@dataclass(frozen=True)
class Verdict:
    """What came of a check.

    Attributes:
        offer: the set.
        problems: what has to be mended before it is taken.
        known: why what is missing or outdated in it may be so, and how many records that is about.
        left_out: records of scripts of their own, which a set may lack.
    """

    offer: Offer
    problems: tuple[str, ...]
    known: dict[str, int]
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        n = len(self.problems)
        end = (
            f"{self.offer.folder} stands: {len(self.offer.records)} records."
            if not n
            else f"{self.offer.folder}: {n} problem{'s' if n != 1 else ''} in {len(self.offer.records)} records."
        )
        known = [
            f"Known ({count} record{'s' if count != 1 else ''}): {why}" for why, count in self.known.items()
        ]
        may = (
            [f"Not in it, and need not be (scripts of their own make them): {', '.join(self.left_out)}."]
            if self.left_out
            else []
        )
        return "\n".join([*self.problems, *known, *may, end])


def check(folder: Path, *, root: Path | None = None, names: tuple[str, ...] | None = None) -> Verdict:
    """Check a set of records against the sets that are kept and against its own GPU.

    Args:
        folder: the set, named after its GPU; it may lie among the kept ones or anywhere.
        root: the checkout, whose kernels' texts count; only the package's where None.
        names: words that name the machine and its user, for tests.

    Raises:
        UsageError: there is no set in that folder, or reasons.yaml is broken.
    """
    offer = read(folder)
    kept = records.folder()
    others = [kept / name for name in records.sets()]
    beside = [read(one) for one in others if one.name != offer.name and one.resolve() != offer.folder]
    found: list[Problem] = [
        *complete.problems(offer, beside),
        *origins.problems(offer, beside, catalogue.texts_today(root)),
        *plausible.problems(offer),
        *private.problems(offer, names),
    ]
    open_, counts, gone = reasons.sort(found, reasons.of_set(kept, offer.name))
    return Verdict(
        offer,
        (*(problem.sentence for problem in open_), *gone),
        {reason.why: count for reason, count in counts.items() if count},
        tuple(complete.left_out(offer, beside)),
    )
