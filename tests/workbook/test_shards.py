"""Who may write into a folder: shards and their index, a second run that is refused, runs that are killed."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
import pytest
from batches import wait_for

from workbook import batch, locks
from workbook.batch import shards
from workbook.batch.index import index_folder
from workbook.usage import UsageError

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


def test_shards_one_after_another_and_their_index(points, tmp_path, workbook):
    source, out = points(), tmp_path / "out"
    names = [f"lesson__n={n}" for n in range(6)]
    grid = {"n": [str(n) for n in range(6)]}
    (tmp_path / "fail4").touch()
    ran = []
    for k in (1, 2, 3):
        ran.append(batch.run_course([source], out, grid=grid, shard=f"{k}/4"))
        assert not (out / "index.html").exists() and not (out / "report.json").exists()
    assert f"workbook index {out}" in repr(ran[0])
    early = workbook("index", out)
    assert early.returncode == 3, early.stdout
    missing = shards.Shard(4, 4).names(names)
    assert f"{len(missing)} of 6 points are missing: " in early.stdout
    assert all(name in early.stdout.split("missing: ")[1] for name in missing)
    assert "with --shard 4/4 and --resume." in early.stdout
    assert {row["name"] for row in saved(out) if row["status"] == "not run"} == missing

    ran.append(batch.run_course([source], out, grid=grid, shard="4/4"))
    assert sorted(run.name for report in ran for run in report.runs) == names
    assert {len(report.runs) for report in ran} == {1, 2}
    failed = workbook("index", out)
    assert failed.returncode == 1 and "lesson__n=4: cell" in failed.stdout and "missing" not in failed.stdout
    assert_whole(out, names)
    assert said(tmp_path) == {
        **{f"begins {n}": 1 for n in range(6)}, **{f"ends {n}": 1 for n in range(6) if n != 4}
    }  # fmt: skip

    (tmp_path / "fail4").unlink()
    for k in (1, 2, 3, 4):
        batch.run_course([source], out, grid=grid, shard=f"{k}/4", resume=True)
    assert index_folder(out).exit_status == 0 and said(tmp_path)["begins 4"] == 2
    assert all(count == 1 for what, count in said(tmp_path).items() if what != "begins 4")


def test_an_index_counts_only_outputs_of_the_last_plan(points, tmp_path):
    source, out = points(), tmp_path / "out"
    batch.run_course([source], out, grid={"n": ["1", "7"]})
    source.write_text(source.read_text().replace("n * n", "n + n"))
    batch.run_course([source], out, grid={"n": ["7", "8"]}, shard="1/2")
    runs = {run.name: run.status for run in index_folder(out).report.runs}
    (ran,) = shards.Shard(1, 2).names(["lesson__n=7", "lesson__n=8"])
    (left,) = shards.Shard(2, 2).names(["lesson__n=7", "lesson__n=8"])
    assert runs == {ran: "ok", left: "not run"}


def test_an_index_names_a_notebook_that_cannot_run(points, tmp_path):
    source, out = points(), tmp_path / "out"
    (source.parent / "words.ipynb").write_text("words")
    batch.run_course([source.parent], out, shard="1/2")
    batch.run_course([source.parent], out, shard="2/2")
    indexed = index_folder(out)
    assert [run.status for run in indexed.report.runs] == ["ok", "failed"] and indexed.exit_status == 1
    assert "words.ipynb" in repr(indexed)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "-1/2"])
def test_a_wrong_shard_is_refused(points, tmp_path, text):
    with pytest.raises(UsageError, match="K/N"):
        batch.run_course([points()], tmp_path / "out", shard=text)
    assert not (tmp_path / "out").exists()


def test_an_index_of_nothing_is_refused(tmp_path, refusal):
    assert "nowhere" in refusal("index", tmp_path / "nowhere") and not (tmp_path / "nowhere").exists()


def test_a_second_run_is_refused(points, tmp_path, started, refusal):
    source, out = points(), tmp_path / "out"
    (tmp_path / "hold").touch()
    first = started("run", source, "--grid", "n=1,2", "--out", out)
    wait_for(lambda: said(tmp_path)["begins 1"], first)
    for more in ([], ["--resume"], ["--shard", "1/2"]):
        line = refusal("run", source, "--grid", "n=1,2", "--out", out, *more)
        assert f"{platform.node()} (process {first.pid}, since 20" in line
    assert str(out) in refusal("index", out)
    (tmp_path / "hold").unlink()
    _, shown = first.communicate(timeout=300)
    assert first.returncode == 0, shown
    assert said(tmp_path) == {f"{what} {n}": 1 for what in ("begins", "ends") for n in (1, 2)}
    assert_whole(out, ["lesson__n=1", "lesson__n=2"])
    again = batch.run_course([source], out, grid={"n": ["1", "2"]})
    assert [run.status for run in again.runs] == ["ok", "ok"]  # without --resume everything runs again


def test_shards_run_in_parallel_and_other_runs_are_refused(points, tmp_path, started, refusal):
    source, out, grid = points(), tmp_path / "out", ["--grid", "n=1,2,3,4"]
    (tmp_path / "hold").touch()
    first = started("run", source, *grid, "--out", out, "--shard", "1/2")
    wait_for(lambda: said(tmp_path).total() == 1, first)
    assert f"shard 1/2 on {platform.node()}" in refusal("run", source, *grid, "--out", out)
    assert "shard 1/2 on " in refusal("run", source, *grid, "--out", out, "--shard", "1/2")
    assert "shard 1/2 on " in refusal("run", source, *grid, "--out", out, "--shard", "2/3")
    assert "shard 1/2 on " in refusal("run", source, "--grid", "n=1,2", "--out", out, "--shard", "2/2")
    second = started("run", source, *grid, "--out", out, "--shard", "2/2")
    wait_for(lambda: said(tmp_path).total() == 2, second)
    early = index_folder(out)
    assert early.exit_status == 3 and "4 of them: shard 1/2 on " in repr(early)
    assert {run.status for run in early.report.runs} == {"waiting"}
    (tmp_path / "hold").unlink()
    shown = [process.communicate(timeout=300) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], shown
    assert index_folder(out).exit_status == 0
    assert_whole(out, [f"lesson__n={n}" for n in (1, 2, 3, 4)])


MOMENTS: dict[str, Callable[[Path, Path], object]] = {
    "it owns the folder": lambda out, log: (out / ".workbook" / "run.lock").exists(),
    "a point is written": lambda out, log: (out / "lesson__n=1.ipynb").exists(),
    "a later point ends": lambda out, log: "ends 2" in log.read_text() if log.exists() else False,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_resume_continues_after_a_killed_run(points, tmp_path, started, moment):
    source, out = points(), tmp_path / "out"
    runner = started("run", source, "--grid", "n=1,2,3", "--out", out)
    wait_for(lambda: MOMENTS[moment](out, tmp_path / "log"), runner)
    below = psutil.Process(runner.pid).children(recursive=True)
    runner.kill()
    runner.communicate()
    # No lock outlives it, except in a child that it was just starting, until that child's `exec`: the next
    # run is not refused, and runs what was not finished.
    wait_for(lambda: not locks.is_held(out / ".workbook" / "run.lock"))
    finished = {p.stem for p in out.glob("*.ipynb")}
    assert {r.name for r in index_folder(out).report.runs if r.status == "ok"} == finished
    again = batch.run_course([source], out, grid={"n": ["1", "2", "3"]}, resume=True)
    assert {run.name for run in again.runs if run.status == "kept"} >= finished and again.ok
    assert_whole(out, [f"lesson__n={n}" for n in (1, 2, 3)])
    _, alive = psutil.wait_procs(below, timeout=60)
    assert not alive
