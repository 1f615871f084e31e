"""helpers.plots: what a figure holds, and what it refuses to draw."""

from __future__ import annotations

import json
import math
import re

import pandas as pd
import pytest

from helpers import plots
from helpers.records import Provenance


def table() -> pd.DataFrame:
    rows = []
    for kernel, top in (("triton", 2900.0), ("cuda", 2000.0)):
        for n in (256, 1024, 4096):
            rows.append(
                {"kernel": kernel, "n_cols": n, "median_us": 1e6 / top, "gb_per_s": top, "verdict": "ok"}
            )
    df = pd.DataFrame(rows)
    return df.assign(ci_low_us=df.median_us * 0.9, ci_high_us=df.median_us * 1.25)


def lines(fig, mode="lines+markers"):
    return [t for t in fig.data if t.type == "scatter" and t.mode == mode]


def test_palette_is_eight_different_colours():
    assert len({c.lower() for c in plots.PALETTE}) == 8
    assert all(re.fullmatch("#[0-9A-F]{6}", c) for c in plots.PALETTE)


def test_text_is_readable_on_a_figures_background():
    template = plots.theme()
    assert template.layout.paper_bgcolor == template.layout.plot_bgcolor == plots.PAPER_COLOUR
    assert plots.contrast(plots.TEXT_COLOUR, plots.PAPER_COLOUR) >= 7
    assert all(plots.contrast(plots.text_on(colour), colour) >= 4.5 for colour in plots.PALETTE)
    assert all(plots.contrast("#000000", colour) >= 4.5 for colour in plots.HEAT_COLOURS)


def test_contrast_follows_the_guidelines():
    assert plots.contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert plots.contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize(
    ("column", "title"),
    [
        ("gb_per_s", "effective bandwidth (GB/s)"),
        ("median_us", "time (µs)"),
        ("copy_ms", "copy (ms)"),
        ("dram_gb_per_s", "dram (GB/s)"),
        ("shared_bytes", "shared (bytes)"),
        ("registers", "registers"),
    ],
)
def test_axis_titles_have_units(column, title):
    assert plots.axis_title(column) == title


def test_throughput_draws_a_line_per_series_with_its_interval():
    fig = plots.throughput(
        table(), "n_cols", "kernel", ceilings={"peak": 3350.0, "unknown": None}, title="Square"
    )
    triton, cuda = lines(fig)
    assert (triton.name, cuda.name) == ("triton", "cuda")
    assert list(triton.x) == [256, 1024, 4096] and list(triton.y) == [2900.0] * 3
    # a time 10 % shorter is a bandwidth 1/0.9 higher; 25 % longer is 1/1.25
    assert triton.error_y.array[0] == pytest.approx(2900 * (1 / 0.9 - 1))
    assert triton.error_y.arrayminus[0] == pytest.approx(2900 * (1 - 1 / 1.25))
    (ceiling,) = lines(fig, "lines")
    assert ceiling.name == "peak: 3,350" and set(ceiling.y) == {3350.0} and ceiling.line.dash == "dash"
    assert fig.layout.yaxis.title.text == "effective bandwidth (GB/s)"
    assert fig.layout.yaxis.rangemode == "tozero"


def test_throughput_of_times_takes_the_interval_as_it_is():
    (first, _) = lines(plots.throughput(table(), "n_cols", "kernel", y="median_us", log_x=True, log_y=True))
    assert first.error_y.array[0] == pytest.approx(first.y[0] * 0.25)
    assert first.error_y.arrayminus[0] == pytest.approx(first.y[0] * 0.1)


def test_throughput_sorts_by_size_and_takes_wide_tables():
    wide = pd.DataFrame({"n": [3, 1, 2], "a": [30.0, 10.0, 20.0], "b": [1.0, 2.0, 3.0]})
    a, b = lines(plots.throughput(wide, "n", ["a", "b"]))
    assert (list(a.x), list(a.y)) == ([1, 2, 3], [10.0, 20.0, 30.0])
    assert list(b.y) == [2.0, 3.0, 1.0] and a.error_y.array is None


def test_a_wrong_kernels_rows_are_counted_and_not_drawn():
    df = table()
    df.loc[0, ["verdict", "gb_per_s"]] = ["wrong", float("nan")]
    df.loc[1, "verdict"] = "refused"  # even with a number in it
    fig = plots.throughput(df, "n_cols", "kernel")
    assert list(lines(fig, "markers")[0].x) == [4096]  # one point is a marker, not a line
    assert "not drawn: 1 wrong, 1 refused" in fig.layout.title.text


def test_a_figure_names_the_gpu_and_day_of_its_table():
    df = table()
    df.attrs["provenance"] = Provenance(
        {"name": "NVIDIA T4"}, None, None, "2.11", None, None, None, "2026-01-02"
    )
    for fig in (
        plots.throughput(df, "n_cols", "kernel"),
        plots.throughput(df[["n_cols", "gb_per_s"]], "n_cols", ["gb_per_s"]),
        plots.bars(df.head(3), "n_cols", "gb_per_s"),
        plots.heatmap(df, "n_cols", "kernel"),
    ):
        assert "NVIDIA T4, 2026-01-02" in fig.layout.title.text


def test_heatmap_writes_values_and_verdicts_into_the_cells():
    df = pd.DataFrame(
        {
            "num_warps": [4, 8, 4, 8],
            "block_size": [256, 256, 1024, 1024],
            "gb_per_s": [1500.0, 2000.0, float("nan"), 99.0],
            "verdict": ["ok", "ok", "refused", "wrong"],
        }
    )
    values, words = plots.heatmap(df, "num_warps", "block_size").data
    assert [list(r) for r in values.text] == [["1,500", "2,000"], ["refused", "wrong"]]
    # A wrong kernel's 99 has no colour.
    assert [list(r) for r in values.z] == [[1500.0, 2000.0], [None, None]]
    assert (values.zmin, values.zmax) == (0, 2000.0)
    assert [list(r) for r in words.text] == [["", ""], ["refused", "wrong"]]
    assert list(values.x) == ["4", "8"] and list(values.y) == ["256", "1024"]


def test_heatmap_leaves_a_combination_that_was_not_tried_empty():
    df = pd.DataFrame({"a": [1, 2], "b": [1, 2], "gb_per_s": [1.0, 2.0]})
    (values,) = plots.heatmap(df, "a", "b", from_zero=False).data
    assert [list(r) for r in values.text] == [["1", ""], ["", "2"]] and values.zmin is None


def test_heatmap_refuses_two_rows_for_a_cell():
    with pytest.raises(ValueError, match="several rows have the same n_cols and kernel"):
        plots.heatmap(pd.concat([table(), table()]), "n_cols", "kernel")


def test_roofline_ceilings_meet_at_the_ridge():
    df = pd.DataFrame({"name": ["square"], "flop_per_byte": [0.125], "gflop_per_s": [350.0]})
    fig = plots.roofline(df, {"peak": 3000.0}, {"fp32": 60_000.0})
    memory, compute = lines(fig, "lines")
    assert memory.x[1] == compute.x[0] == 20.0 and memory.y[1] == compute.y[0] == 60_000.0
    assert memory.y[0] == pytest.approx(memory.x[0] * 3000.0)
    assert memory.name == "peak: 3,000 GB/s" and compute.name == "fp32: 60,000 GFLOP/s"
    (point,) = lines(fig, "markers")
    assert (point.name, point.x[0], point.y[0]) == ("square", 0.125, 350.0)
    assert fig.layout.xaxis.type == fig.layout.yaxis.type == "log"


def test_roofline_without_a_peak_and_its_refusals():
    df = pd.DataFrame({"name": ["square"], "flop_per_byte": [0.125], "gflop_per_s": [350.0]})
    assert len(lines(plots.roofline(df, {"peak": 3000.0, "copy": None}), "lines")) == 1
    with pytest.raises(ValueError, match="at least one memory ceiling"):
        plots.roofline(df, {"peak": None})
    with pytest.raises(ValueError, match="must be above 0"):
        plots.roofline(df.assign(gflop_per_s=0.0), {"peak": 3000.0})


def test_bars_keep_their_order_and_print_their_values():
    df = table().head(2).assign(name=["z last", "a first"], median_us=[12.3, 4.5])
    (bar,) = plots.bars(df, "name", "median_us", value_format=".1f").data
    assert list(bar.x) == ["z last", "a first"] and [t.strip() for t in bar.text] == ["12.3", "4.5"]
    fig = plots.bars(df, "name", horizontal=True, ceilings={"floor": 3.0, "roof": 99.0})
    lying, ceiling, _ = fig.data
    assert lying.orientation == "h" and list(lying.y) == ["z last", "a first"]
    assert ceiling.name == "floor: 3" and [shape.x0 for shape in fig.layout.shapes] == [3.0, 99.0]
    assert list(fig.layout.xaxis.autorangeoptions.include) == [3.0, 99.0]  # both lines lie inside the axis
    assert lying.error_x.array is not None and lying.error_y.array is None


def test_no_dashed_line_crosses_a_bars_value():
    df = table().head(2)
    (plain,) = plots.bars(df, "n_cols", "gb_per_s").data
    bar, _ = plots.bars(df, "n_cols", "gb_per_s", ceilings={"copy": 1.02 * df.gb_per_s.max()}).data
    assert plain.textposition == "outside"
    assert set(bar.textposition) == {"inside"} and (bar.insidetextanchor, bar.textangle) == ("start", 0)
    low = plots.bars(df, "n_cols", "gb_per_s", ceilings={"floor": 0.05 * df.gb_per_s.max()})
    assert set(low.data[0].textposition) == {"none"}
    assert [name.split("<br>")[0] for name in low.layout.xaxis.ticktext] == list(low.data[0].x)


def test_bars_in_groups():
    one, two = plots.bars(table(), "n_cols", "gb_per_s", "kernel").data
    assert (one.name, two.name) == ("triton", "cuda") and list(one.x) == ["256", "1024", "4096"]


@pytest.mark.parametrize(
    "draw",
    [
        lambda df: plots.throughput(df, "size", "kernel"),
        lambda df: plots.throughput(df, "size", ["gb_per_s"]),
        lambda df: plots.heatmap(df, "n_cols", "size"),
        lambda df: plots.bars(df, "n_cols", "size"),
        lambda df: plots.roofline(df.assign(name="k", flop_per_byte=1.0), {"peak": 1.0}, y="size"),
    ],
)
def test_a_missing_column_is_named_with_the_existing_ones(draw):
    with pytest.raises(ValueError, match=r"no column size; it has .*n_cols"):
        draw(table())


def test_a_table_without_anything_to_draw_is_refused():
    df = table().assign(verdict="wrong")
    with pytest.raises(ValueError, match="no row of the table has a value in 'gb_per_s'"):
        plots.throughput(df, "n_cols", "kernel")
    with pytest.raises(ValueError, match="no row of the table has a value in 'gb_per_s'"):
        plots.bars(df, "n_cols", "gb_per_s")


def test_figures_are_plain_json():
    for fig in (plots.throughput(table(), "n_cols", "kernel"), plots.heatmap(table(), "n_cols", "kernel")):
        json.loads(fig.to_json())


def test_layout_works_for_any_figure():
    import plotly.graph_objects as go

    fig = plots.layout(go.Figure(go.Scatter(x=[1], y=[1])), "Title", "x (µs)", "y (GB/s)", note="an H100")
    assert fig.layout.title.text == "Title<br><sub>an H100</sub>"
    assert (fig.layout.xaxis.title.text, fig.layout.yaxis.title.text) == ("x (µs)", "y (GB/s)")


@pytest.mark.parametrize("log_x", [False, True])
def test_dots_keep_every_point_inside_the_axes(log_x):
    df = pd.DataFrame({"clock": ["a", "b", "c"], "us": [56.0, 46_898.0, 267.0]})
    fig = plots.dots(df, "us", "clock", log_x=log_x, x_title="time (µs)")
    low, high = fig.layout.xaxis.range
    shown = [math.log10(v) for v in df.us] if log_x else list(df.us)
    assert low < min(shown) and max(shown) < high
    assert list(fig.data[0].text) == ["56", "46,898", "267"]
    assert fig.layout.xaxis.title.text == "time (µs)"


def test_dots_with_intervals_and_a_reference():
    df = pd.DataFrame({"pair": ["x", "y"], "ratio": [1.0, 1.2], "low": [0.99, 1.1], "high": [1.01, 1.5]})
    fig = plots.dots(df, "ratio", "pair", "low", "high", reference=1.0, at_least=0.01)
    low, high = fig.layout.xaxis.range
    assert low == pytest.approx(2 - high) and high > 1.5
    assert list(fig.data[0].error_x.array) == pytest.approx([0.01, 0.3])
    small = plots.dots(df[:1], "ratio", "pair", "low", "high", reference=1.0, at_least=0.05)
    assert small.layout.xaxis.range == pytest.approx((0.95, 1.05))
    with pytest.raises(ValueError, match="above 0"):
        plots.dots(df.assign(ratio=0.0), "ratio", "pair", log_x=True)


def test_table_names_rounds_and_shows_a_dash():
    df = pd.DataFrame({"name": ["k<4>", "b"], "us": [1234.567, None], "n": [100_000_000, 3], "raw": [1, 2]})
    html = plots.table(df, {"name": "kernel", "us": "time (µs)", "n": "elements"}).to_html()
    for text in ("k&lt;4&gt;", "1,234.6", "–", "100,000,000", "time (µs)"):
        assert f">{text}<" in html
    assert "raw" not in html and "nan" not in html.lower()
    assert ">1,235<" in plots.table(df, {"us": "time (µs)"}, decimals={"us": 0}).to_html()
    with pytest.raises(ValueError, match="no column nothing"):
        plots.table(df, {"nothing": "x"})


def test_a_bar_charts_ceiling_crosses_the_whole_figure():
    df = pd.DataFrame({"kernel": ["a", "b"], "gb_per_s": [1000.0, 2000.0]})
    for horizontal, axis in ((False, "xref"), (True, "yref")):
        fig = plots.bars(
            df, "kernel", "gb_per_s", ceilings={"copy": 3000.0, "peak": None}, horizontal=horizontal
        )
        (shape,) = fig.layout.shapes
        assert shape[axis].endswith("domain") and "copy: 3,000" in [t.name for t in fig.data]


def test_logarithmic_axes_label_powers_of_ten():
    assert plots.log_axis([1, 1000])["dtick"] == 1
    assert plots.log_axis([100, 300])["dtick"] == "D2"
