"""The sliders show what the table has, at every position, and a GPU measures each position once."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import subprocess
from pathlib import Path

import commands
import debian
import pandas as pd
import pytest
from slider_driver import Sliders, page_data

from helpers import device, records, widgets
from helpers.widgets import explain, grid, measure
from helpers.widgets.residence import occupancy
from helpers.widgets.shown import page_script
from helpers.widgets.square import CUDA, FLAT, ROWS, SPACES, TORCH
from helpers.widgets.table import Table, by_gpu, from_frame, load
from helpers.widgets.view import still_html

BYTES = {"float32": 4, "bfloat16": 2}
START = SPACES["launch"].start


@pytest.fixture(autouse=True)
def on_widgets(monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "widgets")


@pytest.fixture(scope="module")
def recorded() -> dict[str, Table]:
    """The stored tables, as a machine without a GPU loads them."""
    tables = {}
    for name, space in SPACES.items():
        case = commands.recorded(space.record)
        frame = pd.DataFrame(case["rows"], columns=case["columns"])
        frame.attrs["provenance"] = records.Provenance(**case["provenance"])
        tables[name] = from_frame(space, frame)
    return tables


@pytest.fixture
def live(recorded, monkeypatch) -> tuple[Table, list]:
    """An empty table of a "GPU" that measures what is recorded, and the list of what was measured."""
    table = Table(SPACES["launch"], recorded["launch"].spec, live=True)
    asked = []

    def from_record(space, kernel, point, **_):
        asked.append((kernel, point["block_size"], point["num_warps"]))
        return recorded["launch"].rows[space.key(kernel, point)]

    monkeypatch.setattr(measure, "measure", from_record)
    return table, asked


def test_the_rules_of_explorer_js():
    """Node runs the unit tests of the module's pure functions."""
    node = debian.program("nodejs", "node", needed_by="The unit tests of explorer.js")
    done = subprocess.run(
        [node, "--test", str(Path(__file__).with_name("explorer.test.mjs"))], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


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
    said = explain.reason(table, table.row(FLAT, START))
    assert (
        "registers per thread" in said
        and "16-byte loads" in said
        and "blocks per SM" in said
        and "waves" in said
    )
    odd = explain.reason(table, table.row(ROWS, {**START, "n_cols": 781}))
    assert " 4-byte loads" in odd  # 781 is no multiple of 16
    spilled = table.row(FLAT, {**START, "block_size": 8192, "num_warps": 1})
    assert spilled["spill_bytes"] > 0 and f"{spilled['spill_bytes']} bytes spilled" in explain.reason(
        table, spilled
    )
    assert explain.reason(table, table.row(ROWS, {**START, "block_size": 64})).startswith("wrong: ")
    assert explain.reason(table, None) == "not measured yet"


# ------------------------------------------------------------------------------------------- explore


def test_a_move_shows_the_new_positions_values(recorded):
    table = recorded["launch"]
    sliders = Sliders(widgets.explore(table=table))
    for values in ({"block_size": 1024}, {"n_cols": 781}, {"dtype": "bfloat16"}, {"num_warps": 16}):
        sliders.move(**values)
        point = dict(zip(table.space.axes, map(str, sliders.at), strict=True))
        point = {a: table.space.axes[a][int(i)] for a, i in point.items()}
        for kernel in (ROWS, FLAT, CUDA, TORCH):
            row, drawn = table.row(kernel, point), sliders.row(kernel)
            assert drawn["v"] == (round(row["gb_per_s"], 1) if row["verdict"] == "ok" else None)
            assert drawn["line"] == explain.reason(table, row)
            if row["verdict"] == "ok":
                assert drawn["lo"] <= drawn["v"] <= drawn["hi"]


def test_a_refused_position_is_shown_with_its_reason(recorded):
    sliders = Sliders(widgets.explore("shape", table=recorded["shape"], block_x=64, block_y=16))
    sliders.move(block_x=128)
    drawn = sliders.row(CUDA)
    assert drawn["v"] is None and drawn["verdict"] == drawn["text"] == "refused"
    assert "2,048 threads" in drawn["line"] and "1,024" in drawn["line"]


def test_all_recorded_gpus_are_there_at_the_same_position(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    monkeypatch.setattr(device, "gpu_spec", lambda: None)
    space = SPACES["launch"]
    shown = widgets.explore(n_cols=1024)
    sliders = Sliders(shown)
    sliders.move(block_size=1024)
    assert {gpu["name"] for gpu in sliders.data["gpus"]} == {"H100", "H200"}
    for i, gpu in enumerate(sliders.data["gpus"]):
        frame = records.stored_by_gpu(space.record, sources=space.sources())[gpu["name"].lower()]
        table = from_frame(space, frame)
        point = {**START, "n_cols": 1024, "block_size": 1024}
        assert sliders.row(ROWS, i)["v"] == round(table.row(ROWS, point)["gb_per_s"], 1)
        assert {line["v"] for line in gpu["ceilings"]} == {table.spec.copy_gb_per_s}
        assert f"replayed: {table.spec.name}" in gpu["note"]
        shown.widget.state = {**sliders.state, "gpu": i}
        assert table.spec.name in shown.best().text and shown.now[0].spec == table.spec
        assert shown.now[1] == point
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


def test_on_a_gpu_a_position_is_measured_when_you_reach_it_and_once(live):
    table, asked = live
    shown = widgets.explore(table=table, kernels=[FLAT])
    sliders = Sliders(shown)
    assert asked == [(FLAT, 4096, 8)]
    sliders.move(block_size=2048)
    sliders.move(block_size=4096)
    assert asked == [(FLAT, 4096, 8), (FLAT, 2048, 8)]
    assert len(sliders.data["gpus"][0]["rows"]) == 2
    assert f"live on {table.spec.name}" in sliders.data["gpus"][0]["note"]
    # A view that is opened later, as after a reload of the page, has everything that was measured.
    assert shown.widget.data["gpus"][0]["rows"] == sliders.data["gpus"][0]["rows"]


def test_an_error_in_python_reaches_the_reader_and_the_sliders_go_on(live, monkeypatch):
    table, asked = live
    sliders = Sliders(widgets.explore(table=table, kernels=[FLAT]))

    def fails(*args, **more):
        raise RuntimeError("an illegal memory access was encountered")

    with monkeypatch.context() as patched:
        patched.setattr(measure, "measure", fails)
        sliders.move(block_size=2048)
    answer = sliders.sent[-1]
    assert answer["answer"] and answer["error"] == "RuntimeError: an illegal memory access was encountered"
    sliders.move(block_size=512)
    assert asked[-1] == (FLAT, 512, 8)


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
    lines = Sliders(widgets.explore_grid()).data["lines"].values()
    assert "GB/s" not in "".join(lines)
    assert all(
        (sentence in line and "sectors" in line) or "is refused" in line or sentence in line for line in lines
    )


def test_the_button_fills_the_map_and_can_be_stopped(live):
    table, asked = live
    shown = widgets.explore(table=table, kernels=[FLAT])
    sliders = Sliders(shown)
    session = shown.widget._answer.__self__

    async def stop_early():
        sliders.ask("all")
        while len(asked) < 5:
            await asyncio.sleep(0)
        sliders.ask("stop")
        with pytest.raises(asyncio.CancelledError):
            await session.task

    asyncio.run(stop_early())
    assert 5 <= len(asked) < 48 and sliders.sent[-1]["going"] is False

    async def to_the_end():
        sliders.ask("all")
        await session.task

    asyncio.run(to_the_end())
    assert len(asked) == len(set(asked)) == 48
    assert len(shown.widget.data["gpus"][0]["rows"]) == 48
    assert any(message.get("status") == "48 of 48" for message in sliders.sent)


# ------------------------------------------------------------------------------------------- pages


def test_a_page_has_every_recorded_position_of_every_gpu(monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    shown = widgets.explore("alignment")
    tables = by_gpu(shown.table)
    assert len(tables) > 1
    drawn = page_data(shown.html)
    assert [len(gpu["rows"]) for gpu in drawn["gpus"]] == [len(table.rows) for table in tables.values()]
    assert not drawn["measures"]


def test_pages_stay_small_and_need_no_network(recorded, monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    sizes = {name: len(widgets.explore(name).html) for name in SPACES}
    sizes["grid"] = len(widgets.explore_grid(table=recorded["shape"]).html)
    sizes["script"] = len(page_script())
    assert sum(sizes.values()) < 1_000_000 and sizes["script"] < 60_000, sizes
    assert "http" not in page_script()


def test_what_a_viewer_without_widgets_and_scripts_shows(recorded):
    shown = widgets.explore(table=recorded["launch"])
    data, _ = shown._repr_mimebundle_()
    row = recorded["launch"].row(FLAT, START)
    assert f"{row['gb_per_s']:,.0f} GB/s" in data["text/html"] and "<svg" in data["text/html"]
    assert "<script" not in data["text/html"] and len(data["text/html"]) < 10_000


def test_which_form_is_chosen(recorded, monkeypatch):
    bundle, _ = widgets.explore(table=recorded["launch"])._repr_mimebundle_()
    assert bundle.keys() == {"text/plain", "text/html", widgets.WIDGET}
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    assert widgets.explore(table=recorded["launch"])._repr_mimebundle_().keys() == {"text/plain", "text/html"}
    monkeypatch.delenv("WORKBOOK_WIDGETS")
    assert widgets.frontend() == "widgets"
    monkeypatch.setattr(device, "package_version", lambda name: None)
    assert widgets.frontend() == "plain"


def test_words_are_escaped(recorded):
    table = dataclasses.replace(recorded["launch"], date="<script>")
    still = still_html(table, [ROWS], START)
    assert "&lt;script&gt;" in still and "<script" not in still


# ------------------------------------------------------------------------------------------- the grid


@pytest.mark.parametrize(
    ("shape", "sectors", "lines"), [((16, 16), 4, 2), ((32, 8), 4, 1), ((256, 1), 4, 1), ((1, 256), 32, 32)]
)
def test_sectors_of_a_request(shape, sectors, lines):
    assert grid.pieces(*shape, 4096, 32) == sectors
    assert grid.pieces(*shape, 4096, 128) == lines


def test_rows_that_begin_within_a_sector_touch_more_of_them():
    assert 4 < grid.pieces(256, 1, 781, 32) < 5


def test_the_grids_lines_have_the_speed_of_their_position(recorded):
    table = recorded["shape"]
    data = Sliders(widgets.explore_grid(table=table)).data
    values = [axis["numbers"] for axis in data["axes"]]
    point = {"block_x": 32, "block_y": 8, "n_cols": 4096}
    line = data["lines"][",".join(str(v.index(n)) for v, n in zip(values, point.values(), strict=True))]
    row = table.row(CUDA, {**point, "dtype": "float32"})
    assert f"{row['gb_per_s']:,.0f} GB/s" in line and "4 sectors and 1 line per request" in line
    refused = data["lines"][",".join(str(v.index(n)) for v, n in zip(values, (32, 64, 4096), strict=True))]
    assert "32 × 64 is refused: the block has 2,048 threads" in refused
    assert len(data["lines"]) == len(values[0]) * len(values[1]) * len(values[2])
    with pytest.raises(ValueError, match="block_x=48"):
        widgets.explore_grid(48, 8)


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
