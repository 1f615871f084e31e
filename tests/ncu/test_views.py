"""Hot lines, sectors, roofline, occupancy and time: tables of a report against arithmetic."""

from __future__ import annotations

import math
import types

import pytest

from helpers import ncu
from helpers.ncu import reader, views

# The recorded launches: rows of a square, and columns.
ROWS = [1, 8, 64, 512, 4096]
COLUMNS = 4096


def test_instructions_account_for_every_sample_and_execution(report):
    kernel = report[4]
    code = ncu.instructions(kernel)
    assert code.samples.sum() == kernel.metrics["smsp__pcsamp_sample_count"] > 0
    assert code.inst_executed.sum() == kernel.metrics["inst_executed"]
    assert code.samples_percent.sum() == pytest.approx(100)
    assert code.address.is_monotonic_increasing and code.address[0] == 0
    loads, stores = (code[code.sass.str.contains(name)] for name in ("LDG", "STG"))
    for access in (loads, stores):
        assert (access.access_bits // 32).sum() * kernel.block[0] == COLUMNS
        assert access.sectors.sum() * 32 == ROWS[-1] * COLUMNS * 4
    assert code.sectors_excess.sum() == 0
    assert code.sass.str.contains("FMUL").sum() * kernel.block[0] == COLUMNS
    rare = {"membar", "misc", "sleeping", "tex_throttle"}
    assert set(code[code.samples > 0].top_stall) <= set(views.STALLS) | rare
    assert not code.sass.str.contains(r"0x[0-9a-f]{9}").any()


def test_the_hot_line_multiplies_and_waits_for_the_load(report):
    lines = ncu.source_lines(report[4])
    assert lines.samples.is_monotonic_decreasing
    assert lines.samples.sum() == ncu.instructions(report[4]).samples.sum()
    assert "tl.store" in lines.source[0] and lines.top_stall[0] == "long_scoreboard"
    assert lines.source.str.contains("tl.load").any()


def test_sectors_by_arithmetic(report):
    table = ncu.sectors(report)
    for n, row in zip(ROWS, table.to_dict("records"), strict=True):
        expected = n * COLUMNS * 4 / 32
        assert row["ld_sectors"] == row["st_sectors"] == expected
        assert row["sectors_asked"] == row["sectors_ideal"] == 2 * expected
        assert row["excess_percent"] == 0
        assert row["ld_sectors_per_request"] == 16  # 32 lanes of 16 bytes
    assert len(ncu.sectors(report, 2)) == 1


def test_roofline_counts_one_operation_an_element(report):
    points = ncu.roofline_points(report)
    for n, kernel, point in zip(ROWS, report, points.to_dict("records"), strict=True):
        seconds = kernel.duration_us / 1e6
        assert point["gflop_per_s"] * 1e9 * seconds == pytest.approx(n * COLUMNS, rel=0.1)
        assert point["flop_per_byte"] * point["dram_gb_per_s"] == pytest.approx(point["gflop_per_s"])
    peak = points.attrs["peak_gb_per_s"]
    assert points.dram_gb_per_s.max() < peak < 20_000
    assert points.attrs["peak_gflop_per_s"] / peak > 1  # far right of a square


def test_the_roofs_peak_is_at_a_clock_that_the_gpu_has(report):
    """Cycles over time say 2,101 MHz of the launch of one row, on a GPU that goes to 1,980."""
    ffma_per_cycle = report[0].metrics["sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained"]
    by_cycles = report[0].metrics["sm__cycles_elapsed.avg.per_second"]
    at_device = report[0].metrics["device__attribute_clock_rate"] * 1e3
    assert by_cycles > 1.05 * at_device
    peak = ncu.roofline_points(report).attrs["peak_gflop_per_s"]
    assert peak == pytest.approx(2 * ffma_per_cycle * at_device / 1e9) == pytest.approx(66_908, abs=1)


def test_occupancy_gives_the_waves(report):
    limits = ncu.occupancy(report[4])
    assert limits.blocks_per_sm.is_monotonic_increasing
    held = limits.attrs["blocks_per_sm"] * report[4].metrics["launch__sm_count"]
    assert ncu.summary(report).waves_per_sm.tolist() == pytest.approx([n / held for n in ROWS])
    assert limits.attrs["warps_per_block"] == report[4].block[0] // 32
    assert 0 < limits.attrs["achieved_percent"] < limits.attrs["theoretical_percent"] <= 100
    curves = ncu.occupancy_curves(report[4])
    here = curves[
        (curves.what == "registers a thread")
        & (curves.value == report[4].metrics["launch__registers_per_thread"])
    ]
    assert here.occupancy_percent.item() == pytest.approx(limits.attrs["theoretical_percent"], abs=1)


def test_over_time_starts_every_block(report):
    time = ncu.over_time(report[4])
    assert time.blocks_launched.sum() == ROWS[-1]
    assert time.time_us[0] == 0 and time.time_us.iloc[-1] == pytest.approx(report[4].duration_us, rel=0.2)
    assert (time.dram_write_percent.iloc[:2] < 5).all()  # writes stay in the L2 at first


def test_moments_come_in_their_order(report):
    at, time = ncu.moments(report[4]), ncu.over_time(report[4])
    assert 0 < at["writes_from_us"] < at["last_start_us"] < at["tail_from_us"] < at["end_us"]
    assert at["end_us"] == time.time_us.iloc[-1]
    assert not time[time.time_us > at["last_start_us"]].blocks_launched.any()
    assert (time[time.time_us >= at["tail_from_us"]].sm_active_percent < 95).all()


class _Bare:
    """A launch for which only a few counters were collected."""

    def __init__(self, **values):
        self.values = values

    def metric_by_name(self, name):
        if name not in self.values:
            return None
        value = self.values[name]
        return types.SimpleNamespace(value=lambda: value, unit=lambda: "", has_correlation_ids=lambda: False)

    def metric_names(self):
        return tuple(self.values)

    def source_files(self):
        return {}


def _bare(**values) -> ncu.Kernel:
    action = _Bare(**values)
    return ncu.Kernel(0, "k", "k", (1, 1, 1), (32, 1, 1), (), reader.Metrics(action), (), action)


def test_sections_that_were_not_collected():
    kernel = _bare()
    assert math.isnan(ncu.summary(kernel).duration_us[0]) and math.isnan(
        ncu.sectors(kernel).excess_percent[0]
    )
    assert ncu.over_time(kernel).empty and ncu.occupancy_curves(kernel).empty
    assert all(math.isnan(us) for us in ncu.moments(kernel).values())
    for table, section in (
        (ncu.instructions, "SourceCounters"),
        (ncu.source_lines, "SourceCounters"),
        (ncu.roofline_points, "RooflineChart"),
        (ncu.occupancy, "Occupancy"),
    ):
        with pytest.raises(ncu.ReportError, match=section):
            table(kernel)


def test_predicted_sectors_are_the_counted_ones(recorded):
    path = recorded.with_name("alignment.ncu-rep")
    counted = ncu.sectors(ncu.load_report(path))
    layouts = [(781, 781, 1024, 1, 1), (512, 781, 512, 1, 1), (781, 792, 1024, 1, 1)]
    layouts += [(781, 784, 1024, 4, 1), (784, 784, 1024, 4, 4)]
    for i, (n_cols, stride, block_size, per_thread, vector) in enumerate(layouts):
        said = ncu.predicted_sectors(1823, n_cols, stride, block_size, per_thread=per_thread, vector=vector)
        assert said["sectors"] == counted.ld_sectors[i] + counted.st_sectors[i]
        assert said["requests"] == counted.ld_requests[i] + counted.st_requests[i]
        assert said["ideal"] == counted.sectors_ideal[i]
