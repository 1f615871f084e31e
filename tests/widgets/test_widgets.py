"""The sliders: what they show is what the table holds, at every position; what a GPU measures is measured
once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import html
import itertools
import json

import commands
import pandas as pd
import pytest

from helpers import device, records, widgets
from helpers.widgets import figure, grid, measure
from helpers.widgets.explain import reason
from helpers.widgets.residence import occupancy
from helpers.widgets.square import CUDA, FLAT, ROWS, SPACES, TORCH
from helpers.widgets.table import Table, by_gpu, from_frame, load

BYTES = {"float32": 4, "bfloat16": 2}
START = SPACES["launch"].start


@pytest.fixture(autouse=True)
def on_widgets(monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "widgets")


@pytest.fixture(scope="module")
def recorded() -> dict[str, Table]:
    """The shipped tables, as a machine without a GPU loads them."""
    tables = {}
    for name, space in SPACES.items():
        case = commands.recorded(space.record)
        frame = pd.DataFrame(case["rows"], columns=case["columns"])
        frame.attrs["provenance"] = records.Provenance(**case["provenance"])
        tables[name] = from_frame(space, frame)
    return tables


@pytest.fixture
def live(recorded, monkeypatch) -> tuple[Table, list]:
    """An empty table of a "GPU" whose measurements come from the record, and the list of what was
    measured.
    """
    table = Table(SPACES["launch"], recorded["launch"].spec, live=True)
    asked = []

    def from_record(space, kernel, point, **_):
        asked.append((kernel, point["block_size"], point["num_warps"]))
        return recorded["launch"].rows[space.key(kernel, point)]

    monkeypatch.setattr(measure, "measure", from_record)
    return table, asked


# ------------------------------------------------------------------------------------------- the tables


@pytest.mark.parametrize("name", SPACES)
def test_every_position_of_every_slider_was_recorded(name, recorded):
    space, table = SPACES[name], recorded[name]
    for values in itertools.product(*space.axes.values()):
        point = dict(zip(space.axes, values, strict=True))
        for kernel in (*space.mapped, *space.rivals):
            row = table.row(kernel, point)
            assert row is not None, (kernel, point)
            assert row["verdict"] in ("ok", "wrong", "refused") and (row["verdict"] == "ok" or row["reason"])
            if row["verdict"] == "ok":
                assert row["ci_low_us"] <= row["median_us"] <= row["ci_high_us"]
                n_bytes = 2 * 4096 * row["n_cols"] * BYTES[row["dtype"]]
                assert row["gb_per_s"] == pytest.approx(n_bytes / row["median_us"] / 1e3, rel=1e-3)


def test_the_recorded_sweep_is_as_wide_as_promised(recorded):
    axes = SPACES["launch"].axes
    assert min(axes["block_size"]) == 64 and max(axes["block_size"]) == 8192
    assert axes["num_warps"] == (1, 2, 4, 8, 16, 32) and len(axes["n_cols"]) >= 8
    assert axes["dtype"] == ("float32", "bfloat16")
    rows = recorded["launch"].rows.values()
    assert all(r["verdict"] == "wrong" for r in rows if r["kernel"] == ROWS and r["block_size"] < r["n_cols"])
    assert all(r["verdict"] == "ok" for r in rows if r["kernel"] == FLAT)
    refused = [r for r in recorded["shape"].rows.values() if r["verdict"] == "refused"]
    assert refused and all(r["block_x"] * r["block_y"] > 1024 for r in refused)


def test_occupancy_and_waves():
    h100 = device.GpuSpec("H100", (9, 0), 132, 32, 2048, 32, 65536, 233472, 1, 1, None, None)
    assert occupancy(h100, 256, 32, 0) == (8, "threads")
    assert occupancy(h100, 32, 16, 0) == (32, "blocks")
    assert occupancy(h100, 128, 255, 0) == (2, "registers")
    assert occupancy(h100, 128, 16, 100_000) == (2, "shared memory")


def test_the_sentence_names_what_the_compiler_did(recorded):
    table = recorded["launch"]
    said = reason(table, table.row(FLAT, START))
    assert (
        "registers per thread" in said
        and "16-byte loads" in said
        and "blocks per SM" in said
        and "waves" in said
    )
    odd = reason(table, table.row(ROWS, {**START, "n_cols": 781}))
    assert " 4-byte loads" in odd  # 781 is no multiple of 16
    spilled = table.row(FLAT, {**START, "block_size": 8192, "num_warps": 1})
    assert spilled["spill_bytes"] > 0 and f"{spilled['spill_bytes']} bytes spilled" in reason(table, spilled)
    assert reason(table, table.row(ROWS, {**START, "block_size": 64})).startswith("wrong: ")
    assert reason(table, None) == "not measured yet"


# ------------------------------------------------------------------------------------------- explore


def test_a_move_shows_the_new_points_values(recorded):
    table = recorded["launch"]
    explorer = widgets.explore(table=table).explorer
    for axis, value in (("block_size", 512), ("num_warps", 16), ("n_cols", 256), ("dtype", "bfloat16")):
        explorer.sliders[axis].value = value
        point = dict(explorer.point)
        assert point[axis] == value
        shown, kernels = explorer.figure, explorer.shown
        for i, kernel in enumerate(kernels):
            row = table.row(kernel, point)
            assert shown.data[0].x[i] == (row["gb_per_s"] if row["verdict"] == "ok" else 0)
            says = f"{row['gb_per_s']:,.0f} GB/s" if row["verdict"] == "ok" else row["verdict"]
            assert says in shown.data[1].text[i] and kernel in shown.data[1].text[i]
            if kernel in table.space.mapped:
                assert reason(table, row) in explorer.sentence.value
        where = list(table.space.axes["num_warps"]).index(point["num_warps"])
        assert min(shown.data[4].x) == where - 0.5
        heat = shown.data[2].z[list(table.space.axes["block_size"]).index(1024)]
        expected = [
            table.row(ROWS, {**point, "block_size": 1024, "num_warps": w})
            for w in table.space.axes["num_warps"]
        ]
        assert list(heat) == [row["gb_per_s"] for row in expected]
        assert f"{point['n_cols']:,} {point['dtype']}" in shown.layout.title.text
        assert f"replayed: {recorded['launch'].spec.name}" in shown.layout.title.text


def test_kernels_are_taken_out_and_the_map_changes(recorded):
    table = recorded["launch"]
    explorer = widgets.explore(table=table).explorer
    explorer.boxes[CUDA].value = False
    assert CUDA not in explorer.shown and len(explorer.figure.data[0].x) == 4
    explorer.map_of.value = FLAT
    assert FLAT in explorer.figure.layout.annotations[0].text
    assert (
        explorer.figure.data[2].z[0][0]
        == table.row(FLAT, {**START, "block_size": 64, "num_warps": 1})["gb_per_s"]
    )


def test_a_refused_point_is_shown_with_its_reason(recorded):
    table = recorded["shape"]
    explorer = widgets.explore("shape", table=table, block_x=64, block_y=16).explorer
    explorer.sliders["block_x"].value = 128
    assert "refused" in explorer.figure.data[1].text[0] and explorer.figure.data[0].x[0] == 0
    assert "2,048 threads" in explorer.sentence.value and "1,024" in explorer.sentence.value
    words = explorer.figure.data[3].text[list(table.space.axes["block_y"]).index(16)]
    assert words[list(table.space.axes["block_x"]).index(128)] == "refused"


def test_a_switch_over_the_gpus_changes_bars_map_and_ceiling_and_keeps_the_position(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    monkeypatch.setattr(device, "gpu_spec", lambda: None)
    space = SPACES["launch"]
    shown = widgets.explore(n_cols=1024)
    explorer = shown.explorer
    assert set(explorer.gpu.options) == {"H100", "H200"}
    explorer.sliders["block_size"].value = 1024
    for name in explorer.gpu.options:
        explorer.gpu.value = name
        frame = records.stored_by_gpu(space.record, sources=space.sources())[name.lower()]
        table = from_frame(space, frame)
        point = {**START, "n_cols": 1024, "block_size": 1024}
        assert explorer.point == point and explorer.sliders["block_size"].value == 1024
        expected = [table.row(kernel, point)["gb_per_s"] for kernel in explorer.shown]
        assert list(explorer.figure.data[0].x) == expected
        line = [table.row(ROWS, {**point, "num_warps": w})["gb_per_s"] for w in space.axes["num_warps"]]
        assert list(explorer.figure.data[2].z[list(space.axes["block_size"]).index(1024)]) == line
        assert explorer.figure.layout.annotations[1].text == f"copy: {table.spec.copy_gb_per_s:,.0f}"
        assert f"replayed: {table.spec.name}" in explorer.figure.layout.title.text
        assert table.spec.name in shown.best().text and shown.now[0].spec == table.spec
    page, rows = shown.save(tmp_path / "sweep")
    saved = pd.read_csv(rows)
    assert len(saved) == len(table.rows) and set(saved.gpu) == {table.spec.name}
    assert f"replayed: {table.spec.name}" in page.read_text()


@pytest.mark.parametrize(
    ("over", "start", "says"),
    [
        ("speed", {}, "choose from launch, shape, alignment"),
        ("launch", {"block": 64}, "There is no slider 'block'"),
        ("launch", {"block_size": 100}, "block_size=100 is no position"),
        ("launch", {"kernels": ["cuda"]}, "There is no kernel 'cuda'"),
        ("launch", {"kernels": [TORCH]}, "at least one kernel that the sliders change"),
    ],
)
def test_what_there_is_no_slider_for(over, start, says):
    with pytest.raises(ValueError, match=says):
        widgets.explore(over, **start)


def test_on_a_gpu_a_point_is_measured_when_you_come_to_it_and_once(live):
    table, asked = live
    explorer = widgets.explore(table=table, kernels=[FLAT]).explorer
    assert asked == [(FLAT, 4096, 8)]
    explorer.sliders["block_size"].value = 2048
    explorer.sliders["block_size"].value = 4096
    assert asked == [(FLAT, 4096, 8), (FLAT, 2048, 8)]
    filled = [value for line in explorer.figure.data[2].z for value in line if value is not None]
    assert len(filled) == 2 and f"live on {table.spec.name}" in explorer.figure.layout.title.text


def test_without_widgets_a_gpu_shows_the_recorded_sweep(recorded, monkeypatch):
    spec = recorded["launch"].spec
    gpu = {"gpu": spec.as_dict(), "driver": None, "cuda": None, "torch": "2", "triton": None}
    here = records.Provenance(**gpu, sm_clock_mhz=None, memory_clock_mhz=None, date="2026-01-01")
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    monkeypatch.setattr(device, "gpu_spec", lambda: spec)
    monkeypatch.setattr("helpers.records.replay.live_provenance", lambda: here)
    monkeypatch.delenv("WORKBOOK_RECORD", raising=False)
    assert load(SPACES["launch"]).rows == {}
    table = load(SPACES["launch"], replay=True)
    assert table.rows == recorded["launch"].rows and table.origin.startswith("replayed: ")


@pytest.mark.parametrize("form", ["widgets", "plain"])
def test_a_changed_kernel_gets_a_sentence_instead_of_its_recorded_speeds(form, monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", form)
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    sentence = str(records.KernelChanged(["cube_kernel"]))
    changed = {
        name: dataclasses.replace(space, sources=lambda: ["__global__ void cube_kernel() {}"])
        for name, space in SPACES.items()
    }
    shown = widgets.explore(changed["launch"])
    assert shown.widget is None and shown.text == sentence
    assert "0 of " in shown.best().text
    with pytest.raises(ValueError, match="cube_kernel"):
        shown.save("never")
    assert shown._repr_mimebundle_()["text/html"] == f'<div role="status">{sentence}</div>'
    monkeypatch.setattr(grid, "SHAPE", changed["shape"])
    shown = widgets.explore_grid()
    said = [
        t.text[0].replace("<br>", " ")
        for t in shown.plain.data
        if t.type == "scatter" and t.mode == "text" and t.visible
    ]
    assert sentence in shown.text and sentence in said[0]
    steps = [step["args"][0]["text"] for step in shown.plain.layout.sliders[0].steps]
    told = [text[0].replace("<br>", " ") for step in steps for text in step if text is not None]
    assert "GB/s" not in "".join(told) and sum("is refused" in text for text in told) == len(told) // len(
        steps
    )
    assert all((sentence in text and "sectors" in text) or "is refused" in text for text in told)
    if form == "widgets":
        assert sentence in shown.explorer.line.value and "GB/s" not in shown.explorer.line.value
        shown.explorer.sliders["block_x"].value = 32
        assert "32 threads" not in shown.explorer.line.value and sentence in shown.explorer.line.value


def test_the_button_fills_the_map_and_can_be_stopped(live):
    table, asked = live
    explorer = widgets.explore(table=table, kernels=[FLAT]).explorer

    async def stop_early():
        explorer.button.click()
        while len(asked) < 5:
            await asyncio.sleep(0)
        assert explorer.button.description == "Stop" and explorer.bar.layout.visibility == "visible"
        explorer.button.click()
        await explorer.task

    asyncio.run(stop_early())
    assert 5 <= len(asked) < 48 and explorer.bar.layout.visibility == "hidden"

    async def to_the_end():
        explorer.button.click()
        await explorer.task

    asyncio.run(to_the_end())
    assert len(asked) == len(set(asked)) == 48
    assert all(value is not None for line in explorer.figure.data[2].z for value in line)


# ------------------------------------------------------------------------------------------- the plain figure


def apply(figure: dict, args: list) -> None:
    """Do to a figure what Plotly's `update` does with a slider's or menu's arguments."""
    data, layout, *targets = args
    indices = targets[0] if targets else range(len(figure["data"]))
    for name, values in data.items():
        for i, index in enumerate(indices):
            value = values[i % len(values)]
            if value is None:  # takes it away, as in a browser
                figure["data"][index].pop(name, None)
            else:
                figure["data"][index][name] = value
    figure["layout"].update(layout)


def test_the_plain_sliders_show_the_same_values(recorded):
    table = recorded["launch"]
    shown = widgets.explore(table=table)
    drawn = shown._repr_mimebundle_()[widgets.PLOTLY]
    blocks, sizes = drawn["layout"]["sliders"]
    (menu,) = drawn["layout"]["updatemenus"]
    apply(drawn, next(s for s in blocks["steps"] if s["label"] == "512")["args"])
    apply(drawn, next(s for s in sizes["steps"] if s["label"] == "1,024")["args"])
    apply(drawn, next(b for b in menu["buttons"] if b["label"] == "bfloat16, num_warps 4")["args"])
    visible = [t for t in drawn["data"] if t["visible"]]
    point = {"block_size": 512, "num_warps": 4, "n_cols": 1024, "dtype": "bfloat16"}
    (flat,) = [t for t in visible if t.get("name") == FLAT]
    assert flat["y"] == [
        table.row(FLAT, {**point, "n_cols": n})["gb_per_s"] for n in table.space.axes["n_cols"]
    ]
    (heat, _) = [t for t in visible if t["type"] == "heatmap" and t["xaxis"] == "x3"]
    row = list(table.space.axes["block_size"]).index(64)
    expected = [
        table.row(FLAT, {**point, "block_size": 64, "num_warps": w}) for w in table.space.axes["num_warps"]
    ]
    assert heat["z"][row] == [r["gb_per_s"] for r in expected]
    frames = [t for t in visible if t["type"] == "scatter" and t.get("xaxis") == "x3"]
    assert [min(t["x"]) for t in frames] == [1.5] and [min(t["y"]) for t in frames] == [2.5]


def test_without_widgets_a_menu_changes_the_gpu_and_the_position_stays(monkeypatch):
    """Curves, maps, ceiling, title and sentences of each GPU of which the sweep is recorded."""
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    shown = widgets.explore("alignment")
    tables = by_gpu(shown.table)
    assert len(tables) > 1
    drawn = shown._repr_mimebundle_()[widgets.PLOTLY]
    (menu,) = drawn["layout"]["updatemenus"]
    space = shown.table.space
    x, y = space.axes[space.x][1], space.axes[space.y][1]
    steps = drawn["layout"]["sliders"][0]["steps"]
    apply(drawn, next(s for s in steps if s["label"] == str(y))["args"])
    for gpu, table in tables.items():
        apply(
            drawn,
            next(
                b
                for b in menu["buttons"]
                if b["label"].startswith(f"{gpu}: bfloat16") and b["label"].endswith(f" {x}")
            )["args"],
        )
        seen = [t for t in drawn["data"] if t["visible"]]
        at = {**shown.start, "dtype": "bfloat16", space.x: x, space.y: y}
        kernel = space.mapped[0]
        (curve,) = [t for t in seen if t.get("name") == kernel]
        assert curve["y"] == [
            table.row(kernel, {**at, "n_cols": n})["gb_per_s"] for n in space.axes["n_cols"]
        ]
        assert f"copy: {table.spec.copy_gb_per_s:,.0f}" in [t.get("name") for t in seen]
        assert table.spec.name in drawn["layout"]["title.text"]
        (sentence,) = [t for t in seen if t.get("xaxis") == "x9"]
        words = " ".join(html.unescape(sentence["text"][0]).replace("<br>", " ").split())
        assert f"{kernel}: {reason(table, table.row(kernel, at))}" in words


def test_the_plain_form_of_a_notebook_stays_below_a_megabyte(monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    # lesson 03 has both
    sizes = [
        len(json.dumps(widgets.explore(name)._repr_mimebundle_(), indent=1))
        for name in ("launch", "alignment")
    ]
    assert sum(sizes) < 1_000_000, sizes


def test_the_plain_grid_has_the_rows_length_and_a_refused_shape(recorded):
    table = recorded["shape"]
    drawn = widgets.explore_grid(table=table)._repr_mimebundle_()[widgets.PLOTLY]
    shapes, widths = drawn["layout"]["sliders"]
    apply(drawn, next(s for s in shapes["steps"] if s["label"] == "4 × 64")["args"])
    apply(drawn, next(s for s in widths["steps"] if s["label"] == "781")["args"])
    said = [
        t["text"][0].replace("<br>", " ") for t in drawn["data"] if t.get("mode") == "text" and t["visible"]
    ]
    assert said == [grid.summary(table, 4, 64, 781)]
    apply(drawn, next(s for s in shapes["steps"] if s["label"] == "64 × 32")["args"])
    (refused,) = [t["text"][0] for t in drawn["data"] if t.get("mode") == "text" and t["visible"]]
    assert "64 × 32 is refused: a block of 2,048 threads" in refused


def test_a_page_without_widgets_and_without_network_is_small_enough(recorded):
    sizes = {}
    for name, table in recorded.items():
        sizes[name] = len(json.dumps(widgets.explore(name, table=table)._repr_mimebundle_(), indent=1))
    sizes["grid"] = len(
        json.dumps(widgets.explore_grid(table=recorded["shape"])._repr_mimebundle_(), indent=1)
    )
    sizes["ptx"] = len(json.dumps(widgets.explore_ptx()._repr_mimebundle_(), indent=1))
    assert max(sizes.values()) < 500_000 and sizes["launch"] + sizes["alignment"] < 700_000, sizes


def test_which_form_is_chosen(recorded, monkeypatch):
    assert widgets.explore(table=recorded["launch"])._repr_mimebundle_().keys() == {
        "text/plain", widgets.PLOTLY, widgets.WIDGET,
    }  # fmt: skip
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    assert widgets.explore(table=recorded["launch"])._repr_mimebundle_().keys() == {
        "text/plain",
        widgets.PLOTLY,
    }
    monkeypatch.delenv("WORKBOOK_WIDGETS")
    assert widgets.frontend() == "widgets"
    monkeypatch.setattr(device, "package_version", lambda name: {"plotly": "5.24.1"}.get(name, "9.0"))
    assert widgets.frontend() == "plain"


# ------------------------------------------------------------------------------------------- the grid


@pytest.mark.parametrize(
    ("shape", "sectors", "lines"), [((16, 16), 4, 2), ((32, 8), 4, 1), ((256, 1), 4, 1), ((1, 256), 32, 32)]
)
def test_sectors_of_a_request(shape, sectors, lines):
    assert grid.pieces(*shape, 4096, 32) == sectors
    assert grid.pieces(*shape, 4096, 128) == lines


def test_moving_the_blocks_shape(recorded):
    table = recorded["shape"]
    explorer = widgets.explore_grid(table=table).explorer
    explorer.sliders["block_x"].value = 32
    explorer.sliders["block_y"].value = 8
    numbers = explorer.figure.data[0].customdata
    # element (9, 40): block (1, 1), thread (8, 1), warp 1, lane 8, sector 5 of its row
    assert list(numbers[9][40]) == [1, 1, 8, 1, 1, 8, 5]
    row = table.row(CUDA, {"block_x": 32, "block_y": 8, "n_cols": 4096, "dtype": "float32"})
    assert (
        f"{row['gb_per_s']:,.0f} GB/s" in explorer.line.value
        and "4 sectors and 1 line a request" in explorer.line.value
    )
    assert "Blocks of 32 × 8" in explorer.figure.layout.title.text
    explorer.sliders["block_y"].value = 64
    assert "refused: a block of 2,048 threads" in explorer.line.value
    with pytest.raises(ValueError, match="block_x=48"):
        widgets.explore_grid(48, 8)


# ------------------------------------------------------------------------------------------- text


def test_heading_escapes(recorded):
    table = dataclasses.replace(recorded["launch"], date="<script>")
    assert "&lt;script&gt;" in figure.heading(table, START) and "<script" not in figure.heading(table, START)


# ------------------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [ROWS, FLAT, CUDA, TORCH])
def test_measuring_a_point_live(kernel):
    row = measure.measure(SPACES["launch"], kernel, START)
    assert row["verdict"] == "ok" and row["gb_per_s"] > 10 and row["reason"] == ""
    if kernel != TORCH:
        assert row["registers"] >= 8 and row["loads"] >= 1


@pytest.mark.gpu
def test_what_a_gpu_refuses_and_what_is_wrong():
    shape = {"block_x": 64, "block_y": 32, "n_cols": 1024, "dtype": "float32"}
    row = measure.measure(SPACES["shape"], CUDA, shape)
    assert row["verdict"] == "refused" and "2,048 threads" in row["reason"]
    row = measure.measure(SPACES["launch"], ROWS, {**START, "block_size": 64})
    assert row["verdict"] == "wrong" and row["gb_per_s"] is None
