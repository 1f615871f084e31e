"""A kernel of one's own under the sliders: every point is checked, what is wrong or refused says why, no
speed is made up.
"""

from __future__ import annotations

import asyncio
import json

import pandas as pd
import pytest
import torch
import triton
import triton.language as tl
from slider_driver import Sliders, page_data

from helpers import cuda, device, ptx, records, widgets
from helpers.cuda import LoadedKernel
from helpers.widgets.explored import best_of
from helpers.widgets.residence import spec_for
from helpers.widgets.space import FACTS, Space
from helpers.widgets.table import Table

H100 = device.GpuSpec("H100", (9, 0), 132, 32, 2048, 32, 65536, 233472, 1, 1, 3352.0, 3000.0)


@triton.jit
def flat_kernel(y_ptr, x_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x * x, mask=mask)


@triton.jit
def row_kernel(y_ptr, x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * n_cols
    cols = tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + start + cols, mask=cols < n_cols)
    tl.store(y_ptr + start + cols, x * x, mask=cols < n_cols)


def flat(x, BLOCK_SIZE, num_warps):
    y = torch.empty_like(x)
    flat_kernel[(triton.cdiv(x.numel(), BLOCK_SIZE),)](
        y, x, x.numel(), BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps
    )
    return y


def rows(x, BLOCK_SIZE, num_warps=4):
    """Right only where a block holds the whole row."""
    y = torch.empty_like(x)
    row_kernel[(x.shape[0],)](y, x, x.shape[1], BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps)
    return y


def nothing(x, BLOCK_SIZE):
    flat(x, BLOCK_SIZE, 4)


@pytest.fixture(autouse=True)
def without_a_gpu(request, monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "widgets")
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(device, "has_gpu", lambda: False)
        monkeypatch.setattr(device, "gpu_spec", lambda: None)


def explored(function=flat, **other):
    asked = {"against": torch.square, "BLOCK_SIZE": [128, 1024], "num_warps": [4], "n_cols": [256, 1024]}
    return widgets.explore(function, **{**asked, "dtype": ["float32"], **other})


# ------------------------------------------------------------------------------------------- without a GPU


def test_every_position_is_compiled_and_checked_and_none_has_a_speed():
    shown = explored(BLOCK_SIZE=[128, 1000, 1024, 8192], num_warps=[1, 4], dtype=["float32", "bfloat16"])
    sliders = Sliders(shown)
    assert [axis["name"] for axis in sliders.data["axes"]] == ["BLOCK_SIZE", "num_warps", "n_cols", "dtype"]
    said = sliders.row("flat")["line"]
    assert "right on 3 × 1,024 in Triton's interpreter, not timed" in said and "16-byte loads" in said
    # 4,096 × 1,024 elements in blocks of 1,024: the launch at the whole size, not that of the check.
    row = shown.table.row("flat", shown.now[1])
    assert row["blocks"] == 4096 and row["occupancy"] == 100 and row["median_us"] is None
    sliders.move(BLOCK_SIZE=1000)
    said = sliders.row("flat")["line"]
    assert "refused: flat_kernel does not compile for sm_90" in said and "range must be a power of 2" in said
    sliders.move(BLOCK_SIZE=8192, num_warps=1)
    row = shown.table.row("flat", shown.now[1])
    assert row["spill_bytes"] > 0 and f"{row['spill_bytes']} bytes spilled" in sliders.row("flat")["line"]
    assert sliders.row("flat")["v"] == row["occupancy"] < 50
    sliders.move(BLOCK_SIZE=128, dtype="bfloat16")
    assert "as float32, because Triton's interpreter has no bfloat16" in sliders.row("flat")["line"]
    everything = json.dumps([shown.widget.data, shown.html], ensure_ascii=False)
    assert "GB/s" not in everything and "not timed" in everything and "not a speed" in everything
    assert repr(shown.best()).startswith("No point is the fastest: not timed, since no GPU is here")


def test_a_wrong_position_has_no_bar_and_the_checks_sentence():
    sliders = Sliders(explored(rows, BLOCK_SIZE=[128, 1024], num_warps=[4]))
    sliders.move(BLOCK_SIZE=128)
    drawn = sliders.row("rows")
    assert drawn["v"] is None and drawn["bad"] and drawn["text"] == "wrong"
    assert "wrong: it writes only the first 128 of 1,024 columns in each row: 87.5 %" in drawn["line"]
    sliders.move(n_cols=256)
    assert "wrong: " in sliders.row("rows")["line"]
    sliders.move(BLOCK_SIZE=1024)
    assert "bad" not in sliders.row("rows") and "right on 3 × 256" in sliders.row("rows")["line"]


@triton.jit
def sum_kernel(y_ptr, x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    cols = tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + tl.program_id(0) * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(x, axis=0))


def sums(x, num_warps):
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    sum_kernel[(x.shape[0],)](y, x, x.shape[1], BLOCK_SIZE=1024, num_warps=num_warps)
    return y


@pytest.mark.skipif(triton.knobs.runtime.interpret, reason="this process has Triton's interpreter for all")
def test_what_cannot_run_here_is_not_called_right_and_is_compiled_all_the_same():
    shown = widgets.explore(
        sums, reference=lambda x: x.sum(dim=1), num_warps=[4], n_cols=[1024], dtype=["float32"]
    )
    said = Sliders(shown).row("sums")["line"]
    assert "unchecked: it calls other @triton.jit functions" in said and "bytes of shared memory" in said
    row = shown.table.row("sums", shown.start)
    assert row["verdict"] == "unchecked" and shown.table.value(row) is None and row["blocks"] == 4096


def test_the_target_decides_what_is_compiled_and_how_it_lies_there():
    shown = explored(target="sm_75", BLOCK_SIZE=[1024], num_warps=[4])
    assert "compiled for sm_75, occupancy of a GPU of sm_75" in shown.text
    assert "waves" not in Sliders(shown).row("flat")["line"]  # nobody said how many SMs
    newest = records.gpu_spec()
    assert spec_for(None) == newest and spec_for(newest.target) == newest
    with pytest.raises(ValueError, match="sm_91"):
        explored(target="sm_91")


TILES = """
__global__ void square_tiles(const float* x, float* y, int height, int width)
{
    extern __shared__ float room[];
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    int at = row * width + column;
    if (row < height && column < width) y[at] = x[at] * x[at];
}
"""


def test_cuda_text_with_a_launcher_runs_on_the_host():
    kernel = cuda.load_kernel(TILES, "square_tiles")

    def square_tiles(x, block_x, block_y, shared_bytes=0):
        y = torch.empty_like(x)
        height, width = x.shape
        grid = triton.cdiv(width, block_x), triton.cdiv(height, block_y)
        kernel(x, y, height, width, grid=grid, block=(block_x, block_y), shared_bytes=shared_bytes)
        return y

    shown = widgets.explore(
        square_tiles, reference=torch.square, block_x=[32, 128], block_y=[2, 16], n_cols=[256],
        dtype=["float32", "bfloat16"], shared_bytes=[0, 300_000],
    )  # fmt: skip
    sliders = Sliders(shown)
    sliders.move(shared_bytes=0, block_y=2)
    row = shown.table.row("square_tiles", shown.now[1])
    assert row["verdict"] == "right" and "on the host" in row["reason"]
    assert (row["threads"], row["blocks"]) == (256, 2 * 2048)
    sliders.move(block_y=16)
    said = sliders.row("square_tiles")["line"]
    assert "refused: " in said and "at most 1,024 threads" in said
    sliders.move(block_x=32, dtype="bfloat16")
    assert "pass torch.float32" in sliders.row("square_tiles")["line"]
    sliders.move(dtype="float32", shared_bytes=300_000)
    assert "bytes of shared memory, and an SM of" in sliders.row("square_tiles")["line"]


def test_sliders_kept_with_the_function_and_all_points_without_widgets(monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    kept = widgets.explorable(BLOCK_SIZE=[128, 1024], n_cols=[256], dtype=["float32"])(
        lambda x, BLOCK_SIZE: rows(x, BLOCK_SIZE)
    )
    kept.__name__ = "rows_kept"
    shown = widgets.explore(kept, against=torch.square, BLOCK_SIZE=1024)
    assert shown.widget is None and shown.start["BLOCK_SIZE"] == 1024
    sliders = Sliders(shown)
    assert sliders.row("rows_kept")["v"] == 100
    sliders.move(BLOCK_SIZE=128)
    assert sliders.row("rows_kept")["verdict"] == "wrong"
    assert "GB/s" not in json.dumps(sliders.data)


@pytest.mark.parametrize(
    ("function", "other", "says"),
    [
        (flat_kernel, {}, "flat_kernel is a Triton kernel: pass the function that launches it"),
        (ptx.interpreted(flat_kernel), {}, "is a Triton kernel"),
        (LoadedKernel("scale", (), "cpu", 0.0, print), {}, "scale is a loaded CUDA kernel: pass the "
                                                           "function"),
        (3, {}, "explore.. takes a function, a name or a Space, and 3 is none of them"),
        (flat, {"num_warps": 4}, r"num_warps=4 is one value; a slider needs a list: num_warps=\[4, …\]"),
        (flat, {"block_size": [64]}, "flat has no launch parameter 'block_size'; it has BLOCK_SIZE, "
                                     "num_warps"),
        (flat, {"BLOCK_SIZE": []}, "BLOCK_SIZE has no values"),
        (flat, {"n_cols": 100}, "n_cols=100 is no position of its slider"),
        (flat, {"n_cols": [0]}, "n_cols has the value 0"),
        (flat, {"dtype": ["float31"]}, "dtype has the value 'float31'"),
        (flat, {"against": None}, "reference is missing, and against is empty"),
        (flat, {"against": [torch.square, torch.abs]}, "reference is missing, and against has 2 functions"),
        (flat, {"against": ["torch.square"]}, "against contains 'torch.square', which is not a function"),
        (flat, {"n_rows": 8, "n_elements": 8}, "Pass n_rows or n_elements"),
        (lambda x, BLOCK_SIZE, num_warps: flat(x, BLOCK_SIZE, num_warps), {"num_warps": None},
            "is one value"),
        (torch.square, {}, "square has no launch parameter 'BLOCK_SIZE'; it has none besides x"),
        ("launch", {}, "belong to a function: explore"),
    ],
)  # fmt: skip
def test_an_error_in_the_call_is_a_sentence(function, other, says):
    with pytest.raises(ValueError, match=says):
        explored(function, **other)


def test_a_parameter_without_a_list_and_a_function_that_returns_nothing():
    with pytest.raises(ValueError, match=r"flat .*num_warps"):
        widgets.explore(flat, against=torch.square, BLOCK_SIZE=[128])
    with pytest.raises(ValueError, match="another tensor, pass make_inputs"):
        widgets.explore(lambda x, y, BLOCK_SIZE: x + y, reference=torch.add, BLOCK_SIZE=[128])
    with pytest.raises(ValueError, match="nothing"):
        widgets.explore(nothing, against=torch.square, BLOCK_SIZE=[128], n_cols=[256], dtype=["float32"])


def test_the_button_compiles_and_checks_the_whole_map():
    shown = explored(BLOCK_SIZE=[128, 1024], num_warps=[4, 8], n_cols=[256])
    sliders = Sliders(shown)
    assert sliders.data["all"] == "Compile and check the whole map"

    async def all_of_it():
        sliders.ask("all")
        await shown.widget._answer.__self__.task

    asyncio.run(all_of_it())
    rows = shown.widget.data["gpus"][0]["rows"]
    assert [rows[f"0|{i},{j},0,0"]["v"] for i in (0, 1) for j in (0, 1)] == [100] * 4


# ------------------------------------------------------------------------------------------- kept


def test_a_page_and_a_table_are_saved_and_nothing_is_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = explored()
    page, rows_csv = shown.save("mine/my-square")
    text = page.read_text()
    assert "not timed, since no GPU is here" in text and "def flat(x, BLOCK_SIZE, num_warps)" in text
    assert "http" not in text and len(text) < 100_000
    assert len(page_data(text)["gpus"][0]["rows"]) == len(shown.table.rows)
    table = pd.read_csv(rows_csv)
    assert list(table.kernel) == ["flat", "torch.square"] and table.registers[0] > 8 and not table.timed.any()
    before = page.read_bytes()
    with pytest.raises(FileExistsError, match=r"my-square\.html"):
        shown.save("mine/my-square.html")
    assert page.read_bytes() == before
    shown.save("mine/my-square", overwrite=True)
    # The button takes the next name that is free.
    sliders = Sliders(shown)
    for _ in range(2):
        sliders.ask("save")
    saved = ["flat-2.csv", "flat-2.html", "flat.csv", "flat.html"]
    assert sorted(p.name for p in tmp_path.glob("flat*")) == saved
    assert sliders.sent[-1] == {"status": "saved: flat-2.html and flat-2.csv"}


def timed_table(times: dict[int, tuple[float, float, float]]) -> Table:
    """A live table with made-up times of `flat` by BLOCK_SIZE, wrong where there is none."""
    space = Space(
        name="flat",
        x="num_warps",
        y="BLOCK_SIZE",
        mapped=("flat",),
        rivals=("torch.square",),
        operation="flat",
        axes={"BLOCK_SIZE": (*times, 4096), "num_warps": (4,), "n_cols": (256,), "dtype": ("float32",)},
        start={"BLOCK_SIZE": 4096, "num_warps": 4, "n_cols": 256, "dtype": "float32"},
        candidates=None,
    )
    table = Table(space, H100, live=False, date="2026-11-22")
    for kernel, point in space.points():
        if point.get("BLOCK_SIZE") == 4096:
            continue
        low, median, high = times.get(point.get("BLOCK_SIZE"), (50.0, 51.0, 52.0)) or (1.0, 1.0, 1.0)
        wrong = times.get(point.get("BLOCK_SIZE"), ()) is None
        row = {"kernel": kernel, **dict.fromkeys(FACTS), **point, "reason": ""}
        row |= {"median_us": median, "ci_low_us": low, "ci_high_us": high, "gb_per_s": 8e3 / median}
        table.rows[space.key(kernel, point)] = row | {"verdict": "wrong" if wrong else "ok"}
    return table


def test_the_best_point_is_right_and_names_those_that_it_cannot_be_told_from():
    times = {
        64: None,
        128: (40.0, 40.1, 40.2),
        256: (40.1, 40.3, 40.6),
        512: (41.0, 44.0, 45.0),
        1024: (39.0, 43.0, 47.0),
    }
    found = best_of(timed_table(times), ("flat", "torch.square"), {"n_cols": 256, "dtype": "float32"})
    assert found.row["BLOCK_SIZE"] == 128 and (found.n_known, found.n_points) == (5, 6)
    # 0.5 % is less than two measurements of one thing differ by; an interval that reaches below cannot tell.
    assert [row["BLOCK_SIZE"] for row in found.alike] == [256, 1024]
    assert "flat with BLOCK_SIZE=128, num_warps=4, 40.10 µs (95 % CI 40.00 to 40.20)" in found.text
    assert "5 of 6 points measured" in found.text and "torch.square: 51.00 µs" in found.text
    none = best_of(timed_table({64: None}), ("flat",), {"n_cols": 256, "dtype": "float32"})
    assert none.row is None and none.text.startswith("No right point was timed at 4,096 × 256 float32 yet")


# ------------------------------------------------------------------------------------------- launches


@triton.jit
def strided_kernel(y_ptr, x_ptr, n, sizes, scale, nothing, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets * sizes[1], mask=offsets < n)
    tl.store(y_ptr + offsets, x * scale, mask=offsets < n)


def strided(x):
    y = torch.empty_like(x)
    strided_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK_SIZE"]),)](
        y, x, x.numel(), (16, 1, 7), 2.0, None, BLOCK_SIZE=256, num_warps=8, num_stages=2
    )
    return y


def test_a_launch_is_noted_and_compiled_without_running():
    x = torch.randn(3, 256)
    with ptx.launches() as seen:
        assert torch.equal(strided(x), 2 * x)
    (launch,) = seen
    assert launch.grid == (3, 1, 1) and launch.n_blocks == 3 and launch.options["num_warps"] == 8
    stages = launch.stages("sm_80")
    assert stages.target == "sm_80" and launch.threads(stages) == 256
    (load,) = stages.reading.loads
    assert load.n_bytes == 4  # one element a thread
    with ptx.launches(run=False) as seen:
        kept = strided(x)
    assert len(seen) == 1 and not torch.equal(kept, 2 * x)
    # 256 elements in all are no multiple of 16 for an odd width: the launch decides what the compiler may
    # know.
    widths = {}
    for n in (4096, 4095):
        with ptx.launches(run=False) as seen:
            flat(torch.empty(1, n), 1024, 4)
        widths[n] = max(i.n_bytes for i in seen[0].stages("sm_90").reading.loads)
    assert widths == {4096: 16, 4095: 4}


@pytest.mark.gpu
def test_a_launch_is_specialised_as_triton_does_it():
    x = torch.randn(3, 256, device="cuda")
    with ptx.launches() as seen:
        strided(x)
    source, ours = seen[0].compiled.src, seen[0]._request(90)
    assert {k: tuple(v) if isinstance(v, (list, tuple)) else v for k, v in source.signature.items()} == ours[
        "signature"
    ]
    assert source.constants == ours["constexprs"]
    divisible = [path for path, attrs in source.attrs.items() if ["tt.divisibility", 16] in map(list, attrs)]
    assert sorted(divisible) == sorted(ours["divisible"])


@pytest.mark.gpu
def test_points_of_ones_own_are_checked_and_timed(tmp_path):
    compiled = torch.compile(torch.square)
    shown = explored(
        rows, against=[torch.square, compiled], reference=torch.square, BLOCK_SIZE=[128, 1000, 4096],
        num_warps=[1, 4], n_cols=[1024, 4096], n_rows=1024,
    )  # fmt: skip
    sliders = Sliders(shown)
    sliders.move(BLOCK_SIZE=4096)
    row = shown.table.row("rows", shown.now[1])
    assert row["verdict"] == "ok" and row["gb_per_s"] > 10 and row["registers"] > 8 and row["blocks"] == 1024
    assert shown.table.row("torch.compile(square)", shown.now[1])["verdict"] == "ok"
    sliders.move(BLOCK_SIZE=128)
    assert "wrong: " in sliders.row("rows")["line"]
    sliders.move(BLOCK_SIZE=1000)
    said = sliders.row("rows")["line"]
    assert "refused: " in said and "power of 2" in said
    best = shown.best()
    assert best.row["BLOCK_SIZE"] == 4096 and "µs (95 % CI" in best.text
    page, _ = shown.save(tmp_path / "live")
    assert device.gpu_spec().name in page.read_text()


@pytest.mark.gpu
def test_cuda_text_with_a_launcher_is_timed():
    kernel = cuda.load_kernel(TILES, "square_tiles")

    def square_tiles(x, block_x, block_y):
        y = torch.empty_like(x)
        height, width = x.shape
        grid = triton.cdiv(width, block_x), triton.cdiv(height, block_y)
        kernel(x, y, height, width, grid=grid, block=(block_x, block_y))
        return y

    shown = widgets.explore(
        square_tiles,
        against=torch.square,
        block_x=[32, 128],
        block_y=[16, 4],
        n_cols=[1024],
        dtype=["float32", "bfloat16"],
    )
    sliders = Sliders(shown)
    row = shown.table.row("square_tiles", shown.now[1])
    assert (
        row["verdict"] == "ok"
        and row["registers"] > 8
        and row["blocks"] == 8 * 1024
        and row["threads"] == 512
    )
    sliders.move(block_y=16)
    said = sliders.row("square_tiles")["line"]
    assert "refused: " in said and "at most 1,024 threads" in said
    sliders.move(block_x=32, dtype="bfloat16")
    assert "pass torch.float32" in sliders.row("square_tiles")["line"]
