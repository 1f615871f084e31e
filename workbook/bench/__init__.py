"""`workbook bench`: time kernels on this GPU, save the results, and report what became slower since then.

`cases` has `Case`, which a benchmark file of yours yields. `contestants` has the league: the points that
`benchmarks/kernels.py` measures, and the functions it compares. `points` collects the points to measure and
reads their rows. `measure` checks and times the functions at one point, `table` lists the columns of its
rows, and `compiled` counts a kernel's registers and instructions. `comparison` compares a run with an earlier
one, `goals` summarizes a whole league, and `regression` runs the
command.
"""

from workbook.bench.cases import Case

__all__ = ["Case"]
