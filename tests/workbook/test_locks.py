"""workbook.locks: taken, waited for, and released when their holder is killed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from commands import environment

from workbook import locks

HOLDS = """\
import sys, time
from pathlib import Path
from workbook import locks
with locks.partial(Path(sys.argv[1])) as partial:
    partial.write_text('half')
    lock = locks.take(Path(sys.argv[2]))
    lock.write('me')
    print(partial, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds `lock` and writes `file`; with what it has written so far."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, tmp_path / "file", tmp_path / "lock"],
        env=environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    partial = tmp_path / process.stdout.readline().strip()
    yield process, partial
    process.kill()
    process.communicate()


def test_a_lock_ends_with_its_holder(holder, tmp_path):
    process, _ = holder
    path = tmp_path / "lock"
    assert locks.is_held(path) and locks.take(path) is None
    process.kill()
    process.wait()
    assert not locks.is_held(path)
    with locks.hold(path) as lock:
        assert lock.before == "me" and locks.take(path) is None
    assert not path.exists()
    again = locks.take(path)
    assert again.before == ""
    again.close()


def test_only_files_of_dead_writers_are_removed(holder, tmp_path):
    process, partial = holder
    foreign = tmp_path / ".theirs.tmp"
    foreign.write_text("of another program")
    locks.sweep(tmp_path)
    assert partial.read_text() == "half"
    process.kill()
    process.wait()
    locks.sweep(tmp_path)
    assert not partial.exists() and foreign.exists()
