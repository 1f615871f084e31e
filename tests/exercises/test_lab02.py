"""Lab 02: wrong kernels and wrappers are refused with the reason that fits, unlike but right ones are
accepted.
"""

from __future__ import annotations

import ast
import multiprocessing
import random
import re
from concurrent.futures import ProcessPoolExecutor

import pytest
import seeds
import torch
from commands import ROOT
from lab_answers import judged, mistakes
from lab_attempts import solution_cells

from helpers import cuda, device, exercises
from helpers.exercises.lab02 import launchers
from helpers.exercises.lab02 import wrapper as lab_wrapper
from workbook.form.exercises import solutions_of


@pytest.fixture
def on_the_host(monkeypatch) -> None:
    """Without a GPU the host names block, thread and line; with one it would be hidden what is
    tested here.
    """
    monkeypatch.setattr(device, "has_gpu", lambda: False)


# -----------------------------------------------------------------------------------------------
# cover-a-matrix
def up(n, size):
    return -(-n // size)


def covered(across=lambda h, w, x, y: up(w, x), down=lambda h, w, x, y: up(h, y), idle=None):
    def answer(*args):
        height, width, x, y = args
        a, d = across(*args), down(*args)
        return a, d, idle(*args) if idle else a * x * d * y - height * width

    return answer


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (covered(lambda h, w, x, y: up(h, y), lambda h, w, x, y: up(w, x)), "x-for-rows"),
        (covered(lambda h, w, x, y: up(h, x), lambda h, w, x, y: up(w, y)), "x-for-rows"),
        (covered(lambda h, w, x, y: w // x, lambda h, w, x, y: h // y), "rounded-down"),
        (covered(lambda h, w, x, y: w // x + 1, lambda h, w, x, y: h // y + 1), "one-too-many"),
        (covered(idle=lambda h, w, x, y: 0), "idle"),
        (lambda h, w, x, y: up(w, x) * up(h, y), "no-tuple"),
        (lambda h, w, x, y: (7, 7, 7), "blocks"),
    ],
)
def test_a_wrong_cover_is_named(answer, mistake):
    assert mistakes("cover-a-matrix", answer) == {mistake}


def test_a_cover_by_negative_division_is_right():
    assert judged("cover-a-matrix", covered()).passed


# ------------------------------------------------------------------------------------------------- CUDA
# kernels
DIFFERENCE = """
__global__ void difference_kernel(const float* input, float* output, int height, int width) {{
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const long long index = static_cast<long long>(row) * width + col;
    {body}
}}
"""
SCALE_ROWS = """
__global__ void scale_rows_kernel(
    const float* input, const float* factor, float* output, int height, int width
) {{
    const long long n = static_cast<long long>(height) * width;
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    {body}
}}
"""
TRANSPOSE = """
__global__ void transpose_kernel(const float* input, float* output, int height, int width) {{
    {tile}
    for (int j = 0; j < {n}; j += 8) {{
        const int row = blockIdx.y * 32 + threadIdx.y + j, col = blockIdx.x * 32 + threadIdx.x;
        const long long at = static_cast<long long>(row) * width + col;
        if ({load_guard}) tile[threadIdx.y + j][threadIdx.x] = input[at];
        {inner}
    }}
    {barrier}
    for (int j = 0; j < {n}; j += 8) {{
        const int row = blockIdx.{down} * 32 + threadIdx.y + j, col = blockIdx.{across} * 32 + threadIdx.x;
        if ({store_guard}) output[static_cast<long long>(row) * height + col] = tile[{turned}];
    }}
}}
"""


def transpose(**parts: str) -> str:
    right = {
        "tile": "__shared__ float tile[32][32];",
        "n": "32",
        "load_guard": "row < height && col < width",
        "inner": "",
        "barrier": "__syncthreads();",
        "down": "x",
        "across": "y",
        "store_guard": "row < width && col < height",
        "turned": "threadIdx.x][threadIdx.y + j",
    }
    return TRANSPOSE.format(**{**right, **parts})


ONE_LINE = """
__global__ void transpose_kernel(const float* input, float* output, int height, int width) {
    const int col = blockIdx.x * 32 + threadIdx.x;
    for (int j = 0; j < 32; j += 8) {
        const int row = blockIdx.y * 32 + threadIdx.y + j;
        if (row < height && col < width) output[col * height + row] = input[row * width + col];
    }
}
"""
FLAT_TILE = """
__global__ void transpose_kernel(const float* input, float* output, int height, int width) {
    __shared__ float tile[32 * 33];
    const int x = threadIdx.x, across = blockIdx.x * 32, down = blockIdx.y * 32;
    for (int y = threadIdx.y; y < 32; y += blockDim.y) {
        if (down + y >= height || across + x >= width) continue;
        tile[x * 33 + y] = input[(long long)(down + y) * width + across + x];
    }
    __syncthreads();
    for (int y = threadIdx.y; y < 32 && across + y < width; y += blockDim.y)
        if (down + x < height) output[(long long)(across + y) * height + down + x] = tile[y * 33 + x];
}
"""
GUARDED = "if (row < height && col < width) "
NEIGHBOUR = "output[index] = col + 1 < width ? input[index + 1] - input[index] : 0.0f;"
# exercise, text, the mistake that the check must name; "" for a right one
KERNELS = {
    "no guard": ("fix-the-guard", DIFFERENCE.format(body=NEIGHBOUR), "missing-guard"),
    "columns guarded only": (
        "fix-the-guard",
        DIFFERENCE.format(body=f"if (col < width) {NEIGHBOUR}"),
        "missing-guard",
    ),
    "neighbour of the last column": (
        "fix-the-guard",
        DIFFERENCE.format(body=GUARDED + "output[index] = input[index + 1] - input[index];"),
        "neighbour",
    ),
    "last column never written": (
        "fix-the-guard",
        DIFFERENCE.format(
            body="if (row < height && col + 1 < width) output[index] = input[index + 1] - input[index];"
        ),
        "guard-too-strict",
    ),
    "the other sign": (
        "fix-the-guard",
        DIFFERENCE.format(
            body=GUARDED
            + NEIGHBOUR.replace("input[index + 1] - input[index]", "input[index] - input[index + 1]")
        ),
        "sign",
    ),
    "early return": (
        "fix-the-guard",
        DIFFERENCE.format(
            body="""if (row >= height || col >= width) return;
    float right = input[index];
    if (col != width - 1) right = input[index + 1];
    output[index] = right - input[index] + (right != right ? 0.0f : 0.0f) * 0.0f;
    if (col == width - 1) output[index] = 0.0f;"""
        ),
        "",
    ),
    "every thread writes everything": (
        "fix-the-guard",
        DIFFERENCE.format(
            body="for (long long at = 0; at < (long long)height * width; ++at) "
            "output[at] = at % width + 1 < width ? input[at + 1] - input[at] : 0.0f;"
        ),
        "many-writers",
    ),
    "by columns": (
        "rows-not-columns",
        SCALE_ROWS.format(
            body="if (i < n) { const long long at = i % height * width + i / height; output[at] = input[at] "
            "* factor[i % height]; }"
        ),
        "strided",
    ),
    "the column's factor": (
        "rows-not-columns",
        SCALE_ROWS.format(body="if (i < n) output[i] = input[i] * factor[i % width % height];"),
        "transposed",
    ),
    "no guard over rows": (
        "rows-not-columns",
        SCALE_ROWS.format(body="output[i] = input[i] * factor[i / width];"),
        "missing-guard",
    ),
    "divided by the height": (
        "rows-not-columns",
        SCALE_ROWS.format(
            body="if (i < n) { const long long at = i / height * width + i % height; output[at] = input[at] "
            "* factor[i / height]; }"
        ),
        "wrong-index",
    ),
    "first block only": (
        "rows-not-columns",
        SCALE_ROWS.format(body="if (i < 256 && i < n) output[i] = input[i] * factor[i / width];"),
        "unwritten",
    ),
    "in place": (
        "rows-not-columns",
        SCALE_ROWS.format(
            body="if (i < n) { float* mine = (float*)input; mine[i] *= factor[i / width]; output[i] = "
            "mine[i]; }"
        ),
        "changes-input",
    ),
    "grid-stride loop": (
        "rows-not-columns",
        SCALE_ROWS.format(
            body="for (long long k = i; k < n; k += (long long)gridDim.x * blockDim.x) output[k] = input[k] "
            "* factor[k / width];"
        ),
        "",
    ),
    "the lanes backwards": (
        "rows-not-columns",
        SCALE_ROWS.format(
            body="const long long k = i ^ 31; if (k < n) output[k] = input[k] * factor[k / width];"
        ),
        "",
    ),
    "one line": ("transpose-in-tiles", ONE_LINE, "strided"),
    "no barrier": ("transpose-in-tiles", transpose(barrier=""), "missing-barrier"),
    "barrier under a condition": (
        "transpose-in-tiles",
        transpose(inner="if (row < height && col < width) __syncthreads();", barrier=""),
        "barrier-in-if",
    ),
    "input's guard at the store": (
        "transpose-in-tiles",
        transpose(store_guard="row < height && col < width"),
        "unwritten",
    ),
    "eight rows of each tile": ("transpose-in-tiles", transpose(n="8"), "part-of-tile"),
    "not turned": ("transpose-in-tiles", transpose(turned="threadIdx.y + j][threadIdx.x"), "not-turned"),
    "tiles stay in place": ("transpose-in-tiles", transpose(down="y", across="x"), "tiles-in-place"),
    "no store guard": ("transpose-in-tiles", transpose(store_guard="true"), "missing-guard"),
    "an output row times width": (
        "transpose-in-tiles",
        transpose().replace("(row) * height + col", "(row) * width + col"),
        "wrong-index",
    ),
    "a tile of each thread's own": (
        "transpose-in-tiles",
        transpose(tile="float tile[32][32];"),
        "not-shared",
    ),
    "blockDim.y for 32": (
        "transpose-in-tiles",
        transpose().replace("blockIdx.y * 32 + threadIdx.y", "blockIdx.y * blockDim.y + threadIdx.y"),
        "eight-rows",
    ),
    "eight columns in a tile": (
        "transpose-in-tiles",
        transpose(tile="__shared__ float tile[32][8];"),
        "tile-too-small",
    ),
    "a flat tile, one row at a time": ("transpose-in-tiles", FLAT_TILE, ""),
    "without padding": ("transpose-in-tiles", transpose(), ""),
}


LAUNCHERS = {
    "fix-the-guard": launchers.DIFFERENCE,
    "rows-not-columns": launchers.SCALE_ROWS,
    "transpose-in-tiles": launchers.TRANSPOSE,
}


def _build(case: tuple[str, str, str]) -> None:
    id, text, _ = case
    launchers._load(LAUNCHERS[id], text, "emulator")


@pytest.fixture(scope="module")
def all_built() -> None:
    """All texts built for the host, two at a time: later builds in this process find them."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_build, KERNELS.values()))


@pytest.fixture
def built(all_built, on_the_host) -> None:
    """All texts built, and no GPU to be seen."""


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_get_the_right_verdict(built, name):
    id, text, mistake = KERNELS[name]
    found = judged(id, text)
    assert (found.passed, found.mistake) == (not mistake, mistake), found


@pytest.mark.parametrize("name", ["no guard", "neighbour of the last column"])
def test_without_a_gpu_the_thread_and_the_line_are_named(built, name):
    found = judged("fix-the-guard", KERNELS[name][1])
    thread = r"block \(\d, (\d)\), thread \(\d+, (\d+)\), line 6: reads element \d+ of `input`.*row is (\d+)"
    block_y, thread_y, row = map(int, re.search(thread, found.sentence).groups())
    assert row == block_y * int(re.search(r"blocks of \d+ × (\d+)", found.sentence)[1]) + thread_y
    assert KERNELS[name][1].splitlines()[5].strip() in found.details


def test_hints_for_strided_kernels_give_no_solution_away_and_name_the_right_rows(built):
    """The untouched starter of rows-not-columns is right and strided, so its hint must not solve it."""
    found = judged("rows-not-columns", KERNELS["by columns"][1])
    assert "32 sectors" in found.sentence and "12.5 %" in found.sentence
    assert not re.search(r"width|height|divi", found.hint)
    hint = judged("transpose-in-tiles", KERNELS["one line"][1]).hint
    assert "a row of the input" in hint and "a row of the output" in hint and "of the tile" not in hint


def test_no_replay_in_the_lab_depends_on_the_learners_source():
    own = {one.name for one in exercises.of_lab("02_load_inline")}
    calls = [
        node
        for id, source in solution_cells("02_load_inline").items()
        if id != "setup"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "measured"
    ]
    assert len(calls) == 2
    for call in calls:
        sources = [keyword.value for keyword in call.keywords if keyword.arg == "sources"]
        named = {node.id for one in sources for node in ast.walk(one) if isinstance(node, ast.Name)}
        assert not named & own


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "a string"),
        ("__global__ void another_kernel(float* x) {}", "no kernel"),
        (DIFFERENCE.format(body="output[index] = inptu[index];"), "inptu"),
    ],
)
def test_source_that_cannot_be_built_is_explained(on_the_host, text, said):
    found = judged("fix-the-guard", text)
    assert not found.passed
    assert said in f"{found.sentence} {found.details} {found.hint}"


def test_a_starters_error_line_is_still_to_do(on_the_host):
    text = transpose().replace("__syncthreads();", '#error "a tile in, a barrier"\n')
    found = judged("transpose-in-tiles", text)
    assert found.mistake == "to-do"
    assert found.sentence == "transpose-in-tiles is not written yet: a tile in, a barrier"


def test_the_memory_use_counts_a_padding_free_transpose_as_rows(built):
    made = launchers.load("transpose", KERNELS["without padding"][1])
    assert launchers.memory_use(launchers.traced(made, 64, 64)) == {
        "input": (4.0, 100.0),
        "output": (4.0, 100.0),
    }
    assert cuda.info(made.on_host()).emulated


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name",
    [
        "early return",
        "grid-stride loop",
        "without padding",
        "columns guarded only",
        "neighbour of the last column",
        "by columns",
        "no barrier",
        "tiles stay in place",
    ],
)
def test_on_a_gpu_the_same_kernels_pass_and_fail(name):
    id, text, mistake = KERNELS[name]
    found = judged(id, text)
    assert found.passed == (not mistake), found


# ------------------------------------------------------------------------------------------
# refuse-wrong-tensors
def wrapper(
    *,
    leave_out: str = "",
    error: type[Exception] = ValueError,
    messages: bool = True,
    contiguous=lambda x: x.is_contiguous(),
    early=False,
    empty=True,
    out=torch.empty_like,
    launches=1,
    order=("height", "width"),
    result=lambda x, y: y,
):
    """The right wrapper with one of its parts changed."""

    def difference(x, on, launch):
        def ask(what, right, message):
            if leave_out != what and not right:
                raise error(message if messages else "")

        ask("type", isinstance(x, torch.Tensor), "x is not a tensor")
        if early and x.numel() == 0:
            return torch.empty_like(x)
        ask("device", x.device.type == on, f"x is on {x.device}")
        ask("dtype", x.dtype == torch.float32, f"x is {x.dtype}")
        ask("dim", x.dim() == 2, f"x has {x.dim()} dimensions")
        ask("contiguous", contiguous(x), "x is not contiguous")
        y = out(x)
        height, width = (*x.shape, 1, 1)[:2]
        sizes = {"height": height, "width": width}
        if x.numel() or not empty:
            for _ in range(launches):
                launch(x.data_ptr(), y.data_ptr(), *(sizes[name] for name in order))
        return result(x, y)

    return difference


def asserts(x, on, launch):
    assert isinstance(x, torch.Tensor), "not a tensor"
    return wrapper()(x, on, launch)


def through_itself(x, on, launch):
    return wrapper(out=lambda t: t)(x, on, launch)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (wrapper(leave_out="type"), "falls-over"),
        (wrapper(leave_out="device"), "lets-through"),
        (wrapper(leave_out="dtype"), "lets-through"),
        (wrapper(leave_out="dim"), "lets-through"),
        (wrapper(leave_out="contiguous"), "lets-through"),
        (asserts, "assert"),
        (wrapper(error=KeyError), "falls-over"),
        (wrapper(messages=False), "message"),
        (wrapper(contiguous=lambda x: x.stride() == (x.shape[1], 1)), "refuses-right"),
        (wrapper(contiguous=lambda x: x.is_contiguous() and x.storage_offset() == 0), "refuses-right"),
        (wrapper(contiguous=lambda x: x.numel() and x.is_contiguous()), "refuses-right"),
        (wrapper(early=True), "lets-through"),
        (wrapper(empty=False), "empty"),
        (through_itself, "launch"),
        (wrapper(order=("width", "height")), "wrong-result"),
        (wrapper(launches=2), "launches"),
        (wrapper(result=lambda x, y: None), "no-result"),
        (wrapper(result=lambda x, y: x), "returns-input"),
        (wrapper(result=lambda x, y: y.flatten()), "no-result"),
        (lambda x, on, launch: wrapper()(x, on, lambda *a: launch(*a[:1], 4096, *a[2:])), "launch"),
        (lambda x, on, launch: wrapper()(x, on, lambda a, b, *s: launch(b, a, *s)), "changes-input"),
    ],
)
def test_a_wrong_wrapper_is_named(answer, mistake):
    found = mistakes("refuse-wrong-tensors", answer, seeds.several(4))
    assert found == {mistake}


@pytest.mark.parametrize(
    "answer",
    [
        wrapper(),
        wrapper(error=TypeError),
        wrapper(error=RuntimeError),
        wrapper(out=lambda x: torch.full(x.shape, 7.0, device=x.device)),
    ],
)
def test_right_wrappers_are_accepted(answer):
    assert mistakes("refuse-wrong-tensors", answer, seeds.several(4)) == {""}


def test_a_missing_dtype_check_is_shown_with_a_nonempty_matrix():
    cases = {judged("refuse-wrong-tensors", wrapper(leave_out="dtype"), seed).case for seed in range(6)}
    assert not any("empty" in case for case in cases)


def test_every_wrong_tensor_is_tried():
    labels = {case.label for case in lab_wrapper.cases(random.Random(0), "cpu")}
    assert labels == {*lab_wrapper.WRONG, *lab_wrapper.RIGHT}


# -----------------------------------------------------------------------------------------------
# Inside the lesson
def in_the_lesson(id: str, old: str = "", new: str = ""):
    """The solution of one of the lesson's exercises, with a replacement."""
    source = solutions_of(ROOT / "notebooks" / "02_load_inline.ipynb")[id]
    assert old in source
    names: dict = {"torch": torch, "load_kernel": cuda.load_kernel, "check": lambda *args: None}
    exec(source.replace(old, new), names)
    return names[exercises.get(id).name]


@pytest.mark.parametrize(
    ("id", "old", "new", "mistake"),
    [
        ("cube-elements", "", "", ""),
        ("cube-elements", "x[i] * x[i] * x[i]", "x[i] * x[i]", "squared"),
        ("cube-elements", "if (i < n) ", "", "missing-guard"),
        ("cube-elements", "(n + 255) // 256", "max(1, n // 256)", "rounded-down"),
        ("mirror-columns", "", "", ""),
        ("mirror-columns", "if (row < height && col < width)", "", "missing-guard"),
        ("mirror-columns", "start + width - 1 - col", "(height - 1 - row) * width + col", "rows"),
        ("mirror-columns", "start + width - 1 - col", "start + col", "copy"),
        ("mirror-columns", "(height + 15) // 16", "1", "uncovered"),
        ("rotate-blocks", "", "", ""),
        ("rotate-blocks", "    __syncthreads();\n", "", "missing-barrier"),
        ("rotate-blocks", "(t + 1) % 256", "t + 1", "past-the-tile"),
        ("rotate-blocks", "(t + 1) % 256", "t", "copy"),
        ("rotate-blocks", "(t + 1) % 256", "(t + 255) % 256", "other-way"),
    ],
)
def test_the_lessons_kernels(on_the_host, id, old, new, mistake):
    assert mistakes(id, in_the_lesson(id, old, new), range(2)) == {mistake}


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ("", "", ""),
        ("-(-n_bytes // (4 * n_threads))", "n_bytes // (4 * n_threads)", "rounded-down"),
        ("-(-n_bytes // (4 * n_threads))", "n_bytes / (4 * n_threads)", "fraction"),
        ("(4 * n_threads)", "n_threads", "bytes"),
        ("(4 * n_threads)", "4", "total"),
        ("gb_per_s * latency_ns", "10**9 * gb_per_s * latency_ns", "little"),
    ],
)
def test_the_lessons_loads_per_thread(old, new, mistake):
    assert mistakes("loads-per-thread", in_the_lesson("loads-per-thread", old, new)) == {mistake}
