"""`workbook bench`: measure kernels on this GPU, keep what came out, and say what became slower since a record.

`measure` has the `Case` of a file of yours and measures one point; `league` has the points and contestants of
`benchmarks/kernels.py`; `suites` says what can be measured again, and how it is recorded; `compiled` counts registers and
instructions, and `texts` runs a kernel's recorded text beside today's; `against` compares, and `run` is the command's work.
"""

from helpers.workshop.bench.measure import Case
from helpers.workshop.bench.run import bench

__all__ = ["Case", "bench"]
