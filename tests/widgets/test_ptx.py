"""explore_ptx: what each line says, CUDA text with sliders on its constants, two positions side by side, and
a page.
"""

import base64
import json
import re
import zlib

import pytest

from helpers import widgets
from helpers.ptx.view import Line
from helpers.widgets import diffs, panes
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


def page_of(plain: str) -> list[str]:
    """Every position of a page's form."""
    packed = re.search(r'data-packed="([^"]+)"', plain)[1]
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def test_it_is_compiled_anew_and_says_what_changed():
    explorer = widgets.explore_ptx(aligned=True).explorer
    assert ">2</b>" in explorer.summary.value and "(was" not in explorer.summary.value
    assert "kw-new" not in explorer.code.value
    explorer.sliders["block_size"].value = 4096
    assert '<b>8</b> <span class="kw-was">(was 2)</span>' in explorer.summary.value  # loads a thread
    assert "kw-new" in explorer.code.value and "lines new (+)" in explorer.code.value
    explorer.aligned.value = False
    assert panes.facts(explorer.now)["load_bytes"] == 4
    explorer.sliders["target"].value = "sm_75"
    assert ".target sm_75" in explorer.code.value
    # every line of code carries the class of a source line that can be picked
    assert 'class="kw-pick kw-p' in explorer.source.value and "aria-label" in explorer.source.value


def test_loads_and_stores_start_with_the_bytes_that_they_move():
    explorer = widgets.explore_ptx(aligned=True).explorer
    for opcode in ("<b>LDG.E.128</b>", "<b>ld.global.v4.b32</b>"):
        rows = [row for row in explorer.code.value.split('<span class="kw-line') if opcode in row]
        assert rows and all("16 B" in row and "kw-b16" in row for row in rows)  # not by color alone


def test_two_positions_side_by_side():
    explorer = widgets.explore_ptx(aligned=True).explorer
    explorer.sliders["block_size"].value = 2048
    explorer.view.value = "diff of SASS"
    assert "kept: BLOCK_SIZE 1,024, num_warps 4" in explorer.code.value
    assert "now: BLOCK_SIZE 2,048, num_warps 4" in explorer.code.value
    loosely = int(re.search(r"(\d+) lines changed", explorer.code.value)[1])
    explorer.exact.value = True
    assert int(re.search(r"(\d+) lines changed", explorer.code.value)[1]) > loosely
    explorer.keep.click()
    assert "0 lines changed (~), 0 only left (-), 0 only right (+)" in explorer.code.value
    explorer.view.value = "PTX and SASS"
    assert "EXIT" in explorer.code.value and ".version" in explorer.code.value


def test_what_is_new_ignores_renumbered_registers():
    lines = [Line(i, 1, text) for i, text in enumerate(["add.s32 %r1, %r2, 3;", "ret;"])]
    renumbered = [
        Line(i, 1, text) for i, text in enumerate(["add.s32 %r7, %r8, 3;", "mov.u32 %r1, 0;", "ret;"])
    ]
    assert diffs.news("ptx", lines, renumbered) == ({1}, 0)
    assert diffs.news("ptx", None, renumbered) == (set(), 0)
    long = [Line(i, 1, f"st.global [{i}];") for i in range(600)]
    assert diffs.news("ptx", long, [*long[1:], lines[1]]) == ({599}, 1)


def test_a_diff_counts_each_side():
    left = [Line(1, 1, "FADD R1, R2, R3 ;"), Line(2, 1, "FMUL R1, R2, R3 ;"), Line(3, 1, "EXIT ;")]
    right = [Line(1, 1, "FADD R5, R6, R7 ;"), Line(2, 1, "FFMA R1, R2, R3 ;"), Line(3, 1, "STG [R2], R1 ;"),
             Line(4, 1, "EXIT ;")]  # fmt: skip
    said = diffs.diff_html("sass", left, right, ("a < b", "c"), exact=False)
    assert "1 lines changed (~), 0 only left (-), 1 only right (+)" in said and "a &lt; b" in said
    assert "2 lines changed (~), 0 only left (-), 1 only right (+)" in diffs.diff_html(
        "sass", left, right, ("a", "c"), True
    )


def test_cuda_text_has_sliders_on_its_constants():
    explorer = widgets.explore_ptx(TRANSPOSE, PAD=[0, 1], ROWS=[8, 16]).explorer
    assert list(explorer.sliders) == ["PAD", "ROWS", "target"]
    shared_bytes = explorer.now.shared_bytes
    explorer.sliders["PAD"].value = 1
    assert "#define PAD 1" in explorer.source.value and explorer.now.shared_bytes == shared_bytes + 32 * 4
    explorer.sliders["target"].value = "sm_80"
    assert explorer.now.target == "sm_80" and ".target sm_80" in explorer.code.value


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


def test_a_position_that_does_not_compile_is_refused_and_the_others_stay():
    explorer = widgets.explore_ptx(TRANSPOSE, PAD=[0, -40], ROWS=[8]).explorer
    kept = explorer.code.value
    explorer.sliders["PAD"].value = -40
    assert "refused:" in explorer.summary.value and explorer.code.value == kept
    assert any(
        "refused:" in position
        for position in page_of(widgets.explore_ptx(TRANSPOSE, PAD=[0, -40], ROWS=[8]).plain)
    )


@pytest.mark.parametrize(
    ("kernel", "given", "says"),
    [
        (None, {"target": "sm_91"}, "target='sm_91' is no position"),
        (object(), {}, "needs the signature"),
        (None, {"PAD": [1, 2]}, "PAD: this goes with a CUDA text"),
        (TRANSPOSE, {"num_warps": 8, "ROWS": [8]}, "go with a Triton kernel"),
    ],
)
def test_what_does_not_go_together(kernel, given, says):
    with pytest.raises(ValueError, match=says):
        widgets.explore_ptx(kernel, **given)


def test_a_page_has_the_warps_up_to_where_registers_spill(monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    shown = widgets.explore_ptx(aligned=True)
    assert shown.explorer is None and len(json.dumps(shown._repr_mimebundle_(), indent=1)) < 500_000
    assert shown.plain.count('type="range"') == 2 and "num_warps:" in shown.plain
    positions = page_of(shown.plain)
    spilled = [
        int(re.search(r"spilled \(bytes a thread\)</th><td><b>([\d,]+)", p)[1].replace(",", ""))
        for p in positions
    ]
    assert (
        len(positions) == 16 and spilled[-4] > 0 == spilled[-3]
    )  # BLOCK_SIZE 8192: one warp spills, two do not
    assert "(was 2)" in positions[2 * 4 + 2] and "(was" not in positions[1 * 4 + 2]
