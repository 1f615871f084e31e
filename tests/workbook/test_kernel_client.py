"""workbook.batch.kernel_client: no message is lost under load, and a taken port costs no notebook."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest

from workbook import batch

WRITES = """\
import sys
for k in range(2500):
    sys.stdout.write(f"step {k}\\n"); sys.stdout.flush()"""
# 50 MB, more than the buffers of a TCP connection hold while the reader is slow.
DISPLAYS = "for k in range(2500): display('x' * 20_000 + str(k))"
# Before it becomes a kernel, it has another process listen on one of the ports that the kernel was given.
LOSES_A_PORT = """\
import json, os, pathlib, socket, sys
port, times, count, connection_file = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[-1]
starts = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(starts))
if starts <= times:
    taken = socket.socket()
    taken.bind(("127.0.0.1", json.loads(pathlib.Path(connection_file).read_text())[port]))
    taken.listen()
    os.set_inheritable(taken.fileno(), True)
    if os.fork() == 0:
        os.execlp("sleep", "sleep", "600")
    taken.close()
os.execv(sys.executable, [sys.executable, "-m", "ipykernel_launcher", "-f", connection_file])
"""


@pytest.fixture
def busy() -> Iterator[None]:
    """Every core has a process that computes all the time."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.usefixtures("busy")
def test_no_message_is_lost_under_load(make_notebook, tmp_path):
    source = make_notebook("chatty", ("i: int = 0", "parameters"), WRITES, DISPLAYS)
    report = batch.run_course([source], tmp_path / "out", grid={"i": ["1", "2"]}, jobs=2, cell_timeout=150)
    assert [run.status for run in report.runs] == ["ok", "ok"], report
    for run in report.runs:
        *_, writes, displays = nbformat.read(tmp_path / "out" / f"{run.name}.ipynb", 4).cells
        assert "".join(o.text for o in writes.outputs) == "".join(f"step {k}\n" for k in range(2500))
        shown = [o.data["text/plain"].strip("'").lstrip("x") for o in displays.outputs]
        assert shown == [str(k) for k in range(2500)]


def test_a_reply_that_arrives_while_an_output_widget_is_filled_is_seen(make_notebook, tmp_path):
    """Without `_looking_again`, one of 200 such cells hangs."""
    fills = [f"with out:\n    print({i})" for i in range(400)]
    source = make_notebook("widgets", "import ipywidgets\nout = ipywidgets.Output()\ndisplay(out)", *fills)
    report = batch.run_course([source], tmp_path / "out", cell_timeout=20)
    assert [run.status for run in report.runs] == ["ok"], report


@pytest.fixture
def kernel_without_port(kernels, tmp_path) -> Callable[[str, int], Path]:
    """Install a kernel one of whose ports is taken at its first starts; returns the count of its starts."""

    def install(port: str, times: int) -> Path:
        (tmp_path / "loses_a_port.py").write_text(LOSES_A_PORT)
        count = tmp_path / "starts"
        argv = [sys.executable, tmp_path / "loses_a_port.py", port, times, count, "-f", "{connection_file}"]
        kernels("unlucky", *map(str, argv))
        return count

    return install


@pytest.mark.parametrize("port", ["shell_port", "iopub_port"], ids=["the kernel exits", "the kernel hangs"])
def test_a_kernel_whose_port_is_taken_is_started_again(make_notebook, tmp_path, kernel_without_port, port):
    starts = kernel_without_port(port, 2)
    (run,) = batch.run_course([make_notebook("one", "print('ran')")], tmp_path / "out", kernel="unlucky").runs
    assert run.status == "ok", run.failure
    assert starts.read_text() == "3" and run.attempts == 1


def test_a_kernel_whose_port_is_always_taken_fails_with_the_reason(
    make_notebook, tmp_path, kernel_without_port
):
    kernel_without_port("iopub_port", 100)
    (run,) = batch.run_course([make_notebook("one", "1")], tmp_path / "out", kernel="unlucky").runs
    assert (run.status, run.failure.kind) == ("failed", "start")
    assert "Address already in use" in run.failure.traceback and run.seconds < 60
