"""workbook.batch.executor: real processes, killed and looked for; GPUs given out."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from batches import has_ended, printed, wait_for
from commands import environment

from workbook import batch, gpus
from workbook.usage import UsageError

SMI = """\
GPU 0: NVIDIA H200 (UUID: GPU-aaaa-1)
GPU 1: NVIDIA H200 (UUID: GPU-bbbb-2)
  MIG 1g.18gb     Device  0: (UUID: MIG-cccc-3)
  MIG 1g.18gb     Device  1: (UUID: MIG-dddd-4)
"""
TWO = "\n".join(SMI.splitlines()[:2])
# Not one long sleep: a signal between Python's last look for one and the system call wouldn't end that.
WAITS = "while True: time.sleep(0.1)"
# A process of the cell's own, in a session of its own, that nothing ties to its kernel.
FORKS_AWAY = """\
import os, subprocess, time
child = subprocess.Popen(['sleep', '600'], start_new_session=True)
kernel, worker = os.getpid(), os.getppid()
open({sign!r}, 'w').write(f'{{child.pid}} {{kernel}} {{worker}} ')"""


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Puts an nvidia-smi first on PATH that lists what it is given."""

    def put(listed: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{listed}\nEND\n")
        (folder / "nvidia-smi").chmod(stat.S_IRWXU)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return put


def pids(sign: Path) -> list[int]:
    wait_for(lambda: sign.exists() and sign.read_text().endswith(" "))
    return [int(pid) for pid in sign.read_text().split()]


def assert_ended(found: list[int]) -> None:
    wait_for(lambda: all(map(has_ended, found)))


def test_a_killed_runner_leaves_no_process_and_no_temporary_file(make_notebook, tmp_path, started):
    sign = tmp_path / "sign"
    done = make_notebook("1_done", "print('done')")
    slow = make_notebook("2_slow", FORKS_AWAY.format(sign=str(sign)), "time.sleep(600)")
    out, temporary = tmp_path / "out", tmp_path / "tmp"
    temporary.mkdir()
    runner = started("run", done, slow, "--out", out, TMPDIR=str(temporary))
    found = pids(sign)
    everything = [p.pid for p in psutil.Process(runner.pid).children(recursive=True)]
    assert set(found) <= set(everything) and len(everything) >= 4  # a supervisor, a worker, a kernel, a child
    assert list(temporary.rglob("*.json"))  # the kernel's connection file
    runner.kill()
    runner.wait()
    assert_ended(everything)
    assert not list(temporary.iterdir())
    assert printed(out / "1_done.ipynb") == "done\n" and not (out / "2_slow.ipynb").exists()
    make_notebook("2_slow", "print('quick')")
    resumed = batch.run_course([done, slow], out, resume=True)
    assert [run.status for run in resumed.runs] == ["kept", "ok"]


def test_processes_in_other_sessions_end_with_their_point(make_notebook, tmp_path):
    sign = tmp_path / "sign"
    seen = f"print(os.path.exists('/proc/' + open({str(sign)!r}).read().split()[0]))"
    first = make_notebook("1_forks", FORKS_AWAY.format(sign=str(sign)))
    second = make_notebook("2_looks", "import os", seen)
    assert batch.run_course([first, second], tmp_path / "out").ok
    assert printed(tmp_path / "out" / "2_looks.ipynb") == "False\n"


def test_a_killed_worker_loses_only_its_own_point(make_notebook, tmp_path):
    kills = "import os, signal, time\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(600)"
    one, two = make_notebook("1_kills", kills), make_notebook("2_good", "print('still here')")
    report = batch.run_course([one, two], tmp_path / "out")
    assert [run.status for run in report.runs] == ["failed", "ok"] and report.exit_status == 1
    assert report.runs[0].failure.kind == "died" and "SIGKILL" in report.runs[0].failure.message
    out = tmp_path / "out"
    assert not (out / "1_kills.ipynb").exists() and 'href="1_kills' not in (out / "index.html").read_text()
    assert not [p for p in out.rglob("*") if ".tmp" in p.name]


def test_retries_run_a_point_that_died_again(make_notebook, tmp_path):
    """A kernel that dies, then a worker that is killed, then all is well."""
    falls = """\
import os, pathlib, signal
log = pathlib.Path({log!r})
log.open('a').write('x')
tries = len(log.read_text())
if tries == 1: os._exit(3)
if tries == 2: os.kill(os.getppid(), signal.SIGKILL), os.kill(os.getpid(), signal.SIGSTOP)
print('at last')"""
    source = make_notebook("falls", falls.format(log=str(tmp_path / "log")))
    (run,) = batch.run_course([source], tmp_path / "out", retries=2).runs
    assert (run.status, run.attempts) == ("ok", 3)
    assert printed(tmp_path / "out" / "falls.ipynb") == "at last\n"


def test_the_runner_does_not_import_what_makes_pages(make_notebook, tmp_path):
    """What executes and converts notebooks is not even loaded in its process."""
    source = make_notebook("one", "print(1)")
    code = (
        "import sys; from workbook import batch; "
        f"assert batch.run_course([{str(source)!r}], {str(tmp_path / 'out')!r}).ok; "
        "print('nbconvert' in sys.modules, 'workbook.batch.engine' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_each_running_point_gets_one_gpu(make_notebook, tmp_path, nvidia_smi):
    nvidia_smi(TWO)
    # Each waits for the other, so they run side by side.
    meets = """\
import os, pathlib, time
place = pathlib.Path({place!r})
(place / str(n)).write_text('')
while len(list(place.iterdir())) < 2: time.sleep(0.05)
print(os.environ['CUDA_VISIBLE_DEVICES'])"""
    place = tmp_path / "place"
    place.mkdir()
    source = make_notebook("lesson", ("n: int = 0", "parameters"), meets.format(place=str(place)))
    out = tmp_path / "out"
    report = batch.run_course([source], out, grid={"n": ["1", "2"]}, gpus="all")
    assert report.ok, report
    shown = {printed(out / f"lesson__n={n}.ipynb").strip() for n in (1, 2)}
    assert shown == {"GPU-aaaa-1", "GPU-bbbb-2"} == {run.gpu for run in report.runs}
    assert all(run.gpu_alone for run in report.runs)
    saved = json.loads((out / "report.json").read_text())["notebooks"]
    assert {n["gpu"] for n in saved} == shown and "no other point of the batch" in (
        out / "index.html"
    ).read_text()
    kept = batch.run_course([source], out, grid={"n": ["1", "2"]}, gpus="1", jobs=2, resume=True)
    assert all(run.status == "kept" and run.gpu_alone for run in kept.runs)  # as it was measured


def test_points_that_share_a_gpu_are_marked(make_notebook, tmp_path, nvidia_smi):
    nvidia_smi(TWO)
    sources = [make_notebook(name, "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])") for name in "ab"]
    report = batch.run_course(sources, tmp_path / "out", gpus="1", jobs=2)
    assert [(run.gpu, run.gpu_alone) for run in report.runs] == [("GPU-bbbb-2", False)] * 2
    assert "shared with other points" in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.parametrize(
    ("visible", "text", "uuids"),
    [
        (None, "all", ("GPU-aaaa-1", "MIG-cccc-3", "MIG-dddd-4")),
        (None, "0", ("GPU-aaaa-1",)),
        (None, "MIG-dddd-4, 0", ("MIG-dddd-4", "GPU-aaaa-1")),
        (None, "GPU-aa", ("GPU-aaaa-1",)),
        ("0", "all", ("GPU-aaaa-1",)),
        ("MIG-dddd-4,0", "all", ("MIG-dddd-4", "GPU-aaaa-1")),
    ],
)
def test_gpus_by_number_and_uuid(nvidia_smi, monkeypatch, visible, text, uuids):
    nvidia_smi(SMI)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus.choose(text) == uuids


@pytest.mark.parametrize(
    ("visible", "text", "expected"),
    [
        (None, "7", "7 .*0: NVIDIA H200, GPU-aaaa-1"),
        (None, "0,", "empty name"),
        (None, "1", "1 .*several"),
        (None, "0,GPU-aaaa-1", "GPU-aaaa-1 twice"),
        ("0", "MIG-cccc-3", "CUDA_VISIBLE_DEVICES=0 .*MIG-cccc-3"),
        ("", "all", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_wrong_gpus_are_refused(nvidia_smi, monkeypatch, visible, text, expected):
    nvidia_smi(SMI)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(UsageError, match=expected):
        gpus.choose(text)


def test_gpus_option_without_a_gpu(make_notebook, tmp_path, refusal, nvidia_smi):
    nvidia_smi("No devices were found")
    assert "no GPU" in refusal("run", make_notebook("one", "1"), "--out", "out", "--gpus", "all")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("moment", [0.6, 1.2, 2.4])
def test_an_interrupt_at_any_moment_leaves_no_process(make_notebook, tmp_path, started, moment):
    """The moments fall between Python's start and the first cell; other tests interrupt those."""
    source = make_notebook("slow", "import time; time.sleep(600)")
    process = started("run", source, "--out", tmp_path / "out")
    time.sleep(moment)
    below = [p.pid for p in psutil.Process(process.pid).children(recursive=True)]
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert "Traceback" not in said
    if process.returncode != -signal.SIGTERM:  # Python itself was still starting
        assert process.returncode == 130, said
    assert_ended(below)
    assert not [p for p in tmp_path.rglob("*") if ".tmp" in p.name]


@pytest.mark.parametrize("within", [WAITS, f"exec({WAITS!r})"], ids=["import", "exec"])
def test_sigterm_while_importing_ends_with_130(make_notebook, tmp_path, started, within):
    """Caught while it imports nbformat: a finder of modules stops there, once as a dataclass does that makes
    its methods.
    """
    sign = tmp_path / "importing"
    (tmp_path / "sitecustomize.py").write_text(f"""\
import pathlib, sys, time
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == 'nbformat':
            pathlib.Path({str(sign)!r}).write_text('')
            {within}
sys.meta_path.insert(0, Finder())
""")
    paths = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    process = started("run", make_notebook("one", "1"), "--out", tmp_path / "out", PYTHONPATH=paths)
    wait_for(sign.exists, process)
    process.terminate()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130 and len(said.splitlines()) == 1, said
    assert not (tmp_path / "out").exists()
