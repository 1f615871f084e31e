"""ncu is called right, on a script, a path or a command; where it cannot run, the record is shown."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from helpers import device, ncu, records
from helpers.ncu import runner


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


def test_shell_line_breaks_before_options():
    words = ncu.command(
        ["python", "train.py"], out="step", nvtx="step 3", sections=["SpeedOfLight", "SourceCounters"]
    )
    line = ncu.shell_line(words)
    assert all(len(part) <= 105 for part in line.splitlines())
    assert shlex.split(line.replace("\\\n", " ")) == words
    assert ncu.shell_line(["ncu", "--set", "full", "a.py"]) == "ncu --set full a.py"


def test_no_gpu_here(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    assert ncu.why_not().reason == "no-gpu"
    with pytest.raises(ncu.NcuError, match="this machine has none"):
        ncu.run("pass\n", out=tmp_path / "r.ncu-rep")


def test_run_writes_the_report(stand_in, capsys):
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
    time.sleep(3.2)
    assert not mark.exists()  # the script ended with ncu


@pytest.mark.parametrize(
    "says", ["==ERROR== ERR_NVGPUCTRPERM - The user", "==ERROR== Failed: LibraryNotLoaded."]
)
def test_a_gpu_without_permission_replays_and_prints_the_reason(stand_in, monkeypatch, capsys, says):
    here = json.loads(next(records.folder().glob("*/ncu/five-grids.json")).read_text())["cases"][0][
        "provenance"
    ]
    monkeypatch.setattr("helpers.records.replay.live_provenance", lambda: records.Provenance(**here))
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


@pytest.fixture
def own_records(stand_in, monkeypatch):
    """Records of their own, which begin empty, written as if on the recorded GPU."""
    here = json.loads(next(records.folder().glob("*/ncu/five-grids.json")).read_text())["cases"][0][
        "provenance"
    ]
    monkeypatch.setattr("helpers.records.replay.live_provenance", lambda: records.Provenance(**here))
    monkeypatch.setenv("WORKBOOK_CACHE", str(stand_in / "cache"))
    monkeypatch.setenv("WORKBOOK_RECORDS", str(stand_in / "records"))
    return stand_in


def test_a_line_runs_as_in_a_terminal_and_is_replayed(own_records, monkeypatch, capsys):
    script = own_records / "train.py"
    script.write_text("print('trained')")
    line = f"--set full --export {own_records / 'mine'} python {script}"
    monkeypatch.setenv("WORKBOOK_RECORD", "1")
    # the stand-in finds the script behind this Python's own path
    ncu.terminal(line.replace("python", sys.executable))
    assert len(ncu.load_report(own_records / "mine.ncu-rep")) == 5
    assert "==PROF== Connected to process 1\ntrained\n" in capsys.readouterr().out
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    ncu.terminal(line)
    replayed = capsys.readouterr().out
    assert "trained\n" in replayed and "Replayed, not measured here" in replayed
    assert str(own_records) not in next((own_records / "records").rglob("terminal.json")).read_text()


def test_a_line_without_gpu_and_record_prints_that(own_records, monkeypatch, capsys):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    ncu.terminal("--set full python train.py")
    assert "There is no GPU here." in capsys.readouterr().out


def test_a_line_that_ncu_refuses_shows_the_reason(own_records, monkeypatch, capsys):
    monkeypatch.setenv("NCU_SAYS", "==ERROR== unrecognised option '--sett'. Use --help for further details.")
    with pytest.raises(ncu.NcuError, match="--sett"):
        ncu.terminal(f"--sett full {sys.executable} train.py")
    monkeypatch.setenv("NCU_SAYS", "==ERROR== ERR_NVGPUCTRPERM - The user")
    ncu.terminal(f"--set full {sys.executable} train.py")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("==PROF== Report: /a/b-1/c.ncu-rep", "==PROF== Report: c.ncu-rep"),
        ("process 7 (/usr/bin/python3.11)", "process 7 (python3.11)"),
        (
            "see https://developer.nvidia.com/ERR_NVGPUCTRPERM",
            "see https://developer.nvidia.com/ERR_NVGPUCTRPERM",
        ),
        ("-o out/squares python a/b.py", "-o out/squares python a/b.py"),
    ],
)
def test_folders_are_removed_from_a_lines_output(text, cut):
    assert runner.without_folders(text) == cut
