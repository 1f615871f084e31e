"""Several runs on one folder: shards and their merge, two runners at once, runners that are killed."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
import pytest
from commands import command, environment

from helpers.workshop import batch
from helpers.workshop.batch import folder, merge, shards
from helpers.workshop.usage import UsageError

# Says in a file of the test's when a point begins and ends, and fails or waits as the test wants.
POINT = """\
import pathlib, time
place = pathlib.Path({place!r})
def say(what):
    with (place / 'log').open('a') as log: log.write(f'{{what}} {{n}}\\n')
say('begins')
while (place / 'hold').exists(): time.sleep(0.05)
assert not (place / f'fail{{n}}').exists(), 'as told'
say('ends')
print(n * n)"""


@pytest.fixture
def points(make_notebook, tmp_path) -> Callable[..., Path]:
    def make(name: str = "lesson") -> Path:
        return make_notebook(name, ("n: int = 0", "parameters"), POINT.format(place=str(tmp_path)))

    return make


def said(tmp_path: Path) -> Counter:
    log = tmp_path / "log"
    return Counter(log.read_text().splitlines()) if log.exists() else Counter()


def start(*arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        command("run", *arguments),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(what: Callable[[], object], process: subprocess.Popen) -> None:
    until = time.monotonic() + 120
    while not what():
        assert process.poll() is None and time.monotonic() < until, "it did not come so far"
        time.sleep(0.02)


def saved(out: Path) -> list[dict]:
    return json.loads((out / "report.json").read_text())["notebooks"]


def assert_whole(out: Path, names: list[str]) -> None:
    """Every output is there and whole, and nothing else."""
    for name in names:
        assert nbformat.read(out / f"{name}.ipynb", as_version=4).cells
        assert (out / f"{name}.html").read_text().rstrip().endswith("</html>")
    assert sorted(row["name"] for row in saved(out)) == sorted(names)
    assert (out / "index.html").read_text().rstrip().endswith("</html>")
    assert not [p for p in out.rglob("*") if p.suffix in (".tmp", ".lock")]


def test_shards_in_turn_and_a_merge(points, tmp_path, workbook):
    source, out = points(), tmp_path / "out"
    grid = {"n": [str(n) for n in range(6)]}
    (tmp_path / "fail4").touch()
    ran = []
    for k in (1, 2, 3):
        ran.append(batch.run_course([source], out, grid=grid, shard=f"{k}/4"))
        assert not (out / "index.html").exists() and not (out / "report.json").exists()
    assert f"workbook merge {out}" in repr(ran[0])
    early = workbook("merge", out)
    # The last plan has four shards, and one of them is missing.
    assert early.returncode == 3, early.stdout
    missing = len(shards.Shard(4, 4).names(f"lesson__n={n}" for n in range(6)))
    assert (
        f"{missing} of 6 points are missing." in early.stdout
        and "with --shard 4/4 and --resume" in early.stdout
    )

    ran.append(batch.run_course([source], out, grid=grid, shard="4/4"))
    assert sorted(run.name for report in ran for run in report.runs) == [f"lesson__n={n}" for n in range(6)]
    assert {len(report.runs) for report in ran} == {1, 2}
    merged = workbook("merge", out)
    assert merged.returncode == 1 and "lesson__n=4: cell" in merged.stdout and "missing" not in merged.stdout
    assert_whole(out, [f"lesson__n={n}" for n in range(6)])
    assert said(tmp_path) == {
        **{f"begins {n}": 1 for n in range(6)}, **{f"ends {n}": 1 for n in range(6) if n != 4}
    }  # fmt: skip

    (tmp_path / "fail4").unlink()
    for k in (1, 2, 3, 4):
        batch.run_course([source], out, grid=grid, shard=f"{k}/4", resume=True)
    assert merge.merge(out).exit_status == 0 and said(tmp_path)["begins 4"] == 2
    assert len(folder.past_runs(out)) == 4  # what has been run again has no rows of before
    assert all(count == 1 for what, count in said(tmp_path).items() if what != "begins 4")


def test_a_merge_reads_what_a_killed_run_has_finished(points, tmp_path):
    """It was killed after a notebook was written and before its row was, or in the middle of the row."""
    source, out = points(), tmp_path / "out"
    batch.run_course([source], out, grid={"n": ["1", "2"]}, shard="1/1")
    (run,) = folder.past_runs(out)
    whole = run.path.read_text().splitlines(keepends=True)
    run.path.write_text("".join(whole[:-1]) + whole[-1][:40])
    assert len(folder.past_runs(out)[0].rows) == 1
    merged = merge.merge(out)
    assert [run.status for run in merged.report.runs] == ["ok", "ok"] and merged.exit_status == 0


def test_another_plan_is_not_merged_with_this_one(points, tmp_path):
    source, out = points(), tmp_path / "out"
    batch.run_course([source], out, grid={"n": ["1", "2"]}, shard="1/2")
    batch.run_course([source], out, grid={"n": ["7"]}, shard="1/1")
    merged = merge.merge(out)
    assert [run.name for run in merged.report.runs] == ["lesson__n=7"]
    assert "The rows of a run with other notebooks or parameters are left out" in repr(merged)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/2"])
def test_what_is_no_shard_is_refused(points, tmp_path, text):
    with pytest.raises(UsageError, match="is not K/N; write --shard 1/8"):
        batch.run_course([points()], tmp_path / "out", shard=text)
    assert not (tmp_path / "out").exists()


def test_a_merge_of_nothing_is_refused(tmp_path, workbook):
    result = workbook("merge", tmp_path / "nowhere")
    assert result.returncode == 2 and result.stderr.startswith("No run has written into ")
    assert not (tmp_path / "nowhere").exists()


def test_two_runners_on_one_folder_run_nothing_twice(points, tmp_path):
    source, other, out = points(), points("other"), tmp_path / "out"
    (tmp_path / "hold").touch()
    first = start(source, "--grid", "n=1,2,3,4", "--out", out)
    wait_for(lambda: said(tmp_path)["begins 1"], first)
    early = merge.merge(out)
    assert early.exit_status == 3 and "may still come from what runs now: on " in repr(early)
    second = start(source, other, "--grid", "n=1,2,3,4", "--out", out)
    line = second.stderr.readline()
    assert line.startswith("lesson__n=1: another run has it (") and line.endswith("; it comes later\n"), line
    wait_for(lambda: said(tmp_path)["begins 2"], second)  # it goes on with another meanwhile
    (tmp_path / "hold").unlink()
    shown = [process.communicate(timeout=300) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], shown
    # `other` runs at four points too, which only the second has.
    assert said(tmp_path) == {f"{what} {n}": 2 for what in ("begins", "ends") for n in (1, 2, 3, 4)}
    assert "lesson__n=1: kept, finished earlier" in shown[1][1]
    names = [f"{name}__n={n}" for name in ("lesson", "other") for n in (1, 2, 3, 4)]
    assert_whole(out, names)  # whoever wrote the index last: it has the rows of both
    alone = batch.run_course([other], out, grid={"n": ["1"]})
    assert alone.runs[0].status == "ok"  # what ended before it began is run again without --resume
    assert [row["name"] for row in saved(out)] == ["other__n=1"]


MOMENTS: dict[str, Callable[[Path, Path], object]] = {
    "its rows begin": lambda out, log: list(out.glob(".workbook/runs/*")),
    "a point is written": lambda out, log: (out / "lesson__n=1.ipynb").exists(),
    "a later point ends": lambda out, log: "ends 2" in log.read_text() if log.exists() else False,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_runner_leaves_nothing_half_and_resume_ends_it(points, tmp_path, moment):
    source, out = points(), tmp_path / "out"
    runner = start(source, "--grid", "n=1,2,3", "--out", out)
    wait_for(lambda: MOMENTS[moment](out, tmp_path / "log"), runner)
    below = psutil.Process(runner.pid).children(recursive=True)
    runner.kill()
    runner.communicate()
    # No lock outlives it: the next run is not kept waiting, and runs what was not finished.
    finished = {p.stem for p in out.glob("*.ipynb")}
    again = batch.run_course([source], out, grid={"n": ["1", "2", "3"]}, resume=True)
    assert {run.name for run in again.runs if run.status == "kept"} >= finished and again.ok
    assert_whole(out, [f"lesson__n={n}" for n in (1, 2, 3)])
    _, alive = psutil.wait_procs(below, timeout=60)
    assert not alive
