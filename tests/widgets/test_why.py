"""Two kernels side by side by their counters: what is said follows from them, and where they do not say, that
is said.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from commands import ROOT, environment

from helpers import device, ncu, widgets
from helpers.records.origin import live_provenance
from helpers.widgets import counters, why
from helpers.widgets.differences import Side
from helpers.widgets.own import Asked, own_space
from helpers.widgets.square import LAUNCH
from helpers.widgets.table import Table

GRIDS = ncu.load_report(ROOT / "helpers" / "records" / "h200" / "ncu" / "five-grids.ncu-rep")
SPEC = device.GpuSpec("H200", (9, 0), 132, 32, 2048, 32, 65536, 233472, 1, 1, 4253.0, 3000.0)
MINE, RIVAL = "Triton rows", "torch.square"


@triton.jit
def double_kernel(y_ptr, x_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def double(x, BLOCK_SIZE):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), BLOCK_SIZE),)](y, x, x.numel(), BLOCK_SIZE=BLOCK_SIZE)
    return y


def twice(x):
    return x + x


COUNTED = {
    "ncu_us": 40.0,
    "read_bytes": 67e6,
    "write_bytes": 60e6,
    "instructions": 2e6,
    "load_requests": 1e5,
    "load_sectors": 2e6,
    "store_requests": 1e5,
    "store_sectors": 2e6,
    "dram_percent": 90.0,
    "l2_percent": 80.0,
    "issue_percent": 10.0,
    "occupancy_percent": 90.0,
    "waves": 4.0,
    "launches": 1,
    "stalls": "long_scoreboard 84.6, drain 3.0",
}
ROW = {
    "verdict": "ok",
    "median_us": 40.0,
    "ci_low_us": 39.9,
    "ci_high_us": 40.1,
    "gb_per_s": 3000.0,
    "loads": 4,
    "load_bytes": 16,
    "spill_bytes": 0,
    "registers": 26,
}


def side(
    name: str, us: float = 40.0, facts: dict | None = None, blocks: int | None = None, **counted: object
) -> Side:
    counters = COUNTED | {"ncu_us": us} | counted
    return Side(name, ROW | {"median_us": us} | (facts or {}), counters, blocks=blocks, sm_count=132)


@pytest.mark.parametrize(
    ("slow", "says"),
    [
        ({"read_bytes": 134e6, "write_bytes": 120e6}, "2.00 × the bytes through DRAM, which is the "
                                                      "difference"),
        ({"read_bytes": 134e6, "write_bytes": 120e6, "dram_percent": 50.0}, "2.00 × the bytes through DRAM."),
        ({"facts": {"spill_bytes": 96}}, "96 bytes a thread spilled, against 0"),
        ({"load_sectors": 4e6}, "1.50 × the sectors"),
        ({"blocks": 40}, "its 40 blocks leave 92 of 132 SMs without one"),
        ({"waves": 31.0}, "the same work in 31.0 waves of blocks against 4.0"),
        ({"waves": 8.0, "occupancy_percent": 9.0, "facts": {"loads": None}}, "9 % of the warps resident "
                                                                             "against 90 %; the same work "
                                                                             "in 8.0 waves"),
        ({"facts": {"loads": None}, "load_requests": 4e5}, "a warp's load asks for 160 bytes against 640"),
        ({"facts": {"load_bytes": 4}, "dram_percent": 45.0}, "its resident warps can have 0.25 × as many "
                                                             "bytes on their way"),
        ({"load_sectors": 8e5, "facts": {"threads": 256}, "blocks": 4096}, "can have 0.38 × as many bytes "
                                                                           "on their way"),
        ({"instructions": 8e6, "issue_percent": 88.0}, "4.00 × the instructions, with the schedulers "
                                                       "issuing in 88 % of all cycles against 10 %"),
        ({"ncu_us": 41.0}, "but 1.02 × in the run that was counted (a took 41.0 µs there and 80.0 in the "
                           "bars): the counters cannot"),
        ({}, "these counters do not say why"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mine_is_slow", [True, False])
def test_the_sentence_names_what_differs_and_nothing_else(slow, says, mine_is_slow):
    slower, faster = side("a", 80.0, **slow), side("b")
    said = why.sentence(*((slower, faster) if mine_is_slow else (faster, slower)))
    assert said.startswith("a takes 2.00 × the time of b") and says in said
    assert said.count(";") == (1 if "do not say" in says else says.count(";"))


def test_what_helps_the_slower_kernel_is_no_reason():
    """More sectors, spills and smaller requests cost less than a kernel saves that issues half of the
    instructions.
    """
    said = why.sentence(
        side("a", 80.0, {"spill_bytes": 96, "loads": 3}, load_sectors=8e6, instructions=1e6), side("b")
    )
    assert said == "a takes 2.00 × the time of b; these counters do not say why."


def test_bytes_are_the_difference_only_where_they_are_as_many_times_more():
    said = why.sentence(side("a", 160.0, read_bytes=134e6, write_bytes=120e6), side("b"))
    assert said == "a takes 4.00 × the time of b: 2.00 × the bytes through DRAM."


def test_full_schedulers_come_first():
    slow = side("a", 80.0, read_bytes=134e6, write_bytes=120e6, instructions=8e6, issue_percent=88.0)
    assert why.sentence(slow, side("b")).startswith("a takes 2.00 × the time of b: 4.00 × the instructions")


def test_equal_times_are_not_explained():
    said = why.sentence(side("a", 40.9, load_sectors=4e6), side("b"))
    assert said == "a and b take the same time within 3 %, and both keep DRAM at 90 % of its peak or more."


def test_what_is_wrong_untimed_or_not_counted_is_not_explained():
    wrong = Side("a", ROW | {"verdict": "wrong"}, COUNTED)
    assert why.sentence(wrong, side("b")) == "a is wrong here: there is nothing to explain."
    assert (
        why.sentence(dataclasses.replace(side("a"), counted=None), side("b"))
        == "Nothing was counted of a here."
    )
    assert "was not timed" in why.sentence(Side("a", None, COUNTED), side("b"))
    assert why.sentence(side("a"), None) == "There is no other kernel to compare with."


def test_a_reports_launches_become_the_rows_of_their_points():
    launched = [
        SimpleNamespace(nvtx=("counted", number), metrics=kernel.metrics)
        for number, kernel in zip(["0", "2", "2"], GRIDS, strict=False)
    ]
    one, none, two = counters.rows_of(launched, 3)
    assert none is None and (one["launches"], two["launches"]) == (1, 2)
    first, second = GRIDS[1].metrics, GRIDS[2].metrics
    read, time = "dram__bytes_read.sum", "gpu__time_duration.sum"
    assert two["read_bytes"] == pytest.approx(first[read] + second[read], rel=1e-3)
    share = first[time] / (first[time] + second[time])
    busy = counters.AVERAGED["dram_percent"]
    assert two["dram_percent"] == pytest.approx(share * first[busy] + (1 - share) * second[busy], rel=1e-3)


def test_the_stalls_of_a_report_are_its_largest_without_the_state_of_issuing():
    (reason, cycles), *others = counters.stalls(counters.row_of([GRIDS[4]]))
    assert reason == "long_scoreboard" and cycles == pytest.approx(84.6, abs=0.1)
    assert len(others) == 2 and "selected" not in dict(others) and cycles > others[0][1] > others[1][1]
    assert all(name in ncu.STALLS for name, _ in counters.stalls(counters.row_of([GRIDS[0]])))


def table() -> Table:
    """A live table of LAUNCH with two timed kernels at the start and beside it."""
    made = Table(LAUNCH, SPEC, live=True)
    for n, kernel in enumerate((MINE, RIVAL)):
        for warps in (8, 4):
            point = LAUNCH.start | {"num_warps": warps}
            row = (
                dict.fromkeys(("shared_bytes", "threads"), 256)
                | ROW
                | {"median_us": 40.0 + 10 * n, "reason": ""}
            )
            made.rows[LAUNCH.key(kernel, point)] = row | {"kernel": kernel, **point}
            made.counted[LAUNCH.key(kernel, point)] = COUNTED | {"dram_percent": 90.0 - warps - 20 * n}
    return made


def test_under_the_bars_what_changed_since_the_last_position_says_what_it_was():
    rows = table()
    shown = why.Why(rows, MINE, (MINE, RIVAL), LAUNCH.start)
    assert "<table" not in shown.said.value and "takes 1.25 × the time" in shown.said.value
    shown.open.value = True
    assert "(was" not in shown.said.value and shown.rival.value == RIVAL
    assert (
        "134.2 MB must move" in shown.said.value
        and "a load from L1, L2 or DRAM (84.6 cycles)" in shown.said.value
    )
    shown.show(rows, MINE, (MINE, RIVAL), LAUNCH.start | {"num_warps": 4})
    assert "<b>86</b>" in shown.said.value and "(was 82)" in shown.said.value
    assert shown.said.value.count("(was") == 1


def test_the_rival_stays_when_another_kernel_is_mapped():
    kernels = (MINE, "Triton flat", RIVAL, "torch.compile")
    shown = why.Why(table(), MINE, kernels, LAUNCH.start)
    assert shown.rival.value == RIVAL
    shown.show(table(), "Triton flat", kernels, LAUNCH.start)
    assert shown.rival.value == RIVAL and MINE in shown.rival.options
    shown.rival.value = "torch.compile"
    shown.show(table(), MINE, kernels, LAUNCH.start)
    assert shown.rival.value == "torch.compile"
    shown.show(table(), "torch.compile", kernels, LAUNCH.start)
    assert shown.rival.value == MINE  # the fastest of the others


def test_a_name_with_marks_of_html_stays_text():
    rows = table()
    rows.rows = {("<b>", *key[1:]): row for key, row in rows.rows.items()}
    assert "<b></th>" not in why.as_html(rows, "<b>", RIVAL, LAUNCH.start)


def test_counting_fails_in_a_sentence_and_the_button_comes_back(monkeypatch):
    def refuse(*arguments, **options):
        raise ncu.NcuError("The counters are for administrators.", "permission")

    monkeypatch.setattr(ncu, "run", refuse)
    shown = why.Why(table(), MINE, (MINE, RIVAL), LAUNCH.start)
    shown.button.click()
    assert "not counted: The counters are for administrators." in shown.said.value
    assert not shown.button.disabled


def test_what_was_counted_is_shown_with_its_counters(monkeypatch):
    """The button's way, with the counters of a report in the place of a launch."""
    rows = table()
    rows.counted.clear()
    monkeypatch.setattr(counters, "count", lambda space, points: [counters.row_of([GRIDS[4]])] * len(points))
    shown = why.Why(rows, MINE, (MINE, RIVAL), LAUNCH.start)
    assert "Nothing was counted of Triton rows and torch.square here." in shown.said.value
    shown.button.click()
    assert shown.open.value and "84.6 cycles" in shown.said.value and "counted in" in shown.said.value
    shown.open.value = False
    assert "<table" not in shown.said.value


def test_without_a_gpu_and_without_a_record_there_is_no_comparison():
    empty = Table(
        own_space(double, Asked(against=twice), {"BLOCK_SIZE": [256]}).space, SPEC, live=True, timed=False
    )
    assert why.Why(empty, "double", ("double", "twice"), empty.space.start).box.layout.display == "none"


def test_a_function_of_the_notebook_can_be_launched_in_a_process_of_its_own(tmp_path, monkeypatch):
    """What goes along is enough: kernel, launching function, rivals."""
    monkeypatch.setattr(double, "__module__", "__main__")
    monkeypatch.setattr(twice, "__module__", "__main__")
    monkeypatch.setattr(double_kernel.fn, "__module__", "__main__")
    rivals = {"twice": twice, "relu": torch.relu, "F.gelu": torch.nn.functional.gelu}
    space = own_space(double, Asked(against=rivals, reference=twice), {"BLOCK_SIZE": [256]}).space
    code, files = space.launching()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    check = (
        "import torch\nx = torch.arange(6.0).reshape(2, 3) - 2\n"
        "def run(name):\n    return candidates(name, {'BLOCK_SIZE': 256, 'n_cols': 3, 'dtype': "
        "'float32'}).run(x)\n"
        "assert torch.equal(run('double'), 2 * x) and torch.equal(run('twice'), 2 * x)\n"
        "assert torch.equal(run('relu'), x.relu()) and torch.equal(run('F.gelu'), "
        "torch.nn.functional.gelu(x))\n"
    )
    (tmp_path / "script.py").write_text(f"from helpers import device\ndevice.prepare()\n{code}\n{check}")
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_what_cannot_go_along_is_refused_in_a_sentence():
    space = own_space(double, Asked(against={"own": lambda x: x}), {"BLOCK_SIZE": [256]}).space
    with pytest.raises(ValueError, match="`def`"):
        space.launching()
    odd = dataclasses.replace(LAUNCH, axes={**LAUNCH.axes, "odd": (object(),)})
    point = LAUNCH.start | {"odd": odd.axes["odd"][0]}
    with pytest.raises(ValueError, match="numbers"):
        counters.count(odd, [(MINE, point)])


def test_a_saved_page_and_its_table_have_what_was_counted(tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBOOK_WIDGETS", "plain")
    monkeypatch.setattr(device, "gpu_spec", lambda: SPEC)
    live_provenance.cache_clear()
    request.addfinalizer(live_provenance.cache_clear)
    page, rows = widgets.explore("launch", kernels=[MINE, RIVAL], table=table()).save("counted")
    assert "must move" in page.read_text() and "84.6 cycles" in page.read_text()
    assert "dram_percent" in rows.read_text().splitlines()[0]


@pytest.mark.gpu
def test_the_sliders_kernels_are_counted_on_this_gpu():
    if refusal := ncu.why_not():
        pytest.skip(str(refusal))
    rows = counters.count(LAUNCH, [(kernel, LAUNCH.start) for kernel in (MINE, RIVAL)])
    for row in rows:
        assert row["launches"] == 1 and row["read_bytes"] == pytest.approx(4096 * 4096 * 4, rel=0.05)
        assert 10 < row["dram_percent"] <= 100 and row["stalls"]


@pytest.mark.gpu
def test_what_this_gpu_measured_is_saved_with_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page, _ = widgets.explore(
        double, against=twice, BLOCK_SIZE=[1024], n_cols=[1024], dtype=["float32"]
    ).save("mine")
    assert f"Measured on {device.gpu_spec().name}" in page.read_text()


@pytest.mark.gpu
def test_an_own_kernel_is_counted_on_this_gpu():
    if refusal := ncu.why_not():
        pytest.skip(str(refusal))
    space = own_space(double, Asked(against=twice), {"BLOCK_SIZE": [1024]}).space
    mine, rival = counters.count(space, [("double", space.start), ("twice", space.start)])
    assert mine["load_sectors"] == pytest.approx(4096 * 4096 * 4 / 32, rel=1e-3)
    assert rival["load_sectors"] == pytest.approx(2 * mine["load_sectors"], rel=1e-3)  # x + x reads x twice
