"""helpers.ncu: reports are read right, ncu is called right, and each failure is one sentence.

The report is the recorded one of lesson 05 (five launches of a square, 1 to 4096 rows); no test needs a GPU. Where
ncu itself must run, a small stand-in takes its place: it runs the script as ncu does and hands out the report.
"""

from __future__ import annotations

import itertools
import math
import os
import shlex
import stat
import sys
import textwrap
import types
from pathlib import Path

import pytest

from helpers import device, ncu, records
from helpers.ncu import figures, magic, reader, views

ROWS = [1, 8, 64, 512, 4096]
COLUMNS = 4096


def _recorded() -> Path:
    found = sorted(records.folder().glob("*/ncu/five-grids*.ncu-rep"))
    assert found, f"no recorded report ncu/five-grids in {records.folder()}: run `make record` on a GPU"
    return found[0]


@pytest.fixture(scope="module")
def report() -> ncu.Report:
    return ncu.load_report(_recorded())


# --- reading


def test_launches_of_the_report(report):
    assert [kernel.n_blocks for kernel in report] == ROWS
    assert [kernel.grid for kernel in report] == [(n, 1, 1) for n in ROWS]
    assert all("square" in kernel.name for kernel in report)
    assert len(report) == 5 and report[-1] is report[4]
    assert "5 launches" in repr(report) and report.gpu in repr(report)
    with pytest.raises(IndexError, match="5 launches; there is no number 7"):
        report[7]


def test_counters_by_name(report):
    metrics = report[4].metrics
    assert len(metrics) > 500 and "gpu__time_duration.sum" in metrics
    assert metrics["launch__grid_size"] == 4096
    assert metrics.unit("gpu__time_duration.sum") == "ns"
    assert metrics.get("no_such_counter", 7) == 7 and metrics.instances("no_such_counter") == {}
    with pytest.raises(KeyError, match=r"dram__bytes_read\.sum"):
        metrics["dram__bytes_red.sum"]


def test_a_report_that_is_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no report"):
        ncu.load_report(tmp_path / "none.ncu-rep")
    (tmp_path / "text.ncu-rep").write_text("not a report")
    with pytest.raises(ncu.ReportError, match=r"text\.ncu-rep is no Nsight Compute report"):
        ncu.load_report(tmp_path / "text.ncu-rep")
    (tmp_path / "cut.ncu-rep").write_bytes(_recorded().read_bytes()[:60_000])
    with pytest.raises(ncu.ReportError, match="holds no launches"):
        ncu.load_report(tmp_path / "cut.ncu-rep")


def test_summary_has_the_columns_of_ncus_summary_page(report, tmp_path):
    import pandas as pd

    table = ncu.summary(report)
    assert list(table.columns[:10]) == [
        "est_speedup_percent",
        "function_name",
        "demangled_name",
        "duration_us",
        "runtime_improvement_us",
        "compute_throughput_percent",
        "memory_throughput_percent",
        "registers_per_thread",
        "grid_size",
        "block_size",
    ]
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


def test_advice_is_sorted_and_readable(report):
    table = ncu.advice(report)
    assert set(table.kind) == {"advice"} and set(table.launch) == set(range(5))
    for _, rows in table.groupby("launch"):
        ranks = rows.speedup_type.map({"global": 0, "local": 1, "": 2})
        assert ranks.is_monotonic_increasing
        assert rows[rows.speedup_type == "global"].est_speedup_percent.is_monotonic_decreasing
    assert not table.message.str.contains("@").any()
    small = report[0].rule("LaunchConfiguration")
    assert small.title == "Small Grid"
    sm_count = report[0].metrics["launch__sm_count"]
    assert small.speedup_percent == pytest.approx(100 * (1 - 1 / sm_count))
    assert (
        ncu.summary(report).est_speedup_percent[0]
        == table[table.speedup_type == "global"].est_speedup_percent.max()
    )
    assert len(ncu.advice(report, 0)) == len(ncu.advice(report[0])) < len(ncu.advice(report, 0, notes=True))
    assert (ncu.advice(report, from_percent=50).est_speedup_percent.dropna() >= 50).all()


def test_marks_become_text_and_links():
    markup = "See @section:LaunchStats:Launch Statistics@ & the @url:Guide:https://x.org/a?b#c@, at @sass:0x10:FMUL@."
    assert ncu.readable(markup) == "See Launch Statistics & the Guide (https://x.org/a?b#c), at FMUL."
    from helpers.ncu.rules import readable_html

    html = readable_html(markup)
    assert '<a href="https://x.org/a?b#c">Guide</a>' in html
    assert "<i>Launch Statistics</i> &amp; the" in html
    assert ncu.readable("user@host pays 5 @ a piece") == "user@host pays 5 @ a piece"


def test_advice_html_folds_by_launch(report):
    assert ncu.advice_html(report).count("<details>") == 5
    assert ncu.advice_html(report, 4).count("<details open>") == 1


# --- hot lines, roofline, sectors, occupancy, time


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
    assert set(code[code.samples > 0].top_stall) <= set(views.STALLS) | {
        "membar",
        "misc",
        "sleeping",
        "tex_throttle",
    }
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
    for table, section in (
        (ncu.instructions, "SourceCounters"),
        (ncu.source_lines, "SourceCounters"),
        (ncu.roofline_points, "RooflineChart"),
        (ncu.occupancy, "Occupancy"),
    ):
        with pytest.raises(ncu.ReportError, match=section):
            table(kernel)


# --- the command


def test_command_line():
    words = ncu.command(
        ["python", "a.py"], out="r", kernel="sq", nvtx="step 3", launch_skip=1, launch_count=2
    )
    assert words[0] == "ncu" and words[-2:] == ["python", "a.py"]
    pairs = dict(itertools.pairwise(words))
    assert (
        pairs["--clock-control"] == "none" and pairs["--set"] == "full" and pairs["--import-source"] == "yes"
    )
    assert pairs["--kernel-name"] == "regex:sq" and pairs["--nvtx-include"] == "step 3/"
    assert pairs["--launch-skip"] == "1" and pairs["--launch-count"] == "2"
    few = ncu.command(
        ["x"], out="r", sections=["Occupancy"], metrics=["a", "b"], nvtx="lib@step", clock_control="base"
    )
    pairs = dict(itertools.pairwise(few))
    assert "--set" not in few and pairs["--section"] == "Occupancy" and pairs["--metrics"] == "a,b"
    assert pairs["--nvtx-include"] == "lib@step" and pairs["--clock-control"] == "base"


@pytest.mark.parametrize(
    ("text", "status", "reason", "says"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not",
            1,
            "permission",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not", 1, "permission", "--cap-add=SYS_ADMIN"),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not", 1, "permission", "sudo"),
        (
            "==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. add\n2. mul",
            0,
            "no-kernels",
            "add, mul",
        ),
        ("==WARNING== No kernels were profiled.", 0, "no-kernels", "'square'"),
        (
            "before\nTraceback (most recent call last):\n  File x\nKeyError: 3\n==ERROR== The application returned an error code (1).\n"
            "==WARNING== No kernels were profiled.",
            1,
            "script",
            "KeyError: 3",
        ),
        (
            "bye\n==ERROR== The application returned an error code (9).\n==WARNING== No kernels were profiled.",
            9,
            "script",
            "bye",
        ),
        (
            "==ERROR== Failed to initialize the profiler: LibraryNotLoaded. Check that a compatible driver",
            1,
            "driver",
            "fit together",
        ),
        ("==ERROR== Profiling failed because a driver resource was unavailable.", 1, "busy", "DCGM"),
        ("==ERROR== unrecognised option '--sett'. Use --help for further details.", 1, "option", "--sett"),
        ("==ERROR== Something new.", 1, "other", "Something new"),
        ("", 3, "other", "exit status 3"),
    ],
)
def test_diagnoses(text, status, reason, says):
    error = ncu.diagnose(text, status, {"kernel": "square"})
    assert error.reason == reason and says in str(error)
    assert "before" not in str(error)


def test_nothing_launched_at_all():
    assert "launched no kernel" in str(ncu.diagnose("==WARNING== No kernels were profiled.", 0, {}))


def test_no_gpu_here(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    assert ncu.why_not().reason == "no-gpu"
    with pytest.raises(ncu.NcuError, match="this machine has none"):
        ncu.run("pass\n", out=tmp_path / "r.ncu-rep")


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """A GPU and an ncu that runs the script and hands out the recorded report; the environment's NCU_SAYS changes that."""
    program = tmp_path / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        + textwrap.dedent(
            """
            import json, os, pathlib, shutil, subprocess, sys
            words = sys.argv[1:]
            script = next(i for i, w in enumerate(words) if w == sys.executable)
            pathlib.Path(os.environ["NCU_CALLED"]).write_text(json.dumps(words))
            print("==PROF== Connected to process 1", flush=True)
            says = os.environ.get("NCU_SAYS")
            if says:
                print(says)
                sys.exit(1)
            status = subprocess.run(words[script:]).returncode
            if status:
                print(f"==ERROR== The application returned an error code ({status}).")
                sys.exit(status)
            shutil.copy(os.environ["NCU_REPORT"], words[words.index("--export") + 1] + ".ncu-rep")
            """
        )
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("NCU_REPORT", str(_recorded()))
    monkeypatch.setenv("NCU_CALLED", str(tmp_path / "called.json"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    monkeypatch.setattr(device, "find_tool", lambda name: program if name == "ncu" else None)
    monkeypatch.setattr(device, "counters_allowed", lambda: None)
    return tmp_path


def test_run_keeps_the_report_whole(stand_in, capsys):
    import json

    out = stand_in / "deep" / "grids.ncu-rep"
    code = "import os, helpers\nprint('interpreted:', os.environ.get('TRITON_INTERPRET'))\n"
    assert ncu.run(code, out=out, kernel="square", echo=True) == out
    assert len(ncu.load_report(out)) == 5
    assert capsys.readouterr().out == "interpreted: None\n"
    assert os.listdir(out.parent) == ["grids.ncu-rep"]
    called = json.loads((stand_in / "called.json").read_text())
    assert called[called.index("--kernel-name") + 1] == "regex:square"
    assert not Path(called[-1]).exists()  # the script's folder is gone


def test_run_takes_a_path_or_a_command(stand_in):
    script = stand_in / "train.py"
    script.write_text("import sys; assert sys.argv[1:] in ([], ['-n', '3'])")
    ncu.run(script, out=stand_in / "a.ncu-rep")
    ncu.run([sys.executable, script, "-n", "3"], out=stand_in / "b.ncu-rep")
    with pytest.raises(FileNotFoundError, match=r"no script .*nothing\.py"):
        ncu.run(stand_in / "nothing.py", out=stand_in / "c.ncu-rep")
    with pytest.raises(ValueError, match=r"ends with \.ncu-rep"):
        ncu.run(script, out=stand_in / "c.rep")


def test_run_shows_the_scripts_traceback_and_leaves_the_old_report(stand_in):
    out = stand_in / "r.ncu-rep"
    out.write_text("the old one")
    with pytest.raises(ncu.NcuError, match=r"(?s)script failed.*line 2.*ZeroDivisionError") as error:
        ncu.run("print('hello')\n1 / 0\n", out=out)
    assert error.value.reason == "script" and "hello" in error.value.output
    assert out.read_text() == "the old one"


def test_run_stops_a_script_that_hangs(stand_in):
    mark = stand_in / "alive"
    code = f"import time\ntime.sleep(3)\nopen({str(mark)!r}, 'w')\n"
    with pytest.raises(ncu.NcuError, match=r"stopped after 0\.5 seconds") as error:
        ncu.run(code, out=stand_in / "r.ncu-rep", timeout_s=0.5)
    assert error.value.reason == "timeout"
    import time

    time.sleep(3.2)
    assert not mark.exists()  # the script ended with ncu


# --- the magic


def test_free_names():
    code = """
    import torch
    n = 3
    for i in range(n):
        x = torch.empty(i, width)
        kernel[(n,)](x, [z for z in sizes])
    def f(a, b=default):
        global counter
        counter = 0
        return helper(a) + tl.load(b) + counter
    class C(Base):
        y = width
    """
    assert magic.free_names(textwrap.dedent(code)) == [
        "Base",
        "default",
        "helper",
        "kernel",
        "sizes",
        "tl",
        "width",
    ]


NOTEBOOK = """
import math
from pathlib import Path as P

factor = 3
table = {"a": (1, 2.5)}
tensor = object()

def double(x):
    return 2 * x

def scaled(x):
    return double(x) * factor + math.floor(2.5)

def recursive(n):
    return n and recursive(n - 1)

def needs_tensor():
    return tensor
"""


@pytest.fixture
def notebook(tmp_path):
    """The namespace of a notebook whose cells Python can find, as IPython's are."""
    import linecache

    name = str(tmp_path / "cell-of-a-notebook.py")
    linecache.cache[name] = (len(NOTEBOOK), None, NOTEBOOK.splitlines(True), name)
    namespace = {"__name__": "__main__"}
    exec(compile(NOTEBOOK, name, "exec"), namespace)
    return namespace


def test_a_cell_brings_what_it_uses(notebook):
    brought = magic.bring("print(scaled(1), table, recursive(2), P)", notebook)
    space = {}
    exec(brought.text, space)
    assert space["scaled"](5) == 32 and space["recursive"](3) == 0 and space["table"] == {"a": (1, 2.5)}
    assert space["P"] is Path
    assert brought.values == {"factor": 3}  # what the measurement depends on
    assert sorted(brought.names) == ["P", "double", "factor", "math", "recursive", "scaled", "table"]


def test_a_triton_kernel_goes_along(monkeypatch):
    pytest.importorskip("triton")
    from helpers.kernels.square import square_flat_kernel

    brought = magic.bring("square_flat_kernel[(1,)]()", {"square_flat_kernel": square_flat_kernel})
    assert brought.text == "from helpers.kernels.square import square_flat_kernel as square_flat_kernel\n"
    assert brought.kernels == [square_flat_kernel]


@pytest.mark.parametrize(
    ("cell", "who"), [("tensor", "The cell uses tensor"), ("needs_tensor()", "needs_tensor uses tensor")]
)
def test_tensors_stay_behind(notebook, cell, who):
    with pytest.raises(ValueError, match=f"{who}, which is a object .* make tensor inside the cell"):
        magic.bring(cell, notebook)


def test_the_magic_profiles_a_cell(stand_in, notebook, monkeypatch, capsys):
    monkeypatch.setenv("WORKBOOK_CACHE", str(stand_in / "cache"))
    kept = stand_in / "kept.ncu-rep"
    cell = "import sys\nprint(scaled(5), sys._getframe().f_lineno)\n"
    found = magic.run_cell(f"--name mine --kernel sq --quiet --out {kept}", cell, notebook)
    assert notebook["mine"] is ncu.last() is found and len(found) == 5
    assert capsys.readouterr().out == "32 3\n"  # the magic's line is line 1, as in the notebook
    assert len(ncu.load_report(kept)) == 5


def test_last_needs_a_cell(monkeypatch):
    monkeypatch.setattr(magic, "_last", None)
    with pytest.raises(RuntimeError, match="No %%ncu cell has run"):
        ncu.last()


def test_the_magics_options_are_checked(notebook):
    with pytest.raises(ValueError, match="unrecognized arguments: --sett"):
        magic.run_cell("--sett full", "1", notebook)
    with pytest.raises(ValueError, match="needs the name of a variable"):
        magic.run_cell("--name 3d", "1", notebook)


def test_load_ext_in_a_shell(monkeypatch, capsys):
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setattr(device, "has_gpu", lambda: False)
    shell = InteractiveShell()
    assert shell.run_cell("%load_ext helpers.ncu").success
    shell.run_cell_magic("ncu", "--help", "pass\n")
    assert "--record" in capsys.readouterr().out
    with pytest.raises(ncu.NcuError, match="this machine has none"):
        shell.run_cell_magic("ncu", "", "1\n")
    shell.run_cell_magic("ncu", "--record ncu/five-grids --name report", "1\n")
    assert len(shell.user_ns["report"]) == 5
    assert "Replayed, not measured here" in capsys.readouterr().out


@pytest.mark.parametrize(
    "says", ["==ERROR== ERR_NVGPUCTRPERM - The user", "==ERROR== Failed: LibraryNotLoaded."]
)
def test_a_gpu_without_permission_replays_and_says_why(stand_in, monkeypatch, capsys, says):
    import json

    here = json.loads(next(records.folder().glob("*/ncu/five-grids.json")).read_text())["cases"][0][
        "provenance"
    ]
    monkeypatch.setattr(records, "_live_provenance", lambda: records.Provenance(**here))
    monkeypatch.setenv("WORKBOOK_CACHE", str(stand_in / "cache"))
    monkeypatch.delenv("WORKBOOK_RECORD", raising=False)
    monkeypatch.setenv("NCU_SAYS", says)
    assert len(ncu.profile("ncu/five-grids", "pass\n")) == 5
    out = capsys.readouterr().out
    assert "Nsight Compute" in out.splitlines()[0] and "Replayed, not measured here" in out
    monkeypatch.delenv("NCU_SAYS")
    with pytest.raises(ncu.NcuError, match="ZeroDivisionError"):
        ncu.profile("ncu/five-grids", "1 / 0\n")  # the learner's own mistake is never papered over
    assert len(ncu.profile("ncu/five-grids", "pass\n")) == 5
    assert "Measured here" in capsys.readouterr().out


# --- what the lesson says about code and sectors

LESSON = Path(__file__).parents[2] / "notebooks" / "05_ncu.ipynb"

COMPILE = """
import json, re, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from helpers.kernels.square import square_rows_kernel as kernel

found = []
for n_cols, stride, block_size in json.loads(sys.argv[1]):
    signature = {n: "*fp32" if n.endswith("ptr") else "i32" for n in kernel.arg_names} | {"BLOCK_SIZE": "constexpr"}
    # what Triton sees at a launch: pointers are aligned to 16 bytes, integers either divide by 16 or do not
    values = [16, 16, stride, stride, n_cols]
    attributes = {(i,): [["tt.divisibility", 16]] for i, v in enumerate(values) if v % 16 == 0}
    source = ASTSource(kernel, signature, constexprs={(5,): block_size}, attrs=attributes)
    asm = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm
    per_thread = {int(n) for n in re.findall(r"sizePerThread = \\\\[(\\\\d+)\\\\]", asm["ttgir"])}
    vector = {int(n or 1) for n in re.findall(r"(?:ld|st)[.]global(?:[.]v(\\\\d))?[.]b32", asm["ptx"])}
    found.append([sorted(per_thread), sorted(vector), asm["ptx"].split(".visible .entry")[1].split("$L__func_end")[0]])
print(json.dumps(found))
""".replace("\\\\", "\\")


def _lesson_cell(cell_id: str) -> str:
    import json

    cells = {c["id"]: c["source"] for c in json.loads(LESSON.read_text())["cells"]}
    source = cells[cell_id]
    return source if isinstance(source, str) else "".join(source)


@pytest.fixture(scope="module")
def lesson():
    """The lesson's layouts and its prediction, run as they stand."""
    import contextlib
    import io

    import numpy as np
    import pandas as pd

    space = {"np": np, "pd": pd}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(_lesson_cell("check-alignment"), space)
    return space


def test_triton_gives_threads_what_the_lesson_says(lesson):
    """The layouts (elements a thread, vector width) are the compiler's own, and 781 and 792 are the same machine code."""
    pytest.importorskip("triton")
    import json
    import subprocess

    layouts = list(lesson["layouts"].values())
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    asked = json.dumps([layout[:3] for layout in layouts])
    ran = subprocess.run(
        [sys.executable, "-c", COMPILE, asked], capture_output=True, text=True, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert [f[:2] for f in found] == [[[per_thread], [vector]] for *_, per_thread, vector in layouts]
    assert found[0][2] == found[2][2]


def test_predicted_sectors_against_a_count_of_their_own(lesson):
    """Packed rows, counted in another way: by the sectors that each run of 128 bytes begins and ends in."""
    asked = 0
    for row in range(1823):
        for first in range(0, 781, 32):
            begin = (row * 781 + first) * 4
            end = (row * 781 + min(first + 32, 781)) * 4 - 1
            asked += end // 32 - begin // 32 + 1
    predicted = lesson["predicted"]
    assert predicted.sectors["packed, masked"] == 2 * asked
    assert predicted.sectors["rows 792 apart, masked"] == predicted.ideal["rows 792 apart, masked"]
    assert predicted.excess_percent["rows 784 apart, masked"] > 70


def test_predicted_sectors_are_the_counted_ones():
    path = _recorded().with_name("alignment.ncu-rep")
    counted = ncu.sectors(ncu.load_report(path))
    layouts = [(781, 781, 1024, 1, 1), (512, 781, 512, 1, 1), (781, 792, 1024, 1, 1)]
    layouts += [(781, 784, 1024, 4, 1), (784, 784, 1024, 4, 4)]
    for i, (n_cols, stride, block_size, per_thread, vector) in enumerate(layouts):
        said = ncu.predicted_sectors(1823, n_cols, stride, block_size, per_thread=per_thread, vector=vector)
        assert said["sectors"] == counted.ld_sectors[i] + counted.st_sectors[i]
        assert said["requests"] == counted.ld_requests[i] + counted.st_requests[i]
        assert said["ideal"] == counted.sectors_ideal[i]


def test_outcome_compares_promise_and_result(report):
    row = ncu.outcome("more rows", report[1], report[0], report[1].rule("LaunchConfiguration"))
    assert row["promised_us"] == pytest.approx(row["before_us"] * (1 - row["estimate_percent"] / 100))
    assert row["saved_percent"] == pytest.approx(100 * (1 - row["came_us"] / row["before_us"]))
    assert math.isnan(ncu.outcome("x", report[1], report[0], None)["promised_us"])


def test_the_summary_to_be_read_has_ncus_columns(report):
    html = figures.summary_table(report).to_html()
    assert "est. speedup (%)" in html and "demangled name" in html and "4096, 1, 1" in html


@pytest.mark.parametrize("draw", ["draw_over_time", "draw_occupancy", "draw_hot_instructions"])
def test_figures_of_a_launch_are_plain_json_with_units(report, draw):
    fig = getattr(figures, draw)(report[4], title="a launch")
    assert fig.to_json() and len(fig.data) > 1
    assert any(axis.title.text and "%" in axis.title.text for axis in fig.select_yaxes())


def test_shell_line_breaks_before_options():
    words = ncu.command(
        ["python", "train.py"], out="step", nvtx="step 3", sections=["SpeedOfLight", "SourceCounters"]
    )
    line = ncu.shell_line(words)
    assert all(len(part) <= 105 for part in line.splitlines())
    assert shlex.split(line.replace("\\\n", " ")) == words
    assert ncu.shell_line(["ncu", "--set", "full", "a.py"]) == "ncu --set full a.py"
