"""`workbook records --check`: what is missing, wrong or private in a set of records that somebody made on their GPU.

`problems` has `check`, which looks at a folder and gives a sentence for each problem. `reading` reads the set; `complete` compares it with
the sets that are kept, `origins` looks at provenance, `plausible` at figures and sizes, `private` for what names a person or
their machine. `reasons` has the problems of kept sets that are known, each with its reason.
"""

from helpers.workshop.offered.problems import Verdict, check

__all__ = ["Verdict", "check"]
