"""Launches, counters and the summary table of a report."""

from __future__ import annotations

import pytest

from helpers import ncu

# The recorded launches: rows of a square, and columns.
ROWS = [1, 8, 64, 512, 4096]


def test_launches_of_the_report(report):
    assert [kernel.n_blocks for kernel in report] == ROWS
    assert [kernel.grid for kernel in report] == [(n, 1, 1) for n in ROWS]
    assert all("square" in kernel.name for kernel in report)
    assert len(report) == 5 and report[-1] is report[4]
    assert "5 launches" in repr(report) and report.gpu in repr(report)
    with pytest.raises(IndexError, match=r"5 launches.* 7 "):
        report[7]


def test_counters_by_name(report):
    metrics = report[4].metrics
    assert len(metrics) > 500 and "gpu__time_duration.sum" in metrics
    assert metrics["launch__grid_size"] == 4096
    assert metrics.unit("gpu__time_duration.sum") == "ns"
    assert metrics.get("no_such_counter", 7) == 7 and metrics.instances("no_such_counter") == {}
    with pytest.raises(KeyError, match=r"dram__bytes_read\.sum"):
        metrics["dram__bytes_red.sum"]


def test_files_that_are_not_reports_are_refused(recorded, tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no report"):
        ncu.load_report(tmp_path / "none.ncu-rep")
    (tmp_path / "text.ncu-rep").write_text("not a report")
    with pytest.raises(ncu.ReportError, match=r"text\.ncu-rep is not an Nsight Compute report"):
        ncu.load_report(tmp_path / "text.ncu-rep")
    (tmp_path / "cut.ncu-rep").write_bytes(recorded.read_bytes()[:60_000])
    with pytest.raises(ncu.ReportError, match="no launches"):
        ncu.load_report(tmp_path / "cut.ncu-rep")


def test_summary_has_the_columns_of_ncus_summary_page(report, tmp_path):
    import pandas as pd

    table = ncu.summary(report)
    first = "est_speedup_percent function_name demangled_name duration_us runtime_improvement_us"
    then = "compute_throughput_percent memory_throughput_percent registers_per_thread grid_size block_size"
    assert list(table.columns[:10]) == f"{first} {then}".split()
    assert not table.isna().any().any()
    for row, kernel in zip(table.to_dict("records"), report, strict=True):
        assert row["duration_us"] * 1e3 == kernel.metrics["gpu__time_duration.sum"]
        assert row["runtime_improvement_us"] == pytest.approx(
            row["duration_us"] * row["est_speedup_percent"] / 100
        )
        bytes_moved = row["dram_read_bytes"] + row["dram_write_bytes"]
        assert row["dram_gb_per_s"] == pytest.approx(bytes_moved / row["duration_us"] / 1e3)
    # ncu's own counter of the same thing, taken in another pass
    assert table.dram_gb_per_s[4] == pytest.approx(
        report[4].metrics["dram__bytes.sum.per_second"] / 1e9, rel=0.05
    )
    table.to_csv(tmp_path / "grids.csv", index=False)
    assert pd.read_csv(tmp_path / "grids.csv").shape == table.shape
    assert "<table" in report._repr_html_()
