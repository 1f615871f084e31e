"""What lab 10's notebook shows: an H100's sweep, and the scores of the learner's choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from helpers import records
from helpers.lessons import cross_gpu

if TYPE_CHECKING:
    import pandas as pd

SWEEP = "triton/launch-sweep"
# Shapes of the sweep that are streamed; smaller ones fit partly into an L2.
RECORDED = ((4096, "float32"), (8192, "float32"), (8192, "bfloat16"))
# The facts about a GPU that a learner's function gets.
FACTS = ("copy_gb_per_s", "sm_count", "l2_bytes")


def facts(gpu: Mapping[str, Any]) -> dict[str, float]:
    """What is known about a GPU before anything runs on it, and the bandwidth of a copy."""
    return {name: gpu[name] for name in FACTS}


def rows_of(launches: pd.DataFrame, gpu: str) -> list[dict[str, Any]]:
    """The rows of a sweep on one GPU as plain values: `block_size`, `num_warps`, `programs` and `us`."""
    return [
        {name: int(row[name]) for name in ("block_size", "num_warps", "programs")} | {"us": row[f"us_{gpu}"]}
        for row in launches.to_dict("records")
    ]


def sweep_on_h100(n_cols: int = 8192, dtype: str = "float32") -> list[dict[str, Any]]:
    """The H100's recorded sweep of lesson 03's flat kernel with 4,096 rows, as `choose` gets it.

    Args:
        n_cols: 256, 512, 781, 1024, 1536, 2048, 4096 or 8192.
        dtype: "float32" or "bfloat16".
    """
    found = records.stored_by_gpu(SWEEP)["h100"].add_suffix("_h100")
    found = found.rename(
        columns={f"{name}_h100": name for name in ("kernel", *cross_gpu.LAUNCH, *cross_gpu.SHAPE)}
    )
    found.attrs["gpus"] = ["h100"]
    return rows_of(cross_gpu.launches(found, n_cols, dtype), "h100")


def score(choose: Callable) -> pd.DataFrame | str:
    """How much slower a learner's choices from the H100's sweep are on the H200, compared with the H100's own
    tuner.

    Args:
        choose: `choose(rows, n_bytes, known, new) -> (block_size, num_warps)`.

    Returns:
        A DataFrame with one row per recorded shape of at least 100 MB; a sentence if the records are
        withheld, as they are while a notebook is graded.
    """
    import pandas as pd

    try:
        sweep = records.compare(SWEEP)
    except OSError:
        return "The H200's sweep is withheld while a notebook is graded."
    gpus = [facts(sweep.attrs["provenance"][gpu].gpu) for gpu in ("h100", "h200")]
    found = []
    for n_cols, dtype in RECORDED:
        launches = cross_gpu.launches(sweep, n_cols, dtype)
        at = launches.set_index(cross_gpu.LAUNCH)
        mine = tuple(choose(rows_of(launches, "h100"), launches.attrs["n_bytes"], *gpus))
        tuned = at.us_h100.idxmin()
        row = {"columns": n_cols, "dtype": dtype}
        for who, launch in (("yours", mine), ("H100's tuner", tuned), ("H200's tuner", at.us_h200.idxmin())):
            row[who] = f"{launch[0]:,} in {launch[1]} warps"
            row[f"{who} loses (%)"] = at.loss_h200[launch]
        found.append(row)
    return pd.DataFrame(found).drop(columns="H200's tuner loses (%)").round(1)
