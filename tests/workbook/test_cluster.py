"""workbook.batch.cluster: a real scheduler and two real workers on loopback, killed while they work."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from batches import has_ended, printed, wait_for
from commands import environment

from workbook import batch, locks
from workbook.batch import cluster, cluster_worker, output_folder, plan
from workbook.options import RunOptions
from workbook.usage import UsageError

GPUS = "GPU 0: NVIDIA H200 (UUID: GPU-aaaa-1)\nGPU 1: NVIDIA H200 (UUID: GPU-bbbb-2)\n"
# Says which kernel runs it and which GPU that sees, and waits until the test lets it go.
POINT = """\
import os, pathlib, time
place = pathlib.Path({place!r})
with (place / 'log').open('a') as log:
    log.write(f"{{n}} {{os.getpid()}} {{os.environ.get('CUDA_VISIBLE_DEVICES')}}\\n")
while not (place / f'go{{n}}').exists(): time.sleep(0.05)
print(n * n, os.environ.get('OMP_NUM_THREADS'))  # which Dask's nanny sets"""


class Cluster:
    """A scheduler and two workers with a GPU each, as a user starts them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        smi = folder / "nvidia-smi"
        smi.write_text(f"#!/bin/sh\ncat <<'END'\n{GPUS}END\n")
        smi.chmod(0o755)
        self.environment = environment()
        for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
            self.environment.pop(name, None)
        self.environment |= {
            "PATH": f"{folder}{os.pathsep}{self.environment['PATH']}", "TMPDIR": str(folder),
            "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "60s",
        }  # fmt: skip
        self.folder, self.file = folder, folder / "scheduler.json"
        self._log = (folder / "log").open("w")
        # A scheduler needs Dask and nothing else.
        (folder / "bare").mkdir()
        (folder / "bare" / "helpers.py").write_text("raise ImportError('no helpers here')")
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-show", PYTHONPATH=str(folder / "bare")
        )
        self.workers = [self.add_worker() for _ in range(2)]
        wait_for(lambda: (folder / "log").read_text().count("Registered to:") >= 2)

    def add_worker(self) -> subprocess.Popen:
        options = "--nthreads 1 --memory-limit 0 --resources GPU=1 --death-timeout 60"
        return self._start("worker", *options.split())

    def _start(self, what: str, *arguments: str, **variables: str) -> subprocess.Popen:
        shared = ["--scheduler-file", str(self.file), "--no-dashboard"]
        return subprocess.Popen(
            [sys.executable, "-m", "dask", what, *shared, *arguments],
            env=self.environment | variables, cwd=self.folder, stdout=self._log, stderr=self._log,
        )  # fmt: skip

    def end(self) -> None:
        below = [p for root in (self.scheduler, *self.workers) for p in tree(root.pid)]
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for process in (self.scheduler, *self.workers):
            process.wait()
        psutil.wait_procs(below, timeout=20)
        self._log.close()


def tree(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


@pytest.fixture(scope="module")
def clusters(tmp_path_factory) -> Iterator[list[Cluster]]:
    made: list[Cluster] = []
    yield made
    for one in made:
        one.end()


@pytest.fixture
def two_workers(clusters, tmp_path_factory) -> Cluster:
    """One for all tests, and another after a test that killed its scheduler."""
    if not clusters or clusters[-1].scheduler.poll() is not None:
        clusters.append(Cluster(tmp_path_factory.mktemp("cluster") / "dask"))
    return clusters[-1]


@pytest.fixture
def point(make_notebook, tmp_path) -> Path:
    return make_notebook("point", ("n: int = 0", "parameters"), POINT.format(place=str(tmp_path)))


@pytest.fixture
def run_points(two_workers, point, started, tmp_path) -> Callable[[str], subprocess.Popen]:
    """Run points on the workers in the background, given as "n=1,2"."""
    out = tmp_path / "out"
    return lambda grid: started("run", point, "--grid", grid, "--out", out, "--scheduler", two_workers.file)


def begun(tmp_path: Path) -> list[tuple[int, int, str]]:
    """The points that have begun: n, the kernel, its GPU."""
    log = tmp_path / "log"
    rows = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [(int(n), int(pid), gpu) for n, pid, gpu in rows]


def go(tmp_path: Path, *points: int) -> None:
    for n in points:
        (tmp_path / f"go{n}").touch()


def rows(out: Path) -> dict[str, dict]:
    return {row["name"]: row for row in json.loads((out / "report.json").read_text())["notebooks"]}


def dask_worker_above(kernel: int) -> psutil.Process:
    """The Dask worker, which its nanny has started: above the kernel, the process that runs points, and its
    supervisor.
    """
    return psutil.Process(kernel).parents()[2]


def test_a_point_of_a_killed_worker_runs_on_another_worker(run_points, tmp_path):
    runner = run_points("n=1,2,3,4")
    wait_for(lambda: len(begun(tmp_path)) == 2, runner)
    (first, kernel, gpu), (second, _, other) = begun(tmp_path)
    assert {gpu, other} == {"GPU-aaaa-1", "GPU-bbbb-2"}
    worker = dask_worker_above(kernel)
    below = worker.children(recursive=True)
    assert kernel in [p.pid for p in below]
    worker.kill()
    _, alive = psutil.wait_procs(below, timeout=60)
    assert not alive  # nothing of the killed worker goes on beside the second try
    go(tmp_path, second)
    wait_for(lambda: (tmp_path / "out" / f"point__n={second}.html").exists(), runner)
    # The restarted worker takes a point again, and sees the GPU that it had.
    wait_for(lambda: sum(not has_ended(pid) for _, pid, _ in begun(tmp_path)) == 2, runner)
    running = {gpu for _, pid, gpu in begun(tmp_path) if not has_ended(pid)}
    assert running == {"GPU-aaaa-1", "GPU-bbbb-2"}
    go(tmp_path, 1, 2, 3, 4)
    said = runner.communicate(timeout=120)
    assert runner.returncode == 0, said
    found, out = rows(tmp_path / "out"), tmp_path / "out"
    assert {name: (row["status"], row["attempts"]) for name, row in found.items()} == {
        f"point__n={n}": ("ok", 2 if n == first else 1) for n in (1, 2, 3, 4)
    }
    assert all(row["gpu"] in running and row["gpu_alone"] for row in found.values())
    assert [printed(out / f"point__n={n}.ipynb") for n in (1, 2, 3, 4)] == [
        f"{n * n} None\n" for n in (1, 2, 3, 4)
    ]
    assert not [p for p in out.rglob("*") if p.suffix in (".tmp", ".lock")]


def test_a_point_waits_while_another_worker_still_runs_it(run_points, tmp_path):
    """A worker that lost its connection goes on running a point that the scheduler has given to another."""
    out = tmp_path / "out"
    disconnected = locks.take(output_folder.point_lock(out, "point__n=1"))
    runner = run_points("n=1,2,3")
    go(tmp_path, 2, 3)
    wait_for(lambda: (out / "point__n=2.html").exists() and (out / "point__n=3.html").exists(), runner)
    assert {n for n, _, _ in begun(tmp_path)} == {2, 3}
    disconnected.close()
    go(tmp_path, 1)
    said = runner.communicate(timeout=120)
    assert runner.returncode == 0, said
    assert {row["attempts"] for row in rows(out).values()} == {1}


def test_only_points_that_died_are_retried(two_workers, make_notebook, tmp_path):
    code = "with open({log!r}, 'a') as log: log.write('x')\n{end}"
    dies, fails = (
        make_notebook(name, code.format(log=str(tmp_path / name), end=end))
        for name, end in [("dies", "import os; os._exit(3)"), ("fails", "1 / 0")]
    )
    report = batch.run_course([dies, fails], tmp_path / "out", scheduler=str(two_workers.file))
    assert [(run.failure.kind, run.attempts) for run in report.runs] == [("died", 2), ("error", 1)]
    assert (tmp_path / "dies").read_text() == "xx" and (tmp_path / "fails").read_text() == "x"
    report = batch.run_course([dies], tmp_path / "out", scheduler=str(two_workers.file), retries=0)
    assert report.runs[0].attempts == 1 and (tmp_path / "dies").read_text() == "xxx"


def test_a_late_worker_without_a_gpu_gets_no_point(two_workers, run_points, tmp_path):
    runner = run_points("n=1,2,3")
    wait_for(lambda: len(begun(tmp_path)) == 2, runner)
    third = two_workers.add_worker()
    try:
        line = runner.stderr.readline()
        assert all(part in line for part in ("GPU=1", "GPU-aaaa-1", "GPU-bbbb-2")), line
        go(tmp_path, 1, 2, 3)
        said = runner.communicate(timeout=120)
        assert runner.returncode == 0, said
        assert {row["attempts"] for row in rows(tmp_path / "out").values()} == {1}
    finally:
        for process in tree(third.pid):
            process.kill()
        third.wait()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_an_ended_runner_ends_its_points_on_the_workers(run_points, tmp_path, number, status):
    runner = run_points("n=1,2,3,4,5")
    go(tmp_path, 1)
    wait_for(lambda: (tmp_path / "out" / "point__n=1.ipynb").exists() and len(begun(tmp_path)) == 3, runner)
    runner.send_signal(number)
    said = runner.communicate(timeout=120)
    assert runner.returncode == status and "Traceback" not in "".join(said), said
    for _, kernel, _ in begun(tmp_path):
        wait_for(lambda kernel=kernel: has_ended(kernel))
    if number == signal.SIGTERM:
        found = rows(tmp_path / "out")
        assert [row["status"] for row in found.values()] == ["ok", *["not run"] * 4]
    assert len(begun(tmp_path)) == 3  # what was to come has not begun


def test_wrong_schedulers_are_refused(two_workers, point, tmp_path, monkeypatch, refusal, workbook):
    def refused(*options: object) -> str:
        return refusal("run", point, "--out", "out", "--scheduler", *options)

    assert "tcp://host:8786" in refused("cluster")
    assert "dask scheduler --scheduler-file" in refused(tmp_path / "no.json")
    assert "--jobs" in refused(two_workers.file, "--jobs", 2)
    assert "--shard" in refused(two_workers.file, "--shard", "1/2")
    monkeypatch.setattr(cluster, "_CONNECT_S", 0.5)
    assert "dask scheduler" in refused("tcp://127.0.0.1:1")
    (tmp_path / "distributed.py").write_text("raise ImportError('there is none')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = workbook("run", point, "--out", "out", "--scheduler", "tcp://127.0.0.1:1")
    assert result.returncode == 2 and "pip install distributed" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_worker_is_checked_before_it_is_given_points(two_workers, point, tmp_path, monkeypatch, capsys):
    planned, file = plan.plan([point], RunOptions()), str(two_workers.file)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match=r"tcp://127.* /proc/self/cwd/out; .*--out"):
        # The same name is another folder in each process.
        cluster.ClusterExecutor(file, Path("/proc/self/cwd/out"), planned)
    point.write_text(point.read_text().replace("n * n", "n * n * n"))
    monkeypatch.setattr(cluster_worker, "fingerprint", lambda: "another")
    with cluster.ClusterExecutor(file, tmp_path / "out", planned):
        printed = capsys.readouterr().err
    assert printed.count("another version of helpers") == printed.count("another point.ipynb") == 2
    assert not list((tmp_path / "out").iterdir())


def test_a_killed_scheduler_loses_no_finished_point(two_workers, point, run_points, tmp_path):
    out = tmp_path / "out"
    runner = run_points("n=1,2,3")
    go(tmp_path, 1)
    wait_for(lambda: (out / "point__n=1.html").exists() and len(begun(tmp_path)) == 3, runner)
    two_workers.scheduler.kill()
    stdout, stderr = runner.communicate(timeout=120)
    assert runner.returncode == 1 and "Traceback" not in stdout + stderr, stderr
    assert re.search(f"{two_workers.file} .* {out}", stdout)
    for _, kernel, _ in begun(tmp_path):
        wait_for(lambda kernel=kernel: has_ended(kernel))
    assert {row["status"] for row in rows(out).values()} == {"ok", "not run"}
    go(tmp_path, 2, 3)
    resumed = batch.run_course([point], out, grid={"n": ["1", "2", "3"]}, resume=True)
    assert [run.status for run in resumed.runs] == ["kept", "ok", "ok"]
    assert not [p for p in out.rglob("*") if p.suffix in (".tmp", ".lock")]
