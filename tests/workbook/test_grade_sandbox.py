"""The sandbox of learners' code: what stands in it, its limits, and what is said where there is none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from grade_notebooks import FURTHER, notebook, of

from workbook.grade import examine, grade
from workbook.sandbox import bubblewrap, cgroup
from workbook.usage import UsageError


def seen(*, readable: tuple = (), hidden: tuple = (), look: str) -> list[str]:
    """What a command of the shell prints in a sandbox."""
    words = [*bubblewrap.command(readable, hidden, 200), "sh", "-c", look]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


# ------------------------------------------------------------------------------------------------ what stands
# in it


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with `course/helpers`, `course/labs` and `course/in`, each with a file."""
    for name in ("helpers", "labs", "in"):
        (tmp_path / "course" / name).mkdir(parents=True)
        (tmp_path / "course" / name / "file").write_text(name)
    return tmp_path


def test_only_what_is_named_is_there(folder):
    course = folder / "course"
    assert (
        seen(readable=(course / "helpers",), look=f"ls {course}; cat {course}/helpers/file")
        == ["helpers"] * 2
    )


def test_what_is_hidden_is_not_there_though_its_folder_is_and_what_is_named_below_it_is(folder):
    course = folder / "course"
    look = f"ls {course} {course}/labs"
    assert seen(readable=(folder,), hidden=(course / "labs",), look=f"ls {course}/labs") == []
    found = seen(readable=(folder, course / "helpers"), hidden=(course,), look=f"ls {course}")
    assert found == ["helpers"]
    assert "file" in seen(readable=(folder,), look=look)


def test_a_folder_is_hidden_under_each_of_its_names(folder):
    (folder / "link").symlink_to(folder / "course")
    (folder / "other").symlink_to(folder / "course" / "labs")
    link = folder / "link"
    look = f"cat {link}/labs/file {folder}/course/labs/file {link}/helpers/file 2>/dev/null; true"
    assert seen(readable=(link,), hidden=(folder / "other",), look=look) == ["helpers"]


def test_what_is_mounted_anyway_is_not_mounted_twice(folder):
    course = folder / "course"
    (course / "link").symlink_to(course / "labs")
    readable = [course, course / "labs", course / "link", course / "none", "relative", "/usr", "/usr/bin"]
    found = bubblewrap.mounts(readable, ())
    assert found == {str(course): str(course), "/usr": "/usr"}


def test_nothing_can_be_written_but_in_memory_and_files_there_are_limited(folder):
    for path in (folder / "course", Path("/usr"), Path("/dev"), Path("/"), Path("/proc/sys/kernel/hostname")):
        target = path if path.is_file() else path / "mine"
        look = f"(echo x > {target}) 2>/dev/null && echo written; true"
        assert seen(readable=(folder / "course",), look=look) == [], path
    for path in bubblewrap.IN_MEMORY:
        look = (
            f"echo x > {path}/mine && echo written; head -c 150000000 /dev/zero > {path}/large || echo full"
        )
        assert seen(look=f"({look}) 2>/dev/null") == ["written", "full"]


def test_it_has_no_network_no_rights_and_no_other_process():
    assert seen(look="cat /proc/net/dev | tail -n +3 | cut -d: -f1") == ["lo"]
    assert seen(look="grep -h '^Cap' /proc/self/status | cut -f2 | sort -u") == ["0" * 16]
    assert len(seen(look="ls -d /proc/[0-9]*")) <= 3
    assert seen(look="id -u; hostname; pwd") == ["1000", "learner", bubblewrap.HOME]


# ------------------------------------------------------------------------------------------------ limits


def test_a_control_group_counts_what_no_process_shows():
    hold = "import os, time; os.posix_fallocate(os.memfd_create('x'), 0, 300 << 20); print('held')"
    with cgroup.limited(100) as group:
        if group is None:
            pytest.skip("this system grants no control group")
        ran = subprocess.run(group.inside([sys.executable, "-c", hold]), capture_output=True, check=False)
        assert ran.returncode and group.n_killed == 1 and b"held" not in ran.stdout
        path = group.path
    assert not path.exists()


def test_the_group_of_a_grader_that_was_killed_is_removed_by_the_next():
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True)
    with cgroup.limited(100) as group:
        if group is None:
            pytest.skip("this system grants no control group")
        left = group.path.parent / f"workbook-grade-{int(ended.stdout)}-1"
        left.mkdir()
    with cgroup.limited(100):
        assert not left.exists()


def test_judging_is_limited_too():
    child = os.fork()
    if not child:
        held = bytearray(os.urandom(1 << 20) * 300)
        time.sleep(60)
        os._exit(len(held) * 0)
    assert examine._wait(child, 100) == "judging it took more than 100 MB of memory"


def test_a_notebook_of_very_many_values_is_refused_before_it_is_read(tmp_path):
    made = json.loads(nbformat.writes(notebook()))
    values = f"[{','.join(['{}'] * 4 * 10**6)}]"
    text = json.dumps(made | {"metadata": {"x": "HERE"}}).replace('"HERE"', values)
    (tmp_path / "ada.ipynb").write_text(text)
    grades = grade([tmp_path / "ada.ipynb"], tmp_path / "out", exercises=FURTHER, seed=7)
    assert of(grades, "ada").problem == "it holds more than four million values; clear its outputs"


# ------------------------------------------------------------------------------------------------ no sandbox


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "There is no bwrap here for the sandbox: install bubblewrap (on Debian and Ubuntu: apt-get "
               "install bubblewrap), or grade with --unsafe"),
        ("echo no permission >&2; exit 1", "bubblewrap can make no sandbox here (no permission): allow user "
                                           "namespaces (`sysctl user.max_user_namespaces "),
    ],
)  # fmt: skip
def test_where_no_sandbox_can_be_had_nothing_is_graded(tmp_path, monkeypatch, text, says):
    nbformat.write(notebook(), tmp_path / "ada.ipynb")
    if text is not None:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=re.escape(says)):
        grade([tmp_path / "ada.ipynb"], tmp_path / "out", exercises=FURTHER)
    assert not (tmp_path / "out").exists()
