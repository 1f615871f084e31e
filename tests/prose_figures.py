"""Figures that the lessons' prose states for a named GPU, and how each follows from that GPU's record.

A sentence that names a GPU and a figure belongs here: `text` is its fragment with `{}` where the figures stand, and
`figures` computes them, as they are written, from the rows of the record.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd
from commands import ROOT


@dataclass(frozen=True)
class Prose:
    """A fragment of a notebook's text whose figures come from a record.

    Attributes:
        notebook: its file's stem, such as "01_profiling".
        text: the fragment as it stands there, with `{}` for each figure.
        gpu: the set, such as "h100".
        record: the record's name.
        figures: the figures as they are written, from the record's rows.
        params: which case of the record; the only one where there are no parameters.
    """

    notebook: str
    text: str
    gpu: str
    record: str
    figures: Callable[[pd.DataFrame], tuple]
    params: dict = field(default_factory=dict)

    def stated(self) -> str:
        """The fragment with the record's figures in it."""
        cases = json.loads((ROOT / "helpers" / "records" / self.gpu / f"{self.record}.json").read_text())[
            "cases"
        ]
        case = next(c for c in cases if self.params.items() <= c["params"].items())
        return self.text.format(*self.figures(pd.DataFrame(case["rows"], columns=case["columns"])))


def _rounded_us(*kernels: str) -> Callable[[pd.DataFrame], tuple]:
    """Medians of a table's kernels, in whole µs."""
    return lambda rows: tuple(f"{rows.set_index('kernel').median_us[name]:.0f}" for name in kernels)


PROSE: list[Prose] = [
    Prose(
        "06_fusion",
        "On an H100, `exp` of 16,384 × 8,192 floats takes {} µs. A whole softmax of that matrix, `exp` and four more "
        "operations, takes {} µs too",
        gpu="h100",
        record="fusion/five-operations",
        figures=_rounded_us("3 exp", "softmax_rows"),
        params={"n_rows": 16384, "n_cols": 8192},
    ),
]
