"""Lessons 02 and 08: what the generic notebook tests do not cover: their kernels, launchers on the host, what
they say.
"""

from __future__ import annotations

import math
import re

import pytest
import torch
from commands import ROOT, cells
from torch.utils import cpp_extension

from helpers import check, cuda, ptx
from helpers.cuda.emulator import checked
from helpers.kernels import source
from helpers.lessons import failures, grid
from helpers.lessons import ladder as rungs

KERNELS = source.read_kernels(ROOT / "helpers" / "kernels")


@pytest.fixture(scope="module")
def builds() -> dict[str, str]:
    """The cells of lesson 08."""
    return cells("notebooks/08_builds.ipynb")


# The kernels' files


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("file", ["square.cu", "gelu.cu"])
def test_kernel_file_compiles_without_nvcc_or_gpu(file, target):
    ptx = cuda.compile_ptx((ROOT / "helpers" / "kernels" / file).read_text(), target=target)
    assert ptx.count(".entry") == {"square.cu": 1, "gelu.cu": 3}[file]


def test_gelu_is_slow_in_two_steps():
    """Fact of lesson 02: the double literals are one cause, `pow` is another."""
    texts = re.findall(r"__global__ void gelu_\w+.*?\n}", KERNELS["gelu"][1], re.DOTALL)
    doubles = {
        re.search(r"gelu_(\w+)_kernel", t)[1]: len(re.findall(r"\w\.f64", cuda.compile_ptx(t))) for t in texts
    }
    assert list(doubles) == ["float", "double", "pow"]
    assert doubles["float"] == 0 and doubles["pow"] > 2 * doubles["double"] > 0
    plain = re.sub(r"(?<=\d)f\b", "", texts[0]).replace("gelu_float", "gelu_double")
    assert plain == texts[1]  # the same text without an f


def test_wrapper_makes_every_check_before_it_launches():
    wrapper = KERNELS["square_matrix_wrapper"][1]
    launch = wrapper.index("<<<")
    for needed in ("is_cuda()", "kFloat32", "is_contiguous()", "CUDAGuard", "numel() == 0", "- 1) / block.x"):
        assert -1 < wrapper.find(needed) < launch, needed
    assert "getCurrentCUDAStream()>>>" in wrapper
    assert wrapper.index("C10_CUDA_KERNEL_LAUNCH_CHECK") > launch


# The lesson's launcher, built for the host


@pytest.fixture(scope="module")
def on_host(builds):
    """The lesson's launcher with the kernel and with three wrong ones, in one build."""
    launcher = re.search(r'SQUARE_RAW = r"""\n(.*?)"""', builds["build-raw"], re.DOTALL)[1]
    kernel = KERNELS["square_matrix"][1]
    variants = {
        "right": kernel,
        "transposed": kernel.replace("output[index] =", "output[col * height + row] ="),
        "narrow": kernel.replace("col < width", "col < width - 1"),
        "unguarded": kernel.replace("if (row < height && col < width) {", "{"),
    }
    assert len(set(variants.values())) == len(variants), (
        "the kernel's text has changed: write the wrong ones again"
    )
    text = ""
    for name, variant in variants.items():
        text += (
            (variant + "\n" + launcher)
            .replace("square_matrix_kernel", f"{name}_kernel")
            .replace("square_raw", name)
        )
    return cuda.load_cuda("square_variants", text, list(variants), torch_headers=False, device="emulator")


def square_by(launch, bx=16, by=16):
    def square(x):
        y = torch.empty_like(x)
        said = launch(x.data_ptr(), y.data_ptr(), *x.shape, bx, by, 0)
        assert said == ("no error" if x.numel() else "invalid configuration argument")
        return y

    return square


@pytest.mark.parametrize("block", [(16, 16), (32, 8), (256, 1), (1, 256)])
def test_square_matrix_is_right_for_every_block_shape(on_host, block):
    shapes = [(0, 5), (1, 1), (17, 33), (3, 781), (257, 31)]
    check.assert_matches(
        square_by(on_host.right, *block), torch.square, shapes=shapes, device="cpu", name="right"
    )


@pytest.mark.parametrize(("name", "says"), [("transposed", "elements differ"), ("narrow", "never written")])
def test_wrong_kernels_are_rejected(on_host, name, says):
    # not a square, so that exchanged indices show; no whole number of blocks
    with pytest.raises(check.Mismatch, match=says):
        check.assert_matches(
            square_by(getattr(on_host, name)), torch.square, shapes=[(15, 31)], device="cpu", name=name
        )


@pytest.mark.parametrize(("height", "width", "behind"), [(30, 50, 114), (32, 48, 0), (1, 1, 30)])
def test_missing_guard_writes_behind_the_matrix(on_host, height, width, behind):
    source, memory = torch.rand(8192) + 1, torch.full((8192,), -1.0)
    on_host.unguarded(source.data_ptr(), memory.data_ptr(), height, width, 16, 16, 0)
    n = height * width
    assert torch.equal(memory[:n], source[:n] ** 2)
    assert int((memory[n:] != -1).sum()) == behind


@pytest.mark.parametrize(("height", "width"), [(30, 50), (1, 1)])
def test_missing_guard_is_an_error_at_the_end_of_memory(on_host, height, width):
    x, y = torch.rand(height, width), torch.empty(height, width)
    with pytest.raises(checked.EmulatorError, match=r"line \d+: reads element .* of `input`"):
        on_host.unguarded(x.data_ptr(), y.data_ptr(), height, width, 16, 16, 0)


# The broken kernel of lesson 08 whose verdict by compute-sanitizer is the corpus's


def test_lesson_08_shows_a_kernel_of_the_corpus(builds):
    names: dict = {}
    exec(builds["two-broken"].split("half_loaded = ")[0], names)
    corpus = re.sub(r"\s*// BROKEN", "", (ROOT / "tests" / "cuda_corpus" / "broken.cu").read_text())
    assert names["HALF_LOADED"].strip() in corpus


# What the lessons say of torch's builds


def test_within_a_process_unchanged_text_starts_no_ninja(tmp_path, monkeypatch):
    """Lesson 02: a new process starts ninja, the second call of a process does not."""
    started = []
    monkeypatch.setattr(
        cpp_extension, "_write_ninja_file_and_build_library", lambda **given: started.append(given["name"])
    )
    monkeypatch.setattr(cpp_extension, "_import_module_from_library", lambda *given: None)
    monkeypatch.setattr(cpp_extension, "JIT_EXTENSION_VERSIONER", cpp_extension.ExtensionVersioner())
    (tmp_path / "one.cpp").write_text("int one() { return 1; }")
    for _ in range(2):
        cpp_extension.load("one", [str(tmp_path / "one.cpp")], build_directory=str(tmp_path))
    assert started == ["one"]
    (tmp_path / "one.cpp").write_text("int one() { return 2; }")
    cpp_extension.load("one", [str(tmp_path / "one.cpp")], build_directory=str(tmp_path))
    assert len(started) == 2


# Lesson 02's ladder


@pytest.fixture(scope="module")
def ladder() -> dict[str, str]:
    return cells("notebooks/02_load_inline.ipynb")


def texts_of(cells_of_02) -> dict:
    names: dict = {}
    for id in ("rung-kernels", "rung-wide"):
        exec(cells_of_02[id], names)
    return names


def test_every_rung_is_right_at_every_block_size(ladder):
    square = rungs.build(texts_of(ladder)["RUNGS"])
    where = "cuda" if torch.cuda.is_available() else "cpu"
    for n in (0, 1, 3, 4, 127, 128, 129, 1023, 1025, 4099):
        x = torch.randn(n + 1, device=where)
        for part in (x[:-1], x[1:]):  # the second begins at no multiple of 16 bytes
            for rung in range(len(rungs.NAMES)):
                for threads in (32, 128, 1024):
                    got = square(part, rung, threads)
                    assert torch.equal(got, part.square()), (n, rung, threads)
    with pytest.raises(ValueError, match="contiguous"):
        square(torch.ones(4, 4, device=where)[:, ::2], 0, 32)


def test_loads_under_way_by_littles_law():
    assert rungs.loads_under_way(4, 2000, sm_count=100, threads_per_sm=2000) == (3.2, 3200)


def test_the_requests_of_a_rung(ladder):
    """What the picture of lesson 02 shows: sectors a load."""
    text, asked = texts_of(ladder)["RUNGS"], {}
    for name in ("in_turn", "neighbours", "float4"):
        kernel = cuda.load_kernel(text, f"{name}_kernel", device="emulator")
        x, y = torch.rand(128), torch.empty(128)
        asked[name] = grid.trace(lambda k=kernel, x=x, y=y: k(x, y, 128, grid=1, block=32))
    figure = grid.draw_requests(asked, "x")
    rows = list(figure.data[0].y)
    assert rows[0] == "in_turn, load 1: 4 sectors" and rows[4] == "neighbours, load 1: 16 sectors"
    assert rows[8:] == ["float4, load 1: 16 sectors"]
    lanes = figure.data[0].z
    assert list(lanes[4][:8]) == pytest.approx(
        [0, math.nan, math.nan, math.nan, 1, math.nan, math.nan, math.nan], nan_ok=True
    )
    assert list(lanes[8][:8]) == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_restrict_moves_loads_ahead_of_stores(ladder, target):
    """Lesson 02 prints it for an H100 and asks which loads `__restrict__` moves ahead."""
    names = texts_of(ladder)
    exec(ladder["rung-order"].split("\nfor ")[0], names)
    text = names["RUNGS"] + names["FIXED"]
    arguments = "in_turn_kernel(const float* x, float* y,"
    assert arguments in text
    promised = text.replace(arguments, "in_turn_kernel(const float* __restrict__ x, float* __restrict__ y,")

    def order(text: str, kernel: str) -> list[str]:
        return re.findall("LDG|STG", ptx.cuda_stages(text, target=target, kernel=kernel).sass)

    assert order(text, "in_turn_kernel") == ["LDG", "STG"] * 4
    assert order(text, "loads_first_kernel") == ["LDG"] * 4 + ["STG"] * 4
    ahead = order(promised, "in_turn_kernel")
    assert sorted(ahead) == ["LDG"] * 4 + ["STG"] * 4 and ahead[:2] == ["LDG", "LDG"]


# failures.run_steps


def test_steps_share_names_and_continue_after_an_exception():
    outcomes = failures.run_steps(
        [
            ("one", "x = 1"),
            ("two", "raise ValueError('first line\\nsecond')"),
            ("three", "assert x == 2, x"),
            ("four", "x"),
        ]
    )
    assert [(o.step, o.error, o.first_line) for o in outcomes] == [
        ("one", None, "no error"),
        ("two", "ValueError", "first line"),
        ("three", "AssertionError", "1"),
        ("four", None, "no error"),
    ]
    assert outcomes[1].message == "first line\nsecond"


def test_a_process_that_dies_is_reported_with_its_step():
    outcomes = failures.run_steps([("before", "pass"), ("abort", "import os; os.abort()"), ("after", "pass")])
    assert [o.error for o in outcomes] == [None, "ProcessDied", "ProcessDied"]
    assert "exit status -6" in outcomes[1].message
    assert "not reached" in outcomes[2].message


def test_the_environment_only_changes_for_the_steps(monkeypatch):
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    code = "import os; raise RuntimeError(os.environ.get('CUDA_LAUNCH_BLOCKING'))"
    (outcome,) = failures.run_steps([("look", code)], environment={"CUDA_LAUNCH_BLOCKING": "1"})
    assert outcome.message == "1"
    (outcome,) = failures.run_steps([("look", code)])
    assert outcome.message == "None"


def test_a_process_that_hangs_is_stopped():
    with pytest.raises(TimeoutError, match=r"hang .* 1 s"):
        failures.run_steps([("hang", "import time; time.sleep(60)")], timeout_s=1)


def test_no_steps():
    with pytest.raises(ValueError, match="pass at least one"):
        failures.run_steps([])
