"""workbook.batch: real papermill runs on small notebooks, real kills, a real Ctrl-C."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from pathlib import Path

import nbformat
import pytest
from batches import has_ended
from commands import command, environment

from workbook import batch
from workbook.batch import executed, plan, point
from workbook.batch.parameters import Parameter, parse_value
from workbook.options import RunOptions
from workbook.usage import UsageError

FIGURE = """\
import plotly.graph_objects as go
go.Figure(go.Scatter(y=[1, 3, 2]), dict(title='a </script> b'))"""
LINKS = """\
# First lesson
Next: [second](02_second.ipynb#there), [text](near.txt), [web](https://a.example/b.ipynb)
[![badge](https://a.example/b.svg)](https://b.example)"""
RECORDS = """\
from IPython.display import publish_display_data as show
show({"text/plain": "h", "application/vnd.kernel-workbook.headline+json":
      {"label": "square <b>", "value": "266 µs", "source": "replayed, NVIDIA H100"}})
for mode, day in [("replayed", "2026-11-20"), ("replayed", "2026-11-21"), ("live", "2026-11-22")]:
    gpu = "Tesla T4" if mode == "live" else "NVIDIA H100"
    show({"text/plain": "p", "application/vnd.kernel-workbook.provenance+json":
          {"record": "a/b", "mode": mode, "gpu": gpu, "date": day, "text": "t"}})"""


def outputs(path: Path) -> dict[str, str]:
    """Cell id to everything it printed."""
    notebook = nbformat.read(path, as_version=4)
    return {c["id"]: "".join(o.get("text", "") for o in c.get("outputs", [])) for c in notebook.cells}


def leftovers(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob("*") if ".tmp" in p.name]


# ---------------------------------------------------------------------------------------------- a good batch


def test_a_batch_writes_notebooks_pages_an_index_and_a_report(make_notebook, tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "near.txt").write_text("beside me")
    first = make_notebook(
        "01_first",
        f"# %md {LINKS}",
        "print(open('near.txt').read())",  # it runs in its own folder
        RECORDS,
        FIGURE,
    )
    second = make_notebook("02_second", "# %md # Second lesson", "print('two')")
    report = batch.run_course([first, second], tmp_path / "out")

    assert [run.status for run in report.runs] == ["ok", "ok"]
    assert (report.ok, report.exit_status, report.interrupted) == (True, 0, False)
    out = tmp_path / "out"
    assert sorted(p.name for p in out.iterdir() if p.name != ".workbook") == [
        "01_first.html",
        "01_first.ipynb",
        "02_second.html",
        "02_second.ipynb",
        "assets",
        "index.html",
        "report.json",
        "results.csv",
    ]
    assert outputs(out / "01_first.ipynb")["cell-1"] == "beside me\n"
    run = report.runs[0]
    assert run.headlines == ({"label": "square <b>", "value": "266 µs", "source": "replayed, NVIDIA H100"},)
    assert run.where == "live on Tesla T4 and replayed from NVIDIA H100, 2026-11-21"
    assert report.runs[1].where == ""
    assert set(run.cells) == {"cell-1", "cell-2", "cell-3"} and run.slowest[1] == max(run.cells.values())
    assert 20 < run.peak_mb < 2000

    page = (out / "01_first.html").read_text()
    assert 'href="02_second.html#there"' in page and 'href="../notebooks/near.txt"' in page
    assert 'href="https://a.example/b.ipynb"' in page
    assert "Plotly.newPlot" in page and "a <\\/script> b" in page
    assert (out / "assets" / "plotly.min.js").stat().st_size > 1e6
    for name in ("01_first.html", "02_second.html", "index.html"):
        text = (out / name).read_text()
        assert not re.findall(r'<(?:script|link|img|iframe)[^>]*\s(?:src|href)="(?:https?:)?//', text), name
    assert "plotly.min.js" not in (out / "02_second.html").read_text()

    index = (out / "index.html").read_text()
    assert "square &lt;b&gt;" in index and "266 µs" in index and "First lesson" in index
    assert index.count('class="status ok"') == 2 and 'href="02_second.html"' in index
    saved = json.loads((out / "report.json").read_text())
    assert [n["where"] for n in saved["notebooks"]] == [r.where for r in report.runs]
    assert saved["versions"]["papermill"] and saved["machine"]
    assert "01_first" in repr(report) and "index.html" in repr(report)


def test_an_expected_exception_and_an_early_exit_are_not_failures(make_notebook, tmp_path):
    expected = make_notebook("expected", ("1/0", "raises-exception"), "print('after')")
    early = make_notebook("early", "import sys; sys.exit()", "print('never')")
    report = batch.run_course([expected, early], tmp_path / "out")
    assert report.ok, report
    assert outputs(tmp_path / "out" / "expected.ipynb")["cell-1"] == "after\n"
    assert outputs(tmp_path / "out" / "early.ipynb")["cell-1"] == ""


def test_much_output_and_many_figures(make_notebook, tmp_path):
    loud = make_notebook("loud", "for i in range(20000): print(i)", f"{FIGURE}.show()", FIGURE)
    report = batch.run_course([loud], tmp_path / "out")
    assert report.ok, report
    assert outputs(tmp_path / "out" / "loud.ipynb")["cell-0"].endswith("19999\n")
    page = (tmp_path / "out" / "loud.html").read_text()
    assert page.count("Plotly.newPlot(") == 2 and {"figure-1", "figure-2"} <= set(
        re.findall(r'<div id="([^"]+)', page)
    )


# ---------------------------------------------------------------------------------------------- bad notebooks


RAISES = """\
x = 1
def f():
    raise ValueError('boom')"""
CALLS = """\
y = 2
f()"""
CRASHES = """\
import ctypes
print('before')
ctypes.string_at(0)"""


def test_failures_are_reported_and_other_notebooks_run(make_notebook, tmp_path):
    bad = make_notebook("bad", RAISES, CALLS, "print('never')")
    died = make_notebook("died", "import os; os._exit(3)")
    crashed = make_notebook("crashed", CRASHES)
    good = make_notebook("good", "print('still here')")
    report = batch.run_course([bad, died, crashed, good], tmp_path / "out", jobs=2)
    runs = {run.name: run for run in report.runs}

    assert report.exit_status == 1 and runs["good"].status == "ok"
    failure = runs["bad"].failure
    assert (failure.kind, failure.cell, failure.line, failure.source_line) == ("error", "cell-1", 2, "f()")
    assert "ValueError: boom" in failure.message and "raise ValueError('boom')" in failure.traceback
    assert (runs["died"].failure.kind, runs["died"].failure.cell) == ("died", "cell-0")
    assert "exit status 3" in runs["died"].failure.message
    assert "SIGSEGV" in runs["crashed"].failure.message and runs["crashed"].failure.line == 3
    for name in runs:
        nbformat.validate(nbformat.read(tmp_path / "out" / f"{name}.ipynb", as_version=4))
        assert (tmp_path / "out" / f"{name}.html").is_file()
    assert "exit status 3" in outputs(tmp_path / "out" / "died.ipynb")["cell-0"]
    assert not leftovers(tmp_path)


def test_a_kernel_that_does_not_start_is_reported(make_notebook, tmp_path, kernels):
    kernels("broken", "false", "{connection_file}")
    spec = {"kernelspec": {"name": "broken", "display_name": "B", "language": "python"}}
    one, two = make_notebook("one", "1", metadata=spec), make_notebook("two", "1")
    report = batch.run_course([one, two], tmp_path / "out")
    assert [run.status for run in report.runs] == ["failed", "ok"]
    assert report.runs[0].failure.kind == "start"


SLEEPS = """\
import time
time.sleep(600)"""
IGNORES = """\
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: pass"""
SWALLOWS = """\
import time
try:
    time.sleep(600)
except KeyboardInterrupt:
    print('no')"""


def test_hanging_cells_are_stopped_and_reported(make_notebook, tmp_path):
    codes = {"sleeps": SLEEPS, "ignores": IGNORES, "swallows": SWALLOWS}
    hanging = [make_notebook(name, "print('fine')", code, "print('never')") for name, code in codes.items()]
    report = batch.run_course(hanging, tmp_path / "out", cell_timeout=3, jobs=3)
    for run in report.runs:
        assert (run.failure.kind, run.failure.cell) == ("timeout", "cell-1") and "3 s" in run.failure.message
        assert outputs(tmp_path / "out" / f"{run.name}.ipynb")["cell-2"] == ""
    assert report.seconds < 300  # no cell slept to its end, however slow the machine is


def test_ctrl_c_keeps_finished_notebooks(make_notebook, tmp_path, interrupter):
    done = make_notebook("1_done", "print('done')")
    slow, later = make_notebook("2_slow", interrupter.cell), make_notebook("3_later", "print('later')")
    out = tmp_path / "out"
    ended = interrupter.run(command("run", done, slow, later, "--out", out), signal.SIGINT)
    assert ended.status == 130, ended.stderr
    assert "Traceback" not in ended.stderr
    assert has_ended(ended.sleeper)
    assert outputs(out / "1_done.ipynb")["cell-0"] == "done\n" and (out / "1_done.html").is_file()
    assert not (out / "2_slow.ipynb").exists() and not (out / "3_later.ipynb").exists()
    assert not leftovers(out)
    saved = json.loads((out / "report.json").read_text())
    assert [n["status"] for n in saved["notebooks"]] == ["ok", "not run", "not run"] and saved["interrupted"]
    assert (out / "index.html").read_text().count('class="status not-run"') == 2
    assert "Interrupted" in ended.stdout


def test_a_terminal_sees_a_bar_for_notebooks_and_one_for_cells(make_notebook, tmp_path):
    slow = make_notebook("slow", "import time; time.sleep(0.3)", "time.sleep(0.3)")
    terminal, inside = pty.openpty()
    # A terminal of no columns shows no bar.
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        command("run", slow, "--out", tmp_path / "out"),
        env=environment(),
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
    )
    os.close(inside)
    shown = b""
    with contextlib.suppress(OSError):  # what Linux answers when the other side is closed
        while part := os.read(terminal, 4096):
            shown += part
    os.close(terminal)
    assert process.wait() == 0, shown.decode()
    assert "Notebooks: 100%" in shown.decode() and re.search(r"slow: .*1/2 .*cell-1", shown.decode())


def test_an_old_output_stays_until_the_new_one_is_complete(make_notebook, tmp_path):
    source = make_notebook("lesson", "print('one')")
    batch.run_course([source], tmp_path / "out")
    make_notebook(
        "lesson", "import pathlib; print(pathlib.Path('../out/lesson.ipynb').read_text().count('one'))"
    )
    batch.run_course([source], tmp_path / "out")
    assert int(outputs(tmp_path / "out" / "lesson.ipynb")["cell-0"]) >= 2


# ---------------------------------------------------------------------------------------------- parameters

ASSIGNMENTS = """\
n_rows: int = 8  # how many
scale: float = 1.5
flag: bool = False
dtype = 'float32'
sizes: list[int] = [1, 2]
limit: int | None = None
equation = 'a=b'"""
PARAMETERS = (ASSIGNMENTS, "parameters")
SHOW = "print(repr((n_rows, scale, flag, dtype, sizes, limit, equation)))"


def test_parameters_are_parsed_by_type(make_notebook, tmp_path, workbook):
    one, other = make_notebook("one", PARAMETERS, SHOW), make_notebook("other", "print('no parameters')")
    given = ["n_rows=16", "scale=2", "flag=true", "dtype=float16", "sizes=[3, 4]", "limit=7", "equation=c=d"]
    result = workbook("run", one, other, "--out", "out", *(part for p in given for part in ("-p", p)))
    assert result.returncode == 0, result.stdout + result.stderr
    shown = outputs(tmp_path / "out" / "one.ipynb")
    assert shown["cell-1"] == repr((16, 2.0, True, "float16", [3, 4], 7, "c=d")) + "\n"
    assert "n_rows = 16" in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-p", "n_row=3"], ["n_row ", "did you mean n_rows?", "one.ipynb: n_rows: int = 8"]),
        (["-p", "n_rows=abc"], ["one.ipynb", "n_rows", "int", "default 8", "'abc'"]),
        (["-p", "n_rows"], ["NAME=VALUE"]),
        (["-p", "n_rows=1", "-p", "n_rows=2"], ["n_rows", "twice"]),
        (["--grid", "n_rows=1,x"], ["n_rows", "'x'"]),
        (["--grid", "n_rows="], ["--grid n_rows="]),
        (["--grid", "n_rows=1,1"], ["one__n_rows=1"]),
        (["-p", "n_rows=1", "--grid", "n_rows=1,2"], ["n_rows", "-p", "--grid"]),
        (["--jobs", "0"], ["--jobs"]),
        (["--cell-timeout", "-1"], ["--cell-timeout", "-1 s"]),
        (["--notebook-timeout", "-1"], ["--notebook-timeout", "-1 s"]),
        (["--start-timeout", "0"], ["--start-timeout", "0 s"]),
        (["--memory-limit", "nan"], ["--memory-limit", "nan MB"]),
        (["missing.ipynb"], ["missing.ipynb"]),
        (["empty"], ["empty"]),
        (["words.ipynb"], ["words.ipynb"]),
        (["list.ipynb"], ["list.ipynb"]),
        (["other_language.ipynb"], ["'ir'", "python3"]),
    ],
)
def test_a_wrong_command_line_is_refused(make_notebook, tmp_path, refusal, arguments, expected):
    one = make_notebook("one", PARAMETERS, SHOW)
    (tmp_path / "empty").mkdir()
    (tmp_path / "words.ipynb").write_text("words")
    (tmp_path / "list.ipynb").write_text("[1]")
    ir = {"kernelspec": {"name": "ir", "display_name": "R", "language": "R"}}
    make_notebook("other_language", "cat(1)", folder=".", metadata=ir)
    line = refusal("run", one, "--out", "out", *arguments)
    assert all(part in line for part in expected), line
    assert not (tmp_path / "out").exists()


def test_an_out_that_cannot_be_written_is_refused(make_notebook, tmp_path, refusal):
    one = make_notebook("one", "print(1)")
    (tmp_path / "file").write_text("")
    for out in ("file/out", "notebooks"):
        assert out in refusal("run", one, "--out", out)
    assert nbformat.read(one, 4).cells[0].outputs == []


def test_grid_and_resume(make_notebook, tmp_path):
    tries = tmp_path / "tries"
    parameters = """\
n_rows: int = 8
dtype: str = 'a'"""
    prints = f"""\
open({str(tries)!r}, 'a').write('x')
print(n_rows, dtype)"""
    source = make_notebook("lesson", (parameters, "parameters"), prints)
    other = make_notebook("other", "1")
    grid = {"n_rows": ["1", "2"], "dtype": ["float16", "bfloat16"]}
    report = batch.run_course([source, other], tmp_path / "out", grid=grid, jobs=2)
    names = [f"lesson__n_rows={n}__dtype={d}" for n in (1, 2) for d in ("float16", "bfloat16")]
    assert [run.name for run in report.runs] == [*names, "other"] and report.ok
    assert outputs(tmp_path / "out" / f"{names[3]}.ipynb")["cell-1"] == "2 bfloat16\n"
    assert len(tries.read_text()) == 4

    (tmp_path / "out" / f"{names[0]}.ipynb").write_text("{")  # half written by something else
    (tmp_path / "out" / f"{names[1]}.html").unlink()
    resumed = batch.run_course([source, other], tmp_path / "out", grid=grid, resume=True)
    assert [run.status for run in resumed.runs] == ["ok", "kept", "kept", "kept", "kept"] and resumed.ok
    assert len(tries.read_text()) == 5 and (tmp_path / "out" / f"{names[1]}.html").is_file()

    other_point = batch.run_course(
        [source], tmp_path / "out", {"dtype": "c"}, grid={"n_rows": ["1"]}, resume=True
    )
    assert other_point.runs[0].status == "ok"
    make_notebook("other", "2")  # another source
    assert batch.run_course([other], tmp_path / "out", resume=True).runs[0].status == "ok"
    make_notebook("other", "1/0")
    assert batch.run_course([other], tmp_path / "out", resume=True).runs[0].status == "failed"
    assert batch.run_course([other], tmp_path / "out", resume=True).runs[0].status == "failed"  # never kept


def test_an_output_of_this_batch_counts_as_finished_without_resume(make_notebook, tmp_path):
    """The process that wrote it may have died before it reported; then another one is given the point."""
    source, out = make_notebook("one", "print(1)"), tmp_path / "out"
    assert batch.run_course([source], out).ok
    (job,) = plan.plan([source], RunOptions())
    run = nbformat.read(out / "one.ipynb", 4).metadata.kernel_workbook.batch
    again = point.Point(job, out, "2026-11-22T10:00:00+00:00", run=run)
    assert executed.finished(again)[0].status == "ok"
    assert executed.finished(dataclasses.replace(again, run="another")) is None
    kept = executed.finished(dataclasses.replace(again, run="another", resume=True))
    assert kept[0].status == "kept" and kept[0].ended


def test_notebooks_of_a_folder_and_equal_names(make_notebook, tmp_path):
    make_notebook("02_b", "1")
    make_notebook("01_a", "1")
    lab = make_notebook("01_a", "1", folder="labs")
    names = [job.name for job in plan.plan([tmp_path / "notebooks", lab, lab], RunOptions())]
    assert names == ["notebooks-01_a", "02_b", "labs-01_a"]


@pytest.mark.parametrize(
    ("annotation", "default", "text", "value"),
    [
        ("int", "1", "-3", -3),
        ("int", "1", "10_000", 10_000),
        ("float", "1.0", "1e-3", 1e-3),
        ("", "1.0", "2", 2),
        ("", "None", "float16", "float16"),
        ("", "None", "3", 3),
        ("", "'text'", "3", "3"),
        ("", "(1, 2)", "(3, 4)", [3, 4]),
        ("Optional[int]", "None", "None", None),
        ("str | int", "1", "512", 512),
        ("Literal['a', 'b']", "'a'", "b", "b"),
        ("tuple[int, ...]", "(1,)", "[1, 2, 3]", [1, 2, 3]),
        ("dict", "{}", "{'a': 1}", {"a": 1}),
        ("Shape", "f()", "anything", "anything"),
    ],
)
def test_parse_value(annotation, default, text, value):
    assert parse_value(text, Parameter("name", annotation, default)) == value


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        ("Literal['a']", "b"),
        ("tuple[int, int]", "(1,)"),
        ("list[int]", "3"),
        ("list[int]", "[1, 'x']"),
        ("int | None", "x"),
        ("bool", "yes please"),
        ("bool", "3"),
        ("int", "1.5"),
        ("int", "True"),
    ],
)
def test_parse_value_refuses(annotation, text):
    with pytest.raises(ValueError, match=re.escape(annotation)):
        parse_value(text, Parameter("name", annotation, "x"))


def test_values_given_in_python_are_checked_too(make_notebook):
    source = make_notebook("one", PARAMETERS, SHOW)
    given = {"n_rows": 3, "sizes": [1, 2]}
    assert plan.plan([source], RunOptions(parameters=given))[0].parameters == given
    with pytest.raises(UsageError, match="n_rows is int"):
        plan.plan([source], RunOptions(parameters={"n_rows": 3.5}))
