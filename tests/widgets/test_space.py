"""Spaces: the lessons' own are those that were recorded, and a learner's own is explored like them."""

from __future__ import annotations

import itertools

import commands
import pytest
import torch
from slider_driver import Sliders

from helpers import device, records, widgets
from helpers.widgets import attention, measure, softmax
from helpers.widgets.space import FACTS, Candidate, Refused, Space
from helpers.widgets.square import SPACES
from helpers.widgets.table import Table

HALVES, CHUNKS, TORCH = "by halves", "by chunks", "torch.tanh"
H100 = device.GpuSpec("H100", (9, 0), 132, 32, 2048, 32, 65536, 233472, 1, 1, 3352.0, 3000.0)


def candidate(kernel: str, point: dict) -> Candidate:
    """tanh by torch, and in `parts` pieces; the pieces by halves forget the last column where `skip` is 1."""
    if kernel == TORCH:
        return Candidate(torch.tanh, torch.tanh)
    if point["parts"] > point["n_cols"]:
        raise Refused(f"{point['parts']} parts of {point['n_cols']} columns")

    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([part.tanh() for part in x.chunk(point["parts"], dim=1)], dim=1)
        if kernel == HALVES and point["skip"]:
            y[:, -1] = 7
        return y

    return Candidate(run, torch.tanh)


def own_space(*mapped: str) -> Space:
    return Space(
        name="tanh",
        record="mine/tanh-sweep",
        x="parts",
        y="skip",
        axes={
            "parts": (1, 2, 64),
            "skip": (0, 1),
            "tile": (8, 16),
            "n_cols": (32, 1024),
            "dtype": ("float32",),
        },
        mapped=mapped,
        rivals=(TORCH,),
        start={"parts": 2, "skip": 0, "tile": 8, "n_cols": 1024, "dtype": "float32"},
        candidates=candidate,
        operation="tanh",
    )


def own_table(space: Space) -> Table:
    """Made-up speeds, another for each kernel and point; refused where the candidate is."""
    table = Table(space, H100, live=False, date="2026-11-21")
    for i, (kernel, point) in enumerate(space.points()):
        row = {"kernel": kernel, **{axis: point.get(axis) for axis in space.axes}, **dict.fromkeys(FACTS)}
        row |= {"median_us": 100.0, "ci_low_us": 99.0, "ci_high_us": 101.0, "gb_per_s": 500.0 + i}
        row |= {"verdict": "ok", "reason": ""}
        try:
            candidate(kernel, point)
        except Refused as refusal:
            row |= {"verdict": "refused", "reason": str(refusal), "gb_per_s": None}
        table.rows[space.key(kernel, point)] = row
    return table


@pytest.mark.parametrize("mapped", [(CHUNKS,), (HALVES, CHUNKS), (HALVES, CHUNKS, "by thirds")])
def test_your_own_space_on_a_page(mapped, monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    space = own_space(*mapped)
    table = own_table(space)
    shown = widgets.explore(space, table=table)
    assert shown.widget is None and all(kernel in repr(shown) for kernel in (*mapped, TORCH))
    sliders = Sliders(shown)
    assert len({kernel["color"] for kernel in sliders.data["kernels"]}) == len(mapped) + 1
    for n_cols, parts in itertools.product((32, 1024), (1, 2, 64)):
        sliders.move(n_cols=n_cols, parts=parts)
        point = {**space.start, "n_cols": n_cols, "parts": parts}
        for kernel in (*mapped, TORCH):
            row, drawn = table.row(kernel, point), sliders.row(kernel)
            assert drawn["v"] == row["gb_per_s"] and drawn["verdict"] == row["verdict"]


def test_your_own_space_with_widgets(monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "widgets")
    space = own_space(HALVES, CHUNKS)
    table = own_table(space)
    sliders = Sliders(widgets.explore(space, table=table))
    sliders.move(n_cols=32, parts=64)
    assert "64 parts of 32 columns" in sliders.row(HALVES)["line"] and sliders.row(TORCH)["v"] > 0
    assert sliders.data["titles"]["0,0"] == "tanh of 4,096 × 32 float32"
    # A slider that is no axis of the map is one all the same.
    sliders.move(tile=16, parts=1)
    point = {**space.start, "n_cols": 32, "parts": 1, "tile": 16}
    assert sliders.row(HALVES)["v"] == table.row(HALVES, point)["gb_per_s"]
    with pytest.raises(ValueError, match=r"'block'.* tanh"):
        widgets.explore(space, table=table, block=1)


def test_a_point_that_a_candidate_refuses_is_a_row(monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    point = {"parts": 64, "skip": 0, "tile": 8, "n_cols": 32, "dtype": "float32"}
    row = measure.measure(own_space(CHUNKS), CHUNKS, point)
    assert row["verdict"] == "refused" and row["reason"] == "64 parts of 32 columns"
    assert row["parts"] == 64 and row["registers"] is None


@pytest.mark.gpu
def test_a_space_of_ones_own_is_checked_and_timed():
    space = own_space(HALVES, CHUNKS)
    for kernel in (HALVES, CHUNKS, TORCH):
        row = measure.measure(space, kernel, space.start)
        assert row["verdict"] == "ok" and row["gb_per_s"] > 1, row["reason"]
    row = measure.measure(space, HALVES, {**space.start, "skip": 1})
    assert row["verdict"] == "wrong" and row["gb_per_s"] is None


@pytest.mark.parametrize(
    "space", [*SPACES.values(), softmax.SPACE, attention.SPACE], ids=lambda space: space.name
)
def test_the_records_are_of_these_kernels(space):
    case = commands.recorded(space.record)
    assert dict(records.fingerprint(s) for s in space.sources()) == case["provenance"]["sources"]
    assert {row["kernel"] for row in case["rows"]} == {*space.mapped, *space.rivals}
