"""explore_ptx: every position is compiled, CUDA text has sliders on its constants, and pages are small."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from pathlib import Path

import pytest
from slider_driver import page_data

from helpers import widgets
from helpers.widgets.constants import require_constants, with_constants

TRANSPOSE = """#define PAD 0
constexpr int TILE = 32, ROUND = 8;
extern "C" __global__ void transpose(float* y, const float* x, int n) {
    __shared__ float tile[TILE][TILE + PAD];
    for (int r = threadIdx.y; r < TILE; r += ROWS)
        tile[r][threadIdx.x] = x[(blockIdx.y * TILE + r) * n + blockIdx.x * TILE + threadIdx.x];
    __syncthreads();
    for (int r = threadIdx.y; r < TILE; r += ROWS)
        y[(blockIdx.x * TILE + r) * n + blockIdx.y * TILE + threadIdx.x] = tile[threadIdx.x][r];
}
"""


@pytest.fixture(autouse=True)
def on_widgets(monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "widgets")


def position(shown, **values) -> dict:
    """What the browser receives for a position, written as its sliders write it."""
    sent, data = [], shown.widget.data
    shown.widget.send = sent.append
    at = list(data["start"])
    for i, axis in enumerate(data["axes"]):
        for name, value in values.items():
            if axis.get("name", "aligned") == name:
                text = f"{value:,}" if isinstance(value, int) else str(value)
                at[i] = axis["values"].index(text)
    asyncio.run(asked(shown, at))
    (found,) = sent[-1]["positions"].values()
    return found


async def asked(shown, *positions: list[int]) -> None:
    """Ask for positions one after another, as a browser does, and wait until the last one has its SASS."""
    for at in positions:
        shown.widget._hear(None, {"kind": "code", "at": at}, None)
    if (task := shown.widget._answer.__self__.task) is not None:
        await task


def test_ptx_is_sent_before_the_slow_disassembler_has_finished():
    shown = widgets.explore_ptx()
    sent = []
    shown.widget.send = sent.append
    asyncio.run(asked(shown, [0, 0, 0, 0], [1, 0, 0, 0]))
    (left,), (early,), (whole,) = (message["positions"].values() for message in sent)
    assert sent[0]["answer"] and sent[1]["answer"] and not {"sass"} & {*left, *early}
    assert whole["sass"] and whole["ptx"] == early["ptx"]
    assert whole["facts"][:-1] == early["facts"]
    # The reader had left the first position before its turn came, so it was not disassembled.
    assert list(sent[-1]["positions"]) == ["1,0,0,0"]


def test_the_disassembler_does_not_slow_down_the_next_position(monkeypatch):
    def priority() -> int:  # of this thread, which the processes that it starts inherit
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    shown, run, found = widgets.explore_ptx(), subprocess.run, {}
    shown.widget.send = lambda message: None

    def noted(command: list, *arguments: object, **more: object) -> object:
        found[Path(command[0]).name] = priority()
        return run(command, *arguments, **more)

    monkeypatch.setattr(subprocess, "run", noted)
    before = priority()
    asyncio.run(asked(shown, [3, 1, 1, 0]))
    assert found["nvdisasm"] > before and found["cuobjdump"] == before == priority()


def test_an_error_in_the_background_reaches_the_reader(monkeypatch):
    shown = widgets.explore_ptx()
    sent = []
    shown.widget.send = sent.append
    monkeypatch.setattr("helpers.ptx.artifacts.read_sass", lambda *arguments: 1 / 0)
    asyncio.run(asked(shown, [2, 0, 1, 0]))
    assert sent[-1]["error"].startswith("ZeroDivisionError")


def facts(shown, found: dict) -> dict[str, int]:
    return dict(zip(shown.widget.data["facts"], found["facts"], strict=True))


def code(found: dict, kind: str) -> str:
    return "\n".join(line[2] for line in found[kind])


def test_every_position_is_compiled_again():
    shown = widgets.explore_ptx(aligned=True)
    (first,) = shown.widget.data["positions"].values()
    assert facts(shown, first)["loads per thread"] == 2 and len(shown.widget.data["positions"]) == 1
    larger = position(shown, block_size=4096)
    assert facts(shown, larger)["loads per thread"] == 8
    assert facts(shown, position(shown, block_size=4096, aligned="no"))["widest load (bytes)"] == 4
    assert ".target sm_75" in code(position(shown, target="sm_75"), "ptx")
    assert len(shown.widget.data["positions"]) == 4  # a view that is opened later has them, too
    # Every line of code knows its source line, and every such line has a color.
    used = {line[1] for line in larger["sass"]} - {0}
    assert used and used <= set(shown.widget.data["source_colors"])


def test_loads_and_stores_have_the_bytes_that_they_move():
    (first,) = widgets.explore_ptx(aligned=True).widget.data["positions"].values()
    for kind, opcode in (("sass", "LDG.E.128"), ("ptx", "ld.global.v4.b32")):
        widths = {line[3] for line in first[kind] if opcode in line[2]}
        assert widths == {16}


def test_cuda_text_has_sliders_on_its_constants():
    shown = widgets.explore_ptx(TRANSPOSE, PAD=[0, 1], ROWS=[8, 16])
    assert [axis["label"] for axis in shown.widget.data["axes"]] == ["PAD", "ROWS", "target"]
    (first,) = shown.widget.data["positions"].values()
    padded = position(shown, PAD=1)
    shared = "shared memory (bytes per block)"
    assert facts(shown, padded)[shared] == facts(shown, first)[shared] + 32 * 4
    assert any("#define PAD 1" in line[2] for line in padded["source"])
    assert ".target sm_80" in code(position(shown, target="sm_80"), "ptx")


def test_a_constants_number_is_replaced_where_it_stands():
    text, flags = with_constants(TRANSPOSE, {"PAD": 1, "ROUND": 4, "ROWS": 16})
    assert text.count("\n") == TRANSPOSE.count("\n") and flags == ("-DROWS=16",)
    assert "#define PAD 1\n" in text and "constexpr int TILE = 32, ROUND = 4;" in text
    assert with_constants("#define N 4 // four\n", {"N": 8})[0] == "#define N 8 // four\n"


@pytest.mark.parametrize(
    ("constants", "says"),
    [
        ({"WIDTH": [1]}, "does not use WIDTH"),
        ({"PAD": 1}, "no list of positions"),
        ({"PAD": []}, "no list of positions"),
        ({"PAD": [1, "2"]}, "no number"),
    ],
)
def test_constants_that_change_nothing(constants, says):
    with pytest.raises(ValueError, match=says):
        require_constants(TRANSPOSE, constants)


def test_a_position_that_does_not_compile_is_refused_and_the_others_stay(monkeypatch):
    shown = widgets.explore_ptx(TRANSPOSE, PAD=[0, -40], ROWS=[8])
    assert "must be greater than zero" in position(shown, PAD=-40)["refused"]
    assert position(shown, PAD=0)["facts"]
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    page = page_data(widgets.explore_ptx(TRANSPOSE, PAD=[0, -40], ROWS=[8]).html)
    assert sorted("refused" in one for one in page["positions"].values()) == [False, True]


@pytest.mark.parametrize(
    ("kernel", "given", "says"),
    [
        (None, {"target": "sm_91"}, "target='sm_91' is no position"),
        (object(), {}, "needs the signature"),
        (None, {"PAD": [1, 2]}, "PAD: this belongs to a CUDA text"),
        (TRANSPOSE, {"num_warps": 8, "ROWS": [8]}, "belong to a Triton kernel"),
    ],
)
def test_what_does_not_go_together(kernel, given, says):
    with pytest.raises(ValueError, match=says):
        widgets.explore_ptx(kernel, **given)


def test_a_page_has_the_warps_up_to_where_registers_spill(monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    shown = widgets.explore_ptx(aligned=True)
    assert shown.widget is None and len(shown.html) < 500_000
    page = page_data(shown.html)
    assert [axis["label"] for axis in page["axes"]] == ["BLOCK_SIZE", "num_warps"]
    assert len(page["positions"]) == 16 and "sm_90" in page["note"]
    spilled = page["facts"].index("spilled (bytes per thread)")
    # BLOCK_SIZE 8192: one warp spills, two do not.
    assert page["positions"]["3,0"]["facts"][spilled] > 0 == page["positions"]["3,1"]["facts"][spilled]
