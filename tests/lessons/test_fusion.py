"""What lessons 06 and 09 share: softmaxes checked, named launches, generated kernels, the league, sliders."""

from __future__ import annotations

import itertools
import json

import pandas as pd
import pytest
import torch
from commands import ROOT
from slider_driver import Sliders

from helpers import check, device, trace, widgets
from helpers.lessons import fusion, generated
from helpers.widgets import measure, softmax
from helpers.widgets.softmax import ONE_BLOCK, ONLINE, PLANNED, SPACE
from helpers.widgets.space import COMPILED, Refused
from helpers.widgets.square import SPACES
from helpers.widgets.table import Table


def softmax_five(x):
    largest = x.max(dim=1, keepdim=True).values
    powers = (x - largest).exp()
    return powers / powers.sum(dim=1, keepdim=True)


# ------------------------------------------------------------------------------------------- checked and
# timed


def test_a_softmax_that_is_a_little_wrong_in_wide_rows_is_found():
    assert fusion.check_softmax(softmax_five, shapes=[(2, 5000)])
    # 1e-6 is nothing beside check's usual tolerance, and half of an element here
    with pytest.raises(check.Mismatch):
        fusion.check_softmax(lambda x: softmax_five(x) + 1e-6, shapes=[(2, 500_000)])


def test_awkward_rows_find_a_softmax_that_does_not_subtract_and_one_that_hides_nan():
    def plain(x):
        return x.exp() / x.exp().sum(dim=1, keepdim=True)

    awkward = {"shapes": [(6, 40)], "make_inputs": fusion.awkward_rows}
    assert fusion.check_softmax(softmax_five, **awkward)
    for wrong in (plain, lambda x: torch.softmax(x, dim=1).nan_to_num()):
        with pytest.raises(check.Mismatch):
            fusion.check_softmax(wrong, **awkward)


def test_the_curve_leaves_out_what_no_block_holds_and_what_is_too_narrow(monkeypatch):
    monkeypatch.setattr(fusion, "time_softmax", lambda name, f, shape: {"kernel": name, "shape": shape})
    kernels = dict.fromkeys(("one block", "online", "split"), fusion.torch_softmax)
    rows = fusion.softmax_curve(kernels, 2**19, (1024, 2**18), narrowest={"split": 32768})
    assert [(r["kernel"], *r["shape"]) for r in rows] == [
        ("one block", 512, 1024),
        ("online", 512, 1024),
        ("online", 2, 2**18),
        ("split", 2, 2**18),
    ]


def test_compiled_functions_are_compiled_again_for_each_size(monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda f, dynamic: compiled.append((f, dynamic)) or f)
    monkeypatch.setattr(fusion, "time_softmax", lambda name, f, shape: {"kernel": name})
    forms = {"torch.compile, amax": fusion.torch_softmax, "online": softmax_five}
    fusion.softmax_curve(forms, 2**12, (64, 128))
    assert compiled == [(fusion.torch_softmax, False)] * 2


# ------------------------------------------------------------------------------------------- named launches


def test_a_range_may_be_open_when_its_kernel_starts():
    path = ROOT / "helpers/records/h100/fusion/named.json.gz"
    launches = fusion.named_launches(trace.load_trace(path))
    assert list(launches.range) == ["1 max", "2 subtract", "3 exp", "4 sum", "5 divide", "one kernel"]
    assert launches.still_open.sum() == 4  # "is over before the kernel runs" was said of all of them
    assert launches.kernel.iloc[-1] == "softmax_rows_kernel"
    # "four elements are four loads" was said of a kernel whose threads handle two
    assert launches.kernel.iloc[[1, 4]].str.contains("elementwise_kernel<128, 2,", regex=False).all()


def test_a_kernel_belongs_to_the_range_of_its_launch(tmp_path):
    def event(cat, name, ts, dur, **args):
        tid = 7 if cat == "kernel" else 1
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}

    events = [
        event("user_annotation", "ProfilerStep#1", 0, 100),
        event("user_annotation", "first", 1, 9),
        event("cuda_runtime", "cudaLaunchKernel", 2, 1, correlation=1),
        event("user_annotation", "idle", 12, 2),
        event("user_annotation", "second", 20, 5),
        event("cuda_driver", "cuLaunchKernelEx", 21, 1, correlation=2),
        event("kernel", "late", 60, 3, correlation=1),
        event("kernel", "soon", 23, 3, correlation=2),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    launches = fusion.named_launches(trace.load_trace(path))
    assert list(zip(launches.range, launches.kernel, launches.still_open, strict=True)) == [
        ("first", "late", False),
        ("second", "soon", True),
    ]


# ------------------------------------------------------------------------------------------- generated code


GENERATED = """async_compile.triton('triton_red_fused_0', '''
import triton

@triton_heuristics.reduction(size_hints={'x': 1024})
@triton.jit
def triton_red_fused_0(in_ptr0, out_ptr0, XBLOCK : tl.constexpr):
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        tmp0 = tl.load(in_ptr0 + (r0_1), xmask)

    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        tmp1 = tl.load(in_ptr0 + (r0_1), xmask)
        tl.store(out_ptr0 + (r0_1), tmp1, xmask)
''', device_str='cuda')
"""


def test_the_passes_of_a_generated_kernel_are_counted():
    (kernel,) = generated.kernel_texts(GENERATED)
    assert kernel.startswith("@triton.jit\ndef triton_red_fused_0(") and "async_compile" not in kernel
    assert generated.count_passes(kernel) == (2, 1)
    assert len(generated.kernel_texts(GENERATED * 2)) == 2
    with pytest.raises(ValueError, match="Triton"):
        generated.kernel_texts("def call(args): pass")


@pytest.mark.gpu
def test_one_word_costs_a_pass_over_the_matrix():
    def amax(x):
        powers = (x - x.amax(dim=1, keepdim=True)).exp()
        return powers / powers.sum(dim=1, keepdim=True)

    forms = {softmax_five: (3, 1), amax: (2, 1), fusion.torch_softmax: (2, 1)}
    for f, passes in forms.items():
        (kernel,) = generated.kernel_texts(generated.by_compile(f, (1024, 65536)))
        assert generated.count_passes(kernel) == passes, kernel


# ------------------------------------------------------------------------------------------- picture and
# league


def test_the_picture_shows_every_column_once():
    fig = fusion.draw_holders(n_rows=3, n_cols=6, block=2, parts=3)
    for panel, width in (("x", 8), ("x2", 6), ("x3", 6)):
        for row in range(3):
            pieces = sorted((t.base[0], t.x[0]) for t in fig.data if t.xaxis == panel and t.y[0] == row)
            assert [start for start, _ in pieces] == [
                sum(w for _, w in pieces[:i]) for i in range(len(pieces))
            ]
            assert sum(w for _, w in pieces) == width
    assert len({t.marker.color for t in fig.data if t.xaxis == "x3" and t.y[0] == 0}) == 3
    with pytest.raises(ValueError, match="7 columns are not a multiple"):
        fusion.draw_holders(n_cols=7)


def league(**ratios):
    rows = [
        {"op": "softmax", "dtype": "float32", "n_rows": 4, "n_cols": 8, "contestant": name}
        | {"ours_ratio": r, "ratio_low": r and r - 0.01, "ratio_high": r and r + 0.01}
        for name, r in ratios.items()
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("ratios", "best", "fastest"),
    [
        ({"ours": 1.0, "copy": 0.9, "eager": 1.5, "quack": 0.97}, "quack", "quack"),
        ({"ours": 1.0, "eager": 1.5, "quack": 1.02}, "quack", "ours"),
        ({"ours": 1.0, "eager": 1.005, "liger": None}, "eager", "no difference seen"),
    ],
)
def test_who_wins(ratios, best, fastest):
    (row,) = fusion.league_gaps(league(**ratios)).itertuples()
    assert (row.best_peer, row.fastest) == (best, fastest)


def test_a_league_without_peers_is_an_error():
    with pytest.raises(ValueError, match="no point"):
        fusion.league_gaps(league(ours=1.0, copy=0.9))


def test_eager_softmax_falls_and_rises_with_the_width():
    rows = json.loads((ROOT / "helpers/records/h100/fusion/league.json").read_text())["cases"][-1]["rows"]
    fp32 = {"op": "softmax", "dtype": "float32", "contestant": "eager"}
    eager = [r for r in rows if fp32.items() <= r.items() and r["n_rows"] * r["n_cols"] < 2**29]
    of_copy = {r["n_cols"]: r["of_copy"] for r in eager}
    # "and further down from there" was said of all widths above 4,096
    assert of_copy[8320] < of_copy[12288] < of_copy[16384] > of_copy[32768]


# ------------------------------------------------------------------------------------------- sliders


@pytest.fixture
def table() -> Table:
    """Made-up rows: a figure for each kernel and point, "refused" where one block has too much
    for a thread.
    """
    spec = device.GpuSpec("H100", (9, 0), 132, 32, 2048, 32, 65536, 233472, 1, 1, 3352.0, 3000.0)
    table = Table(SPACE, spec, live=False, date="2026-11-21")
    for i, (kernel, point) in enumerate(SPACE.points()):
        row = {"kernel": kernel, **{axis: point.get(axis) for axis in SPACE.axes}, "reason": ""}
        row |= {"median_us": 100.0, "ci_low_us": 99.0, "ci_high_us": 101.0, "gb_per_s": 1000.0 + i}
        if kernel == ONE_BLOCK and point["n_cols"] // point["num_warps"] > 32 * 256:
            row |= {"verdict": "refused", "reason": "too much for a thread", "gb_per_s": None}
        else:
            row["verdict"] = "ok"
        facts = {"threads": 512, "registers": 40, "spill_bytes": 0, "shared_bytes": 0}
        facts |= {"loads": 4, "load_bytes": 16}
        table.rows[SPACE.key(kernel, row)] = row | facts
    return table


@pytest.mark.parametrize("form", ["widgets", "plain"])
def test_softmax_sliders_show_each_points_figure(table, form, monkeypatch):
    monkeypatch.setenv("WORKBOOK_WIDGETS", form)
    shown = widgets.explore(SPACE, table=table, n_cols=8320)
    assert all(kernel in repr(shown) for kernel in (ONE_BLOCK, ONLINE, PLANNED))
    sliders = Sliders(shown)
    for n_cols, warps in itertools.product((256, 65536), (4, 32)):
        sliders.move(n_cols=n_cols, num_warps=warps)
        for kernel in (ONE_BLOCK, ONLINE, PLANNED):
            row = table.row(kernel, {"n_cols": n_cols, "num_warps": warps, "dtype": "float32"})
            drawn = sliders.row(kernel)["v"]
            assert drawn == (pytest.approx(row["gb_per_s"], abs=0.1) if row["verdict"] == "ok" else None)
    assert "softmax of 4,032 × 8,320 bfloat16" in sliders.data["titles"].values()
    assert sliders.data["titles"]["0,0"] == f"softmax of {2**17:,} × 256 float32"


def test_every_matrix_has_the_same_number_of_elements():
    assert SPACE.rows(1024) == 32768 and SPACE.rows(8320) * 8320 == pytest.approx(2**25, rel=1e-3)
    assert SPACE.n_blocks({"kernel": ONE_BLOCK, "n_cols": 1024}) == 32768
    assert all(space.rows(781) == 4096 for space in SPACES.values())


def test_one_block_refuses_too_many_elements_per_thread():
    with pytest.raises(Refused, match="1,024"):
        softmax.candidate(ONE_BLOCK, {"n_cols": 32768, "num_warps": 1, "dtype": "float32"})


@pytest.mark.parametrize("space", [SPACE, SPACES["launch"]])
def test_compiled_bfloat16_needs_native_support(space, monkeypatch):
    import torch

    point = {"n_cols": 1024, "dtype": "bfloat16"}
    native = {"says": False}
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native["says"])
    with pytest.raises(Refused, match="bfloat16"):
        space.candidates(COMPILED, point)
    assert space.candidates(COMPILED, {**point, "dtype": "float32"})
    native["says"] = True
    assert space.candidates(COMPILED, point)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [*SPACE.mapped, *SPACE.rivals])
def test_a_point_is_checked_and_timed(kernel):
    point = {"n_cols": 8320, "num_warps": 16, "dtype": "float32"}
    row = measure.measure(SPACE, kernel, point)
    assert row["verdict"] == "ok", row["reason"]
    assert row["ci_low_us"] <= row["median_us"] <= row["ci_high_us"]
    assert (row["registers"] is not None) == (kernel in SPACE.mapped)
