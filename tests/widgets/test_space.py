"""Spaces: the lessons' own are those that were recorded, and a learner's own is explored like them."""

from __future__ import annotations

import itertools

import commands
import pytest
import torch

from helpers import device, records, widgets
from helpers.widgets import measure, softmax
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
def test_a_space_of_ones_own_in_the_plain_form(mapped, monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    space = own_space(*mapped)
    table = own_table(space)
    shown = widgets.explore(space, table=table)
    assert shown.explorer is None and all(kernel in repr(shown) for kernel in (*mapped, TORCH))
    fig = shown.plain
    assert "tanh of 4,096 × N" in fig.layout.title.text
    curves = {t.name: t for t in fig.data if t.visible and t.name in (*mapped, TORCH)}
    for kernel, curve in curves.items():
        rows = [table.row(kernel, {**space.start, "n_cols": n}) for n in space.axes["n_cols"]]
        assert list(curve.y) == [row["gb_per_s"] for row in rows]
    assert len({curve.line.color for curve in curves.values()}) == len(mapped) + 1
    # Of each kernel the map at the first size, on axes of its own that do not overlap.
    for i, kernel in enumerate(mapped):
        heat, grey = [t for t in fig.data if t.visible and t.type == "heatmap" and t.xaxis == f"x{i + 2}"]
        line = [table.row(kernel, {**space.start, "parts": parts}) for parts in (1, 2, 64)]
        assert list(heat.z[0]) == [row["gb_per_s"] for row in line] and not any(grey.text[0])
    domains = [fig.layout[f"xaxis{i + 2}"].domain for i in range(len(mapped))]
    assert all(left[1] < right[0] for left, right in itertools.pairwise(domains))
    assert domains[0][0] == 0 and domains[-1][1] == pytest.approx(1)
    ys, sizes = fig.layout.sliders
    assert [step.label for step in ys.steps] == ["0", "1"]
    at_32 = next(step for step in sizes.steps if step.label == "32").args
    assert [line[2] for line in at_32[0]["text"][1]] == ["refused", "refused"]  # 64 parts of 32 columns
    assert fig.layout.updatemenus[0].buttons[0].label == "float32, parts 1"


def test_a_space_of_ones_own_with_widgets(monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "widgets")
    space = own_space(HALVES, CHUNKS)
    table = own_table(space)
    explorer = widgets.explore(space, table=table).explorer
    explorer.sliders["n_cols"].value, explorer.sliders["parts"].value = 32, 64
    assert list(explorer.figure.data[0].x) == [0, 0, table.row(TORCH, explorer.point)["gb_per_s"]]
    assert "64 parts of 32 columns" in explorer.sentence.value
    assert explorer.figure.layout.title.text.startswith("tanh of 4,096 × 32 float32")
    # A slider that is no axis of the map changes the whole map.
    explorer.sliders["tile"].value = 16
    line = [table.row(HALVES, {**explorer.point, "parts": parts, "skip": 1}) for parts in (1, 2, 64)]
    assert list(explorer.figure.data[2].z[1]) == [row["gb_per_s"] for row in line]
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


@pytest.mark.parametrize("space", [*SPACES.values(), softmax.SPACE], ids=lambda space: space.name)
def test_the_records_are_of_these_kernels(space):
    case = commands.recorded(space.record)
    assert dict(records.fingerprint(s) for s in space.sources()) == case["provenance"]["sources"]
    assert {row["kernel"] for row in case["rows"]} == {*space.mapped, *space.rivals}
