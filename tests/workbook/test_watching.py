"""Watching a batch: the index and the notebook while it runs, logs, limits, and which notebooks run where."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import nbformat
import pytest
from batches import printed, wait_for

from workbook import batch
from workbook.batch import notebook_runs, plan, progress
from workbook.options import RunOptions
from workbook.usage import UsageError

# Starts the command, which writes an index page twice a second even if no notebook ends.
NEWS = "from workbook import cli; from workbook.batch import batch_run; batch_run._NEWS_S = 0.5; cli.main()"


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that a waiting cell waits_for for."""
    return tmp_path / "gate"


def waits_for(gate: Path) -> str:
    return f"""\
import pathlib, time
while not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.05)"""


def read(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


# --- while it runs ------------------------------------------------------------------------------------------


def test_the_index_of_a_running_batch_reloads_and_shows_progress(make_notebook, tmp_path, gate, started):
    quick, bad = make_notebook("1_quick", "print(1)"), make_notebook("2_bad", "1/0")
    slow = make_notebook("3_slow", "print('begun')", waits_for(gate))
    out = tmp_path / "out"
    process = started("run", quick, bad, slow, "--out", out, python=("-c", NEWS))
    wait_for(lambda: "cell 2 of 2, cell-1" in read(out / "index.html"), process)
    index = read(out / "index.html")
    assert re.search(r"1 ok, 1 failed, 1 running.*about .* left", index)
    assert 'class="done" style="width:33.333%"' in index and 'class="bad" style="width:33.333%"' in index
    assert "location.reload()" in index and '<td class="status running">running' in index
    assert json.loads(read(out / "report.json"))["running"] is True
    gate.touch()
    assert process.wait(120) == 1
    index = read(out / "index.html")
    assert "reload" not in index and 'class="progress"' not in index and "s left" not in index
    assert json.loads(read(out / "report.json"))["running"] is False


def test_a_running_notebook_can_be_opened_and_never_counts_as_finished(
    make_notebook, tmp_path, gate, started
):
    slow = make_notebook("slow", "print('first')", f"print('second', flush=True)\n{waits_for(gate)}", "1/1")
    out, so_far = tmp_path / "out", tmp_path / "out" / "running" / "slow.ipynb"
    process = started("run", slow, "--out", out, python=("-c", NEWS))
    wait_for(so_far.exists, process)
    assert printed(so_far) == "first\nsecond\n"
    nbformat.validate(nbformat.read(so_far, 4))
    wait_for(lambda: 'href="running/slow.ipynb"' in read(out / "index.html"), process)
    process.kill()
    process.wait()
    assert so_far.exists() and not (out / "slow.ipynb").exists()
    so_far.rename(out / "slow.ipynb")  # at its worst
    gate.touch()
    resumed = batch.run_course([slow], out, resume=True)
    assert resumed.runs[0].status == "ok" and printed(out / "slow.ipynb") == "first\nsecond\n"
    assert not (out / "running").exists()


def test_the_log_has_the_output_of_each_cell(make_notebook, tmp_path):
    talks = "import os, sys\nprint('out')\nprint('err', file=sys.stderr)\nos.write(2, b'raw')\n6 * 7"
    source = make_notebook("one", ("n: int = 1", "parameters"), talks, "raise ValueError('boom')")
    quiet = make_notebook("two", "1")
    report = batch.run_course([source, quiet], tmp_path / "out", {"n": "3"}, log_output=True)
    log = (tmp_path / "out" / "one.log").read_text()
    for line in ("one.ipynb, n = 3", "cell cell-1, 3 of 4", "out", "err", "raw", "42", "ValueError: boom"):
        assert re.search(rf"^(\[\d\d:\d\d:\d\d\] )?{re.escape(line)}$", log, re.MULTILINE), (line, log)
    assert re.search(r"\] failed: cell cell-2: ValueError: boom \(line 1: .*\)\n$", log)
    assert (tmp_path / "out" / "two.log").read_text().endswith("] ok\n") and "\x1b" not in log
    assert 'href="one.log"' in (tmp_path / "out" / "index.html").read_text() and len(report.runs) == 2


def test_the_time_left_counts_only_notebooks_that_ran():
    def row(status: str, seconds: float) -> notebook_runs.NotebookRun:
        return notebook_runs.NotebookRun("n", "s", "t", status, {}, seconds=seconds)

    watched = progress.Progress()
    assert watched.left_s([row("kept", 100)], 10) is None
    assert watched.left_s([row("kept", 100), row("ok", 4), row("failed", 2)], 10) == 3 * 7
    assert watched.left_s([row("ok", 4)], 1) is None
    assert progress.counted([row("failed", 1), row("ok", 1)], 3, "2 min 00 s") == (
        "3 running, 1 failed, about 2 min 00 s left"
    )
    assert [notebook_runs.in_time(s) for s in (0.4, 59.6, 3599, 7500)] == [
        "0 s",
        "1 min 00 s",
        "59 min 59 s",
        "2 h 05 min",
    ]


# --- limits -------------------------------------------------------------------------------------------------


def test_a_notebook_that_takes_too_long_is_stopped(make_notebook, tmp_path):
    naps = ["import time; time.sleep(0.4)", *["time.sleep(0.4)"] * 300]
    report = batch.run_course([make_notebook("naps", *naps)], tmp_path / "out", notebook_timeout=4)
    failure = report.runs[0].failure
    assert failure.kind == "timeout" and re.search(r"cell cell-\d+ .* the notebook .* 4 s", failure.message)
    assert len(report.runs[0].cells) < 300 and (tmp_path / "out" / "naps.html").is_file()


EATS = """\
import subprocess, sys
code = "import time; block = bytearray(400_000_000); print('has it', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
child.wait()"""


def test_the_memory_limit_counts_all_processes_of_the_notebook(make_notebook, tmp_path):
    eats, good = make_notebook("eats", EATS), make_notebook("good", "print('fine')")
    report = batch.run_course([eats, good], tmp_path / "out", memory_limit=300)
    failure = report.runs[0].failure
    assert failure.kind == "memory"
    assert re.search(r"cell cell-0 .* \d\d\d MB, .*--memory-limit is 300 MB", failure.message)
    assert report.runs[1].status == "ok" and report.runs[1].peak_mb < 300
    assert "--memory-limit" in printed(tmp_path / "out" / "eats.ipynb")


def test_a_kernel_that_never_answers_fails(make_notebook, tmp_path, kernels):
    kernels("mute", "sleep", "600")
    report = batch.run_course([make_notebook("one", "1")], tmp_path / "out", kernel="mute", start_timeout=1.0)
    failure = report.runs[0].failure
    assert failure.kind == "start" and "1 s" in failure.message


# --- what runs, where, in what ------------------------------------------------------------------------------


def test_kernel_option(make_notebook, tmp_path, kernels, refusal):
    kernels("mine", sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", WHOSE="mine")
    other = {
        "kernelspec": {"name": "ir", "display_name": "R", "language": "R"},
        "language_info": {"name": "R"},
    }
    shows = "import os; print(os.environ['WHOSE'], n)"
    source = make_notebook("one", ("n: int = 1", "parameters"), shows, metadata=other)
    report = batch.run_course([source], tmp_path / "out", {"n": "2"}, kernel="mine")
    assert report.ok and printed(tmp_path / "out" / "one.ipynb") == "mine 2\n"
    line = refusal("run", source, "--kernel", "yours", "--out", "other")
    assert "yours" in line and "python3" in line and not (tmp_path / "other").exists()


def test_cwd_option(make_notebook, tmp_path, workbook, refusal):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "near.txt").write_text("here")
    source = make_notebook("one", "print(open('near.txt').read())")
    assert workbook("run", source, "--cwd", "data", "--out", "out").returncode == 0
    assert printed(tmp_path / "out" / "one.ipynb") == "here\n"
    elsewhere = batch.run_course([source], tmp_path / "out", resume=True)
    assert elsewhere.runs[0].status == "failed"  # in its own folder it is other work
    assert "--cwd nowhere" in refusal("run", source, "--cwd", "nowhere", "--out", "out2")


def test_recursive_and_exclude(make_notebook, tmp_path):
    for folder in ("all", "all/a/x", "all/b/x", "all/.hidden", "all/a/.ipynb_checkpoints", "all/out"):
        make_notebook("same", "1", folder=folder)
    make_notebook("draft_1", "1", folder="all/a")
    make_notebook("only", "1", folder="all/old")
    top, out = tmp_path / "all", tmp_path / "all" / "out"

    def names(**options: object) -> list[str]:
        return [job.name for job in plan.plan([top], RunOptions(out=out, **options))]

    assert names() == ["same"]
    assert names(recursive=True) == ["draft_1", "a-x-same", "b-x-same", "only", "all-same"]
    assert names(recursive=True, exclude=["draft_*", "old/*", "*/x/*"]) == ["same"]
    assert names(exclude=["other"]) == ["same"]
    with pytest.raises(UsageError, match="--exclude"):
        names(exclude=["*"])
    with pytest.raises(UsageError, match="--recursive"):
        plan.plan([tmp_path / "all" / "b"], RunOptions())
    named = plan.plan([top / "same.ipynb"], RunOptions(exclude=["same*"]))  # a file that is named is meant
    assert [job.name for job in named] == ["same"]


def test_fail_fast_starts_no_further_notebook(make_notebook, tmp_path, workbook):
    sources = [make_notebook("1_good", "1"), make_notebook("2_bad", "1/0")]
    sources += [make_notebook(f"{n}_later", "1") for n in (3, 4)]
    result = workbook("run", *sources, "--out", "out", "--fail-fast")
    assert result.returncode == 1
    assert re.search(r"--fail-fast\).* 2 of 4", result.stdout)
    saved = json.loads((tmp_path / "out" / "report.json").read_text())["notebooks"]
    assert [n["status"] for n in saved] == ["ok", "failed", "not run", "not run"]
    assert "stopped at the first failure" in (tmp_path / "out" / "index.html").read_text()
