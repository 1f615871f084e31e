"""Which points of a batch one shard runs: `--shard 3/8`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workbook.batch.plan import Job
from workbook.usage import UsageError


@dataclass(frozen=True)
class Shard:
    """Shard `number`, counted from 1, of `of` shards; the default is the whole batch."""

    number: int = 1
    of: int = 1

    def part(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs of this shard, in order. The sizes of two shards differ by at most one."""
        names = self.names(job.name for job in jobs)
        return [job for job in jobs if job.name in names]

    def names(self, planned: Iterable[str]) -> set[str]:
        """The names of this shard. They are ordered by their hash, so that the slow points at the end of a
        grid's axis are spread over all shards.
        """
        ordered = sorted(planned, key=lambda name: hashlib.sha256(name.encode()).digest())
        return set(ordered[self.number - 1 :: self.of])

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def parse(text: str) -> Shard:
    """Parse `K/N`; an empty text is the whole batch.

    Raises:
        UsageError: It is not K/N with K from 1 to N.
    """
    if not text:
        return Shard()
    match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard {text!r} is not K/N; write --shard 1/8 to --shard 8/8 for eight shards.")
    return Shard(int(match[1]), int(match[2]))
