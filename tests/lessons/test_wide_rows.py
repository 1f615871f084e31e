"""Lesson 09: who waits for whom, what its tricks buy, peers' counters, and the league's figure."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest
import torch
import triton
import triton.language as tl
from commands import ROOT, cells, environment

from helpers import ncu, ptx, records
from helpers.lessons import deadlock, wide_rows


@triton.jit
def _publish(data_ptr, flag_ptr, BLOCK_SIZE: tl.constexpr, BARRIER: tl.constexpr):
    i = tl.arange(0, BLOCK_SIZE)
    tl.store(data_ptr + i, i)
    if BARRIER:
        tl.debug_barrier()
    tl.atomic_xchg(flag_ptr, 1, sem="release")


@pytest.mark.parametrize(
    ("parts", "places", "hangs"), [(6, 4, True), (6, 5, True), (6, 6, False), (1, 1, False), (3, 7, False)]
)
def test_a_row_finishes_if_all_its_programs_have_a_place(parts, places, hangs) -> None:
    table = deadlock.follow(4, parts, places)
    assert table.attrs["hangs"] == hangs
    assert table.attrs["published"] == (places if hangs else 4 * parts)
    assert (table.what == deadlock.HANGS).sum() == (places if hangs else 0)
    if not hangs:
        assert (table.what == deadlock.WRITES).sum() == 4 * parts and not table.attrs["not_started"]


def test_each_place_runs_one_program_at_a_time() -> None:
    table = deadlock.follow(5, 4, 7)
    for _, lane in table.groupby("place"):
        lane = lane.sort_values(["start", "end"])
        assert (lane.start.to_numpy()[1:] >= lane.end.to_numpy()[:-1]).all()
    assert (table.groupby("program").place.nunique() == 1).all()
    for _, row in table.groupby("row"):
        published = row[row.what == deadlock.LOADS].end.max()
        assert (row[row.what == deadlock.WRITES].start >= published).all()


def test_numbering_programs_part_by_part_deadlocks() -> None:
    assert deadlock.follow(3, 2, 3, neighbours=False).attrs["hangs"]
    assert not deadlock.follow(3, 2, 3).attrs["hangs"]


def test_the_model_hangs_where_the_cooperative_simulator_does() -> None:
    """The lesson's own kernel on a chip of as many places as the model has."""
    text = cells("notebooks/09_wide_rows.ipynb")
    script = "import numpy as np, torch, triton\nimport triton.language as tl\nnp.seterr(all='ignore')\n"
    script += "from helpers.kernels import cooperative_simulator\n"
    script += f"""{text["plain-kernel"]}

{text["plain"]}

for parts in (1, 3):
    for n_places in (1, 2, 3, 5):
        x = torch.randn(2, parts * 16)
        try:
            right = torch.allclose(softmax_shared(x, 16, n_places=n_places), torch.softmax(x, 1))
            print(parts, n_places, "ends" if right else "wrong")
        except cooperative_simulator.Deadlock:
            print(parts, n_places, "hangs")
"""
    path = ROOT / "build" / "tests" / "shared_kernel.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    env = environment() | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-2000:]
    model = [
        f"{parts} {n} {'hangs' if deadlock.follow(2, parts, n).attrs['hangs'] else 'ends'}"
        for parts in (1, 3)
        for n in (1, 2, 3, 5)
    ]
    assert ran.stdout.splitlines() == model


@pytest.mark.parametrize("numbers", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1000, 1000, 4)])
def test_invalid_chips_are_refused(numbers) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        deadlock.follow(*numbers)


def test_the_picture_of_the_deadlock_shows_one_chip_at_a_time() -> None:
    fig = deadlock.draw(2, 6, (4, 6))
    assert "it hangs" in fig.layout.title.text and "cannot start" in fig.layout.title.text
    steps = fig.layout.sliders[0].steps
    assert [step.label for step in steps] == ["4", "6"]
    shown = [step.args[0]["visible"] for step in steps]
    assert all(a != b for a, b in zip(*shown, strict=True)) and len(shown[0]) == len(fig.data)
    assert "all end" in steps[1].args[1]["title.text"]
    assert {one for trace in fig.data if trace.visible for one in trace.y} == {f"place {i}" for i in range(4)}


def test_the_gain_of_each_trick_comes_from_the_record() -> None:
    """The lesson asks at two widths, and both have another answer; the same launch twice shows no
    difference.
    """
    h200 = wide_rows.bought(records.stored_by_gpu("wide_rows/tricks")["h200"])
    assert set(h200.trick) == set(wide_rows.TRICKS.values()) and len(h200) == 16
    best = h200.sort_values("bought").groupby("row").trick.last()
    assert best["bf16, 131,072"] == "words apart" and best["bf16, 393,216"] == "smaller programs"
    assert (h200.bought_low <= h200.bought).all() and (h200.bought <= h200.bought_high).all()
    same = h200[~h200.changes]
    assert len(same) == 5 and (same.bought_low < 0).all() and (same.bought_high > 0).all()
    assert (h200[h200.trick == "a nap"].bought_high > 0).all(), "the lesson says that a nap costs no time"


def test_a_trick_that_changes_nothing_is_recognized() -> None:
    """A row of 32 words fills its sectors; 16 or 32 words have a lane each in a warp; fp32 parts have 32 KB
    as tuned.
    """
    assert not wide_rows.changes(wide_rows.ONE_SECTOR, "bfloat16", 393_216)
    assert not wide_rows.changes(wide_rows.MANY_LOOK, "bfloat16", 262_144)
    assert not wide_rows.changes(wide_rows.LARGE_PARTS, "float32", 262_144)


def test_a_gpu_too_small_to_share_such_rows_shows_the_record(monkeypatch) -> None:
    from helpers.kernels import softmax

    def chip_of(device=None, real=softmax.chip_of):
        return real(device) if device is not None else replace(real(), n_sms=2)

    monkeypatch.setattr(softmax, "chip_of", chip_of)
    assert softmax.plan_softmax(682, 393_216, torch.bfloat16).kernel == "online"
    assert len(wide_rows.bought(records.stored_by_gpu("wide_rows/tricks")["h200"])) == 16


def test_the_kernel_without_a_nap_does_not_sleep() -> None:
    from helpers.kernels import softmax

    pointers = {"output_ptr": "*bf16", "input_ptr": "*bf16", "words_ptr": "*i64"}
    signature = pointers | dict.fromkeys(("input_row_stride", "output_row_stride", "n_cols"), "i32")
    sizes = {"PARTS": 16, "PARTS_BLOCK": 32, "WORDS_STRIDE": 16, "CHUNK": 1024, "CHUNKS": 8, "ALIGN": 8}
    sizes |= {"REPACK": True, "PUBLISH_ONLY": False}
    kernels = softmax.softmax_split_kernel, wide_rows.kernel_without_nap()
    texts = [ptx.stages(one, signature=signature, constexprs=sizes, target="sm_90").ptx for one in kernels]
    assert ["nanosleep" in text for text in texts] == [True, False]
    taken = [inspect.signature(one.fn) for one in kernels]
    assert taken[0] == taken[1]  # a launch finds the constants by their annotations


@pytest.mark.parametrize("barrier", [False, True])
def test_a_release_waits_for_the_other_threads_only_behind_a_barrier(barrier) -> None:
    """One thread executes the atomic, and Triton adds no barrier before it, as the lesson says."""
    signature = {"data_ptr": "*i32", "flag_ptr": "*i32"}
    sizes = {"BLOCK_SIZE": 512, "BARRIER": barrier}
    text = ptx.stages(_publish, signature=signature, constexprs=sizes, target="sm_90").ptx
    between = text[text.index("st.global") : text.index("atom.global.gpu.release")]
    assert ("bar.sync" in between) == barrier and re.search(r"@%p\d+ $", between)


def test_counters_of_a_contestant_s_launches_are_added_up() -> None:
    """A real report of two softmaxes of one matrix, its launches in the ranges that the lesson would give
    them.
    """
    report = ncu.load_report(records.folder() / "h200" / "fusion" / "dram-8192-16384.ncu-rep")
    *five, eager, one = report
    named = [(k, "slow") for k in five] + [(eager, "eager"), (one, "ours")]
    kernels = [replace(k, nvtx=("measured", f"{name}|float32|8192")) for k, name in named]
    kernels.append(replace(one, nvtx=("another range",)))
    rows = pd.DataFrame(wide_rows.of_report(replace(report, kernels=tuple(kernels)))).set_index("contestant")
    assert rows.launches.to_dict() == {"slow": 5, "eager": 1, "ours": 1}
    assert rows.ncu_us["slow"] == pytest.approx(sum(k.duration_us for k in five))
    matrix_gb = 4 * 16384 * 8192 / 1e9
    assert rows.read_gb["ours"] == pytest.approx(matrix_gb, rel=0.02)
    assert rows.read_gb["slow"] == pytest.approx(5 * matrix_gb, rel=0.02)
    assert rows.dram_percent.between(10, 100).all() and rows.issue_percent.between(1, 100).all()


def test_the_plain_kernel_misses_a_fifth_program_by_three_registers() -> None:
    """A sentence of the lesson: 99 registers become 104, so an SM holds four programs, not five."""
    script = "import triton\nimport triton.language as tl\n"
    script += cells("notebooks/09_wide_rows.ipynb")["plain-kernel"]
    path = ROOT / "build" / "tests" / "plain_kernel.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    spec = importlib.util.spec_from_file_location("plain_kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = wide_rows.resident(module.softmax_shared_kernel).set_index("kernel")
    assert (rows.registers["plain"] + 7) // 8 * 8 > 96 >= rows.registers["tuned"]
    assert rows.programs["plain"] == 4 and rows.programs["tuned"] == 5


@pytest.mark.gpu
def test_each_trick_taken_out_gives_a_right_softmax() -> None:
    rows = pd.DataFrame(wide_rows.tricks())
    tricks = {wide_rows.NO_NAP, wide_rows.ONE_SECTOR, wide_rows.MANY_LOOK, wide_rows.LARGE_PARTS}
    assert set(rows.trick) == tricks | {"copy", wide_rows.AS_TUNED}
    assert rows.groupby(["dtype", "n_cols"]).size().eq(6).all() and rows.median_us.gt(0).all()


@pytest.mark.gpu
def test_counters_of_ours_and_torch_s() -> None:
    try:
        rows = pd.DataFrame(wide_rows.counters())
    except records.CannotMeasure as why:
        pytest.skip(str(why))
    assert {"ours", "eager", "compile"} <= set(rows.contestant)
    ours, eager = (
        rows[rows.contestant.eq(name)].set_index(["dtype", "n_cols"]) for name in ("ours", "eager")
    )
    assert (eager.read_gb > 1.5 * ours.read_gb).all(), "eager walks a wide row more than once"
