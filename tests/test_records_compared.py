"""helpers.records.compare: the records of several GPUs as one table."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from helpers import records


def write(root, gpu: str, name: str, rows: list[dict], *, sources=None, params=None, **more) -> None:
    """A made-up record."""
    provenance = {
        "gpu": {"name": f"GPU {gpu}"},
        "driver": "1",
        "cuda": "13.0",
        "torch": "2.13.0",
        "triton": "3.7.1",
        "sm_clock_mhz": None,
        "memory_clock_mhz": None,
        "date": "2026-12-01",
        "sources": sources or {},
    }
    path = root / gpu / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    old = json.loads(path.read_text())["cases"] if path.exists() else []
    case = {"params": params or {}, "provenance": provenance, "rows": rows, "columns": list(rows[0])} | more
    path.write_text(json.dumps({"name": name, "cases": [*old, case]}))


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBOOK_RECORDS", str(tmp_path))
    return tmp_path


def test_the_launch_sweep_of_both_gpus():
    table = records.compare("triton/launch-sweep")
    assert table.attrs["on"] == ["kernel", "block_size", "num_warps", "n_cols", "dtype"]
    gpus = [p.gpu["name"] for p in table.attrs["provenance"].values()]
    assert sorted(gpus) == ["NVIDIA H100 80GB HBM3", "NVIDIA H200"]
    paths = (records.folder() / g / "triton/launch-sweep.json" for g in ("h100", "h200"))
    here, there = (pd.DataFrame(json.loads(path.read_text())["cases"][0]["rows"]) for path in paths)
    assert len(table) == len(here) and table["kernel"].tolist() == here["kernel"].tolist()
    # a row picked by hand: the same point in both records
    point = {"kernel": "Triton rows", "block_size": 4096, "num_warps": 8, "n_cols": 4096, "dtype": "bfloat16"}
    row, us, other = (
        t[(t[list(point)] == pd.Series(point)).all(axis=1)].iloc[0] for t in (table, here, there)
    )
    assert (row.median_us_h100, row.median_us_h200) == (us.median_us, other.median_us)
    assert row.speedup_h200 == pytest.approx(us.median_us / other.median_us)
    assert (row.registers_h100, row.registers_h200) == (us.registers, other.registers)
    # kernels without block_size and num_warps (NaN) are joined too
    assert table[table.kernel == "torch.square"].speedup_h200.notna().all()


def test_every_shipped_table_compares_or_gives_the_reason():
    names = {path.relative_to(records.folder() / "h100").with_suffix("").as_posix()
             for path in (records.folder() / "h100").rglob("*.json")}  # fmt: skip
    compared = 0
    for name in sorted(names):
        try:
            table = records.compare(name)
        except (records.NoRecord, ValueError) as error:
            assert len(str(error).splitlines()) == 1 and repr(name) in str(error)
        else:
            compared += 1
            assert not table.duplicated(table.attrs["on"]).any()
            assert len(table.columns) > len(table.attrs["on"])
    assert compared > 25


def test_points_that_one_gpu_lacks_stay_with_nan(made_up):
    write(made_up, "a", "x/y", [{"n": 1, "median_us": 2.5}, {"n": 2, "median_us": 4.5}])
    write(made_up, "b", "x/y", [{"n": 2, "median_us": 1.5}, {"n": 3, "median_us": 9.5}])
    table = records.compare("x/y", ("a", "b"))
    assert table.n.tolist() == [1, 2, 3] and table.median_us_b.isna().tolist() == [True, False, False]
    assert table.speedup_b[1] == pytest.approx(3.0)


def test_cases_are_distinguished_by_their_parameters(made_up):
    for gpu, factor in (("a", 1.0), ("b", 0.5)):
        for n in (10, 20):
            write(made_up, gpu, "x/y", [{"kernel": "k", "median_us": n * factor + 0.5}], params={"n_rows": n})
    table = records.compare("x/y", ("a", "b"))
    assert table.n_rows.tolist() == [10, 20] and table.median_us_b.tolist() == [5.5, 10.5]


def test_a_result_is_not_a_parameter(made_up):
    """A whole number that differs between the GPUs and tells no rows apart was measured, whatever it is
    called.
    """
    write(made_up, "a", "x/y", [{"n": 1, "chosen": 4}, {"n": 2, "chosen": 8}])
    write(made_up, "b", "x/y", [{"n": 1, "chosen": 4}, {"n": 2, "chosen": 16}])
    table = records.compare("x/y", ("a", "b"))
    assert table.attrs["on"] == ["n"] and table.chosen_b.tolist() == [4, 16]


def test_three_gpus_are_compared_with_the_first(made_up):
    for gpu, us in (("a", 4.5), ("b", 1.5), ("c", 9.0)):
        write(made_up, gpu, "x/y", [{"n": 1, "median_us": us}])
    table = records.compare("x/y", ("a", "b", "c"))
    assert (table.speedup_b[0], table.speedup_c[0]) == (3.0, 0.5)


def test_other_versions_of_a_kernel_are_only_compared_on_request(made_up):
    write(made_up, "a", "x/y", [{"n": 1, "median_us": 1.5}], sources={"square": "1", "same": "3"})
    write(made_up, "b", "x/y", [{"n": 1, "median_us": 1.0}], sources={"square": "2", "same": "3"})
    with pytest.raises(ValueError, match=r"versions of square.* any_kernels=True"):
        records.compare("x/y", ("a", "b"))
    assert records.compare("x/y", ("a", "b"), any_kernels=True).speedup_b[0] == 1.5


@pytest.mark.parametrize(
    ("name", "gpus", "error", "says"),
    [
        ("triton/launch-swep", ("h100", "h200"), records.NoRecord, "did you mean 'triton/launch-sweep'"),
        ("triton/launch-sweep", ("h100", "b200"), records.NoRecord, "'b200'"),
        ("host_cuda/corpus", ("h100", "h200"), records.NoRecord, "h200 .*'host_cuda/corpus'.*h100"),
        ("triton/launch-sweep", ("h100",), ValueError, "two or more GPUs"),
        ("triton/launch-sweep", "h100", ValueError, "two or more GPUs"),
        ("fusion/dram", ("h100", "h200"), ValueError, "is a file"),
        ("profiling/equal-race", ("h100", "h200"), ValueError, "rows are samples"),
    ],
)
def test_records_that_cannot_be_compared_are_errors(name, gpus, error, says):
    with pytest.raises(error, match=says) as raised:
        records.compare(name, gpus)
    assert len(str(raised.value).splitlines()) == 1


def test_columns_can_be_named():
    table = records.compare("ptx/vector-width", on=["n_cols", "l2", "load_bytes"])
    assert len(table) == 6 and table.speedup_h200.gt(1).all()
    with pytest.raises(ValueError, match="'columns'"):
        records.compare("ptx/vector-width", on=["columns"])
    with pytest.raises(ValueError, match="l2 "):
        records.compare("ptx/vector-width", on=["l2"])


def test_records_without_a_common_point(made_up):
    write(made_up, "a", "x/y", [{"n": 1, "median_us": 1.5}])
    write(made_up, "b", "x/y", [{"n": 2, "median_us": 1.5}])
    with pytest.raises(ValueError, match="no row of a "):
        records.compare("x/y", ("a", "b"))
