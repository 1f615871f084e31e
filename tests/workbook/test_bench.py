"""`workbook bench`: what it reports as slower or faster, and how it refuses."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from commands import ROOT, command, environment

from helpers import device, records
from helpers.timing.interleaved import RelativeTiming
from workbook.bench import comparison, compiled, measure, points, regression, table
from workbook.options import BenchOptions
from workbook.usage import UsageError

TWICE = json.loads(Path(__file__).with_name("league_twice.json").read_text())
PROVENANCE = records.Provenance(
    {"name": "NVIDIA H100 80GB HBM3"}, "580", "13.0", "2.11.0", "3.6.0", 1980, 2619, "2026-11-21", {"k": "1"}
)


def league_run(which: str, slow: float = 1.0, *, all_slow: float = 1.0) -> list[points.PointResult]:
    """One of two real runs of the league on an H100, with our times, or all times, multiplied by a factor."""
    rows = [dict(zip(TWICE["columns"], row, strict=True)) for row in TWICE[which]]
    for row in rows:
        factor = all_slow * (slow if row["contestant"] == table.OURS else 1)
        row |= {name: row[name] * factor for name in ("median_us", "ci95_low_us", "ci95_high_us")}
        if row["contestant"] != table.OURS:
            row |= {name: row[name] / slow for name in ("ours_ratio", "ratio_low", "ratio_high")}
    return sorted(points.read_rows(rows), key=lambda result: str(result.point))


def report(before, now, *, now_from=PROVENANCE) -> comparison.Report:
    same = comparison.is_same_torch(PROVENANCE, now_from)
    pairs = zip(before, now, strict=True)
    found = [comparison.compare(a, b, n_points=len(before), same_torch=same) for a, b in pairs]
    return comparison.Report("before.json", PROVENANCE, now_from, found)


# Verdicts
# ------------------------------------------------------------------------------------------------------


def test_the_same_kernels_measured_twice_are_no_regression():
    """Relative to the copy alone, points of 16 MB of this real pair of runs would be called slower."""
    before, now = league_run("first"), league_run("second")
    made = report(before, now)
    assert len(before) > 30 and made.exit_status == 0
    assert {point.verdict for point in made.points} == {"same"}
    assert report(now, before).exit_status == 0
    alone = [comparison.compare(a, b, n_points=len(before)) for a, b in zip(before, now, strict=True)]
    assert 4194304 in {point.before.point["n_cols"] for point in alone if point.verdict == "slower"}


@pytest.mark.parametrize(("factor", "verdict"), [(1.04, "slower"), (1 / 1.04, "faster")])
def test_a_change_of_four_percent_is_found_for_long_kernels(factor, verdict):
    made = report(league_run("first"), league_run("second", factor))
    long = [point for point in made.points if point.before.us.value > 50]
    assert len(long) > 12 and sum(point.verdict == verdict for point in long) >= 0.9 * len(long)
    assert not {"slower", "faster"} - {verdict} & {point.verdict for point in made.points}
    assert made.exit_status == (1 if verdict == "slower" else 0)


def test_a_slower_clock_on_another_day_is_no_regression():
    assert report(league_run("first"), league_run("second", all_slow=1.1)).exit_status == 0


def test_a_point_that_can_no_longer_be_timed_is_a_regression():
    before, now = league_run("first"), league_run("second")
    gone = dataclasses.replace(now[0], us=None, ratio=None, note="refused: Mismatch: wrong on (4096,)")
    made = report(before, [gone, *now[1:]])
    assert made.exit_status == 1 and "Mismatch: wrong on (4096,)" in str(made)
    never = dataclasses.replace(before[0], us=None, ratio=None, note="refused: too wide")
    assert report([never, *before[1:]], now).exit_status == 0
    assert report([never], [now[0]]).exit_status == 2


def test_the_report_lists_changed_versions_kernels_and_counts():
    def with_counts(results, **counts):
        kernel = {"kernel": "k", "counts": {"registers": 32, "STG": 4} | counts}
        return [dataclasses.replace(result, compiled=[kernel]) for result in results]

    now_from = dataclasses.replace(PROVENANCE, torch="2.13.0", triton="3.7.1", sources={"k": "2"})
    before, now = with_counts(league_run("first")), with_counts(league_run("second", 1.05), registers=40)
    text = str(report(before, now, now_from=now_from))
    for expected in ("torch 2.11.0 -> 2.13.0", "triton 3.6.0 -> 3.7.1", "source of k", "registers 32 -> 40"):
        assert expected in text
    assert "STG" not in text and "eager takes" in text
    assert "->" not in str(report(league_run("first"), league_run("second")))


def test_compiled_code_is_counted_without_a_gpu():
    """An argument that is 1 becomes a constant in Triton; such a kernel can be described as well."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from helpers.kernels import elementwise

    kernel = elementwise.square_elements_kernel
    signature = {"y_ptr": "*bf16", "x_ptr": "*bf16", "n_elements": "constexpr"}
    signature |= {"BLOCK_SIZE": "constexpr", "L2_HINT": "constexpr"}
    source = ASTSource(kernel, signature, {"n_elements": 1, "BLOCK_SIZE": 1024, "L2_HINT": "evict_last"})
    target = GPUTarget("cuda", 90, 32)
    made = compiled.describe(triton.compile(source, target=target, options={"num_warps": 8}))
    assert (made["kernel"], made["sha256"]) == records.fingerprint(kernel)
    assert made["counts"]["registers"] > 0 and made["counts"]["STG"] > 0


# The command, with a made-up GPU
# ------------------------------------------------------------------------------------------------------

BENCH = """
import torch
from workbook.bench import Case
from my_kernels import square


def cases():
    for n in (1000, 2000):
        x = torch.randn(n)
        yield Case({"n": n}, (x,), square, expected=torch.square, peers={"eager": torch.square})
"""


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """`workbook bench` with tensors on the CPU and with times that the test chooses.

    `bench.times` has a time for each function, and `bench.timed` lists the functions of each measurement.
    """
    times = {table.COPY: 100.0, table.OURS: 110.0, "eager": 120.0}
    timed: list[list[str]] = []

    def compare_many(functions, *, against, budget_s):
        timed.append(list(functions))
        for function in functions.values():
            function()

        def exact(value):
            return value, (value * 0.998, value * 1.002)

        ratios = {name: times[name] / times[against] for name in functions}
        return {
            name: RelativeTiming(name, *exact(times[name]), *exact(ratio), 50)
            for name, ratio in ratios.items()
        }

    gpu = type("Spec", (), {"name": PROVENANCE.gpu["name"]})
    monkeypatch.setattr(measure, "compare_many", compare_many)
    monkeypatch.setattr(measure, "host_us", lambda call, **_: 5.0)
    monkeypatch.setattr(measure, "describe_kernels", lambda call: [])
    monkeypatch.setattr(measure, "free_memory", lambda: None)
    monkeypatch.setattr(measure, "wait_for_gpu", lambda: None)
    monkeypatch.setattr(device, "require", lambda *names: None)
    monkeypatch.setattr(device, "gpu_spec", lambda: gpu)
    monkeypatch.setattr(regression, "live_provenance", lambda: PROVENANCE)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_kernels.py").write_text("def square(x):\n    return x * x\n")
    (tmp_path / "mine.py").write_text(BENCH)
    lines: list[str] = []

    def run(only=None, **options) -> int:
        for name in ("my_kernels", "bench_mine"):
            sys.modules.pop(name, None)
        lines.clear()
        timed.clear()
        return regression.bench(BenchOptions(**options), only or {}, say=lines.append)

    run.times, run.timed, run.lines, run.gpu = times, timed, lines, gpu
    yield run
    for name in ("my_kernels", "bench_mine"):
        sys.modules.pop(name, None)


def test_save_and_compare_your_own_file(bench, tmp_path):
    saved = tmp_path / "before.json"
    assert bench(file=tmp_path / "mine.py", save=saved) == 0
    case = json.loads(saved.read_text())["cases"][0]
    assert {(row["n"], row["contestant"]) for row in case["rows"]} == {
        (n, name) for n in (1000, 2000) for name in ("copy", "eager", "ours")
    }
    # Nothing changed.
    assert bench(against=str(saved)) == 0
    assert bench.timed == [["copy", "eager", "ours"]] * 2 and "2 unchanged" in bench.lines[-1]
    # A slower kernel: each point is measured a second time.
    bench.times[table.OURS] = 121.0
    assert bench(against=str(saved)) == 1
    assert len(bench.timed) == 4 and "1.100 ×" in bench.lines[-1]
    assert bench(against=str(saved), least=15) == 0
    assert bench(against=str(saved), only={"n": ["2000"]}) == 1 and len(bench.timed) == 2
    # A wrong kernel fails and is never timed.
    (tmp_path / "my_kernels.py").write_text("def square(x):\n    return x + x\n")
    assert bench(against=str(saved)) == 1
    assert not bench.timed and "Mismatch" in bench.lines[-1]


def test_a_slowdown_that_does_not_repeat_is_no_regression(bench, tmp_path, monkeypatch):
    saved = tmp_path / "before.json"
    bench(file=tmp_path / "mine.py", save=saved)
    once = iter([121.0, 110.0, 110.0])
    measured = measure.compare_many

    def compare_many(functions, **options):
        bench.times[table.OURS] = next(once)
        return measured(functions, **options)

    monkeypatch.setattr(measure, "compare_many", compare_many)
    assert bench(against=str(saved)) == 0 and len(bench.timed) == 3


def test_the_recorded_league_can_be_compared_with(bench, tmp_path, monkeypatch):
    """benchmarks/kernels.py stores the record; a run of the same points is compared with it."""
    import kernels

    monkeypatch.setenv("WORKBOOK_RECORDS", str(tmp_path))
    monkeypatch.setenv("WORKBOOK_RECORD", "0")
    monkeypatch.setattr("helpers.records.replay.live_provenance", lambda: PROVENANCE)
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    made = {"kernel": "softmax_tiles_kernel", "sha256": "1", "counts": {"registers": 32}}
    point = {"op": "softmax", "dtype": "float32", "n_rows": 1024, "n_cols": 4096}
    timings = {
        name: RelativeTiming(name, us, (us, us), us / 2, (us / 2, us / 2), 50)
        for name, us in (("copy", 1.0), ("ours", 2.0))
    }
    rows = table.rows_of(point, 1 << 25, timings, {}, {})
    kernels.record(rows, [{**point, "contestant": "ours", "compiled": [made]}])
    run = regression.EarlierRun.read("fusion/league")
    (result,) = run.results
    assert run.suite == points.LEAGUE and result.point == point and result.compiled == [made]
    assert (result.ratio.value, result.us.value) == (2, 2)


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_the_stored_leagues_can_be_read(bench, gpu):
    bench.gpu.name = f"NVIDIA {gpu.upper()}"
    run = regression.EarlierRun.read("fusion/league")
    known = {points.key(task.point) for task in points.tasks(points.LEAGUE)}
    assert {points.key(result.point) for result in run.results} <= known
    assert sum(result.us is not None for result in run.results) > 90


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"against": "none.json"}, "none.json"),
        ({"against": "mine.py"}, "mine.py"),
        ({"against": "before.json", "only": {"n": ["3"]}}, "n=3"),
        ({"file": Path("mine.py"), "only": {"m": ["3"]}}, "m=3"),
        ({"file": Path("none.py")}, "none.py"),
        ({"file": Path("mine.py"), "save": Path("mine.py")}, "--save mine.py"),
        ({"file": Path("mine.py"), "save": Path("thesis.json")}, "thesis.json"),
    ],
)
def test_wrong_files_and_points_are_refused(bench, tmp_path, monkeypatch, options, expected):
    monkeypatch.chdir(tmp_path)
    Path("thesis.json").write_text('{"chapters": 7}')
    bench(file=Path("mine.py"), save=Path("before.json"))
    with pytest.raises(UsageError, match=expected) as raised:
        bench(**options)
    assert len(str(raised.value).splitlines()) == 1
    assert Path("thesis.json").read_text() == '{"chapters": 7}'


def test_times_of_another_gpu_are_not_compared(bench, tmp_path):
    bench(file=tmp_path / "mine.py", save=tmp_path / "before.json")
    bench.gpu.name = "NVIDIA B200"
    with pytest.raises(UsageError, match=r"NVIDIA H100 80GB HBM3.* NVIDIA B200"):
        bench(against=str(tmp_path / "before.json"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", r"mine.py .*cases\(\)"),
        ("def cases():\n    yield 3\n", "int .*Case"),
        ("import no_such_module\n", "mine.py .*ModuleNotFoundError"),
        ("def cases():\n    raise RuntimeError('no')\n    yield\n", "mine.py .*RuntimeError: no"),
    ],
)
def test_a_file_without_cases_is_refused(bench, tmp_path, text, expected):
    (tmp_path / "mine.py").write_text(text)
    path = list(sys.path)
    with pytest.raises(UsageError, match=expected):
        bench(file=tmp_path / "mine.py")
    assert sys.path == path


@pytest.mark.skipif(device.has_gpu(), reason="this machine has a GPU")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "NVIDIA GPU"),
        ("--only n", "--only 'n'"),
        ("--least -1", "--least -1"),
        ("--seconds 0", "--seconds 0"),
    ],
)
def test_wrong_options_and_a_missing_gpu_are_refused(refusal, arguments, expected):
    assert expected in refusal("bench", *arguments.split())


def test_the_hosts_clock_cannot_be_replaced(monkeypatch):
    import time

    monkeypatch.setattr(measure, "wait_for_gpu", lambda: None)
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    assert measure.host_us(lambda: time.sleep(1e-3), n_calls=2, repeats=3) > 900


# On a GPU
# ------------------------------------------------------------------------------------------------------

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def scale_kernel(y_ptr, x_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, BODY, mask=offsets < n)
"""

TRITON_BENCH = """
import torch
import triton
from workbook.bench import Case
from scaled import scale_kernel


def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](y, x, x.numel(), BLOCK_SIZE=1024)
    return y


def cases():
    x = torch.randn(1 << 26, device="cuda")
    yield Case({"n": x.numel()}, (x,), scale, expected=lambda x: 2 * x, peers={"eager": lambda x: 2 * x})
"""


def run_bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    how = {"cwd": folder, "env": environment(), "capture_output": True, "text": True, "timeout": 600}
    return subprocess.run(command("bench", *arguments), **how)


@pytest.mark.gpu
def test_a_slower_kernel_is_found_on_a_gpu(tmp_path):
    (tmp_path / "scaled.py").write_text(KERNEL.replace("BODY", "x * 2.0"))
    (tmp_path / "mine.py").write_text(textwrap.dedent(TRITON_BENCH))
    done = run_bench(tmp_path, "mine.py", "--save", "before.json")
    assert done.returncode == 0, done.stdout + done.stderr
    (kernels,) = json.loads((tmp_path / "before.json").read_text())["cases"][0]["kernels"]
    (made,) = kernels["compiled"]
    assert made["kernel"] == "scale_kernel" and made["counts"]["registers"] > 0
    done = run_bench(tmp_path, "--against", "before.json")
    assert done.returncode == 0, done.stdout + done.stderr
    wave = "x * 2.0 + 0.0 * (" + " + ".join(f"tl.sin(x * {i}.5) * tl.cos(x + {i})" for i in range(40)) + ")"
    (tmp_path / "scaled.py").write_text(KERNEL.replace("BODY", wave))
    done = run_bench(tmp_path, "--against", "before.json")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "source of scale_kernel" in done.stdout and "registers" in done.stdout


@pytest.mark.gpu
def test_the_kernels_that_our_operators_launch_are_found_on_a_gpu():
    """`helpers.kernels` launches compiled kernels without Triton's own lookup; those are found as well."""
    from helpers.kernels import ops

    x = torch.randn(4096, 4096, device="cuda")
    for _ in range(2):  # newly compiled, then from the cache
        for op, kernel in (("square", "square_elements_kernel"), ("softmax", "softmax_split_kernel")):
            (made,) = compiled.describe_kernels(lambda op=op: getattr(ops, op)(x))
            assert made["kernel"] == kernel and made["counts"]["LDG"] > 0


@pytest.mark.gpu
def test_a_point_of_the_league_repeats_on_a_gpu(tmp_path):
    chosen = ("--only", "op=softmax", "--only", "dtype=float32", "--only", "n_cols=8192")
    for option in ("--save", "--against"):
        done = run_bench(ROOT, *chosen, option, str(tmp_path / "league.json"))
        assert done.returncode == 0, done.stdout + done.stderr
