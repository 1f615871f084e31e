"""The table of the pull request that lab 13's last exercise reviews: a softmax of large matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers.exercises import recorded_data

if TYPE_CHECKING:
    import pandas as pd

RECORD, GPU = "fusion/league", "h100"
NEW, EAGER = "new", "torch.softmax"
# The other kernels: PyTorch's compiler in two modes, and two libraries.
PEERS = ("torch.compile", "max-autotune", "Liger", "QuACK")
_NAMES = {
    "ours": NEW,
    "eager": EAGER,
    "compile": PEERS[0],
    "compile-max": PEERS[1],
    "liger": PEERS[2],
    "quack": PEERS[3],
    "copy": "copy",
}


def table() -> pd.DataFrame:
    """The medians in µs: one row per dtype and shape, one column per kernel; NaN if a library refuses.

    Returns:
        A DataFrame with the columns "dtype", "n_rows", "n_cols", `NEW`, `EAGER`, `PEERS`, and "copy", a copy
        of as many bytes.
    """
    rows = recorded_data.table(RECORD, GPU)
    rows = rows[rows.op == "softmax"]
    wide = rows.pivot(index=["dtype", "n_rows", "n_cols"], columns="contestant", values="median_us")
    wide = wide.rename(columns=_NAMES)[list(_NAMES.values())].reset_index()
    return wide.rename_axis(columns=None).sort_values(["dtype", "n_cols", "n_rows"], ignore_index=True)
