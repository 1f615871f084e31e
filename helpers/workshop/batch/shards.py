"""Which points of a batch a shard runs: `--shard 3/8`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from helpers.workshop.batch.plan import Job
from helpers.workshop.usage import UsageError


@dataclass(frozen=True)
class Shard:
    """Shard `number`, from 1, of `of`; the default is the whole batch."""

    number: int = 1
    of: int = 1

    def part(self, todo: Sequence[Job]) -> list[Job]:
        """Its points, in the plan's order: as many as another shard's, or one more or less."""
        mine = self.names(job.name for job in todo)
        return [job for job in todo if job.name in mine]

    def names(self, planned: Iterable[str]) -> set[str]:
        """Its names. They are dealt out by their hash, so that the slow end of a grid's axis is not all in one shard."""
        dealt = sorted(planned, key=lambda name: hashlib.sha256(name.encode()).digest())
        return set(dealt[self.number - 1 :: self.of])

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def parse(text: str) -> Shard:
    """`K/N` as a shard; an empty text is the whole batch.

    Raises:
        UsageError: It is not K/N with K from 1 to N.
    """
    if not text:
        return Shard()
    match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard {text!r} is not K/N; write --shard 1/8 to --shard 8/8 for eight shards.")
    return Shard(int(match[1]), int(match[2]))
