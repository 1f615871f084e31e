"""What a confined notebook cannot do: each file in attacks/ tries something, earns nothing, and changes and leaves nothing.

The attacks are graded in one batch, between two neighbours whose notebooks are right.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import pytest
from grade_notebooks import ATTACKS, FURTHER, WRONG_A, WRONG_B, hostile, notebook, of, said, verdicts

from helpers.workshop.grade import grade, journal
from helpers.workshop.grade.confine import landlock_version
from helpers.workshop.grade.marks import Grades

NAMES = sorted(path.stem for path in ATTACKS.glob("*.py") if path.stem != "tools")
SECRET = "a-token-of-the-teacher"
needs_landlock = pytest.mark.skipif(landlock_version() < 6, reason="this kernel's Landlock is older than 6")


@dataclass(frozen=True)
class Attacked:
    """A class that was attacked: what it got, and the file that nobody should change."""

    grades: Grades
    canary: Path
    called: bool


def attack(name: str, folder: Path, port: int = 1) -> Path:
    """The notebook of an attack, written into the folder `in`."""
    words = {
        "OUT_FOLDER": folder / "out", "CANARY_FILE": folder / "canary", "SUBMISSIONS_FOLDER": folder / "in",
        "COURSE_FILE": folder / "exercises.py", "PORT_NUMBER": port,
    }  # fmt: skip
    path = folder / "in" / f"{name}.ipynb"
    path.parent.mkdir(exist_ok=True)
    nbformat.write(hostile("tools", name, a=WRONG_A, b=WRONG_B, folder=ATTACKS, **words), path)
    return path


def prepared(folder: Path) -> Path:
    """A folder with a canary and a copy of the exercises, which an attack may try to change."""
    (folder / "canary").write_text("as it was")
    return Path(shutil.copy(FURTHER, folder / "exercises.py"))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    exercises = prepared(folder)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBOOK_SECRET", SECRET)
        given = [attack(name, folder, server.getsockname()[1]) for name in NAMES]
        for name in ("good", "zoe"):
            nbformat.write(notebook(), folder / "in" / f"{name}.ipynb")
        given = [folder / "in" / "good.ipynb", *given, folder / "in" / "zoe.ipynb"]
        grades = grade(given, folder / "out", exercises=exercises, jobs=2, seed=7, time_limit=100)
        server.setblocking(False)
        try:
            called = bool(server.accept())
        except BlockingIOError:
            called = False
    yield Attacked(grades, folder / "canary", called)


@needs_landlock
@pytest.mark.parametrize("name", NAMES)
def test_an_attack_is_stopped_and_earns_nothing(attacked, name):
    assert of(attacked.grades, name).tier == "confined"
    assert verdicts(attacked.grades, name) == ("failed", "failed"), of(attacked.grades, name)
    says = said(attacked.grades, name)
    assert "it worked" not in says and "nothing was tried" not in says
    assert ("threads" if name == "threads" else "stopped: ") in says, says


@needs_landlock
def test_nobody_elses_mark_is_changed(attacked):
    rows = list(csv.DictReader((attacked.grades.out / "grades.csv").open()))
    passed = {(row["learner"], row["exercise"]) for row in rows if row["verdict"] == "passed"}
    assert passed == {(name, exercise) for name in ("good", "zoe") for exercise in ("count-blocks", "twice")}
    lines = (attacked.grades.out / journal.NAME).read_text().splitlines()
    assert len(lines) == 1 + len(NAMES) + 2 and all(json.loads(line) for line in lines)


@needs_landlock
def test_no_file_and_no_process_is_left_and_nothing_told(attacked):
    assert attacked.canary.read_text() == "as it was" and not attacked.called
    assert (attacked.canary.parent / "exercises.py").read_text() == FURTHER.read_text()
    kept = {path.name for path in attacked.grades.out.iterdir()}
    assert kept == {"grades.csv", "index.html", journal.NAME} | {f"{n}.html" for n in (*NAMES, "good", "zoe")}
    for folder in ("/dev/shm", "/tmp", "/var/tmp"):
        assert not (Path(folder) / f"workbook-attack-{os.getpid()}").exists()
    for path in attacked.grades.out.iterdir():
        assert SECRET not in path.read_text(), path
    running = [" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])]
    assert not [words for words in running if str(attacked.canary.parent / "exercises.py") in words]


@needs_landlock
def test_the_report_says_how_the_class_was_confined(attacked):
    assert " · confined</p>" in (attacked.grades.out / "index.html").read_text()
    assert "seed 7, confined, " in repr(attacked.grades)
    assert "confined" in (attacked.grades.out / "good.html").read_text()


def test_what_is_not_confined_is_said_and_the_attack_would_work(tmp_path):
    exercises = prepared(tmp_path)
    grades = grade([attack("links", tmp_path)], tmp_path / "out", exercises=exercises, seed=7, confine=False)
    assert "it worked" in said(grades, "links") and verdicts(grades, "links") == ("failed", "failed")
    assert of(grades, "links").tier == "not confined, as asked for"
    assert "not confined, as asked for" in (grades.out / "index.html").read_text()


@needs_landlock
def test_what_a_lab_needs_is_allowed(tmp_path):
    cells = (
        "import subprocess, tempfile, pathlib\nx = !echo one two\nassert x == ['one two'], x\n!true",
        "with tempfile.NamedTemporaryFile('w') as f:\n    f.write('x')\npathlib.Path('own').write_text('x')",
        "import os, signal\nchild = subprocess.Popen(['sleep', '60'])\nchild.send_signal(signal.SIGTERM)\nchild.wait()",
        "import torch\nassert torch.compile(lambda x: x + 1)(torch.ones(3)).tolist() == [2, 2, 2]",
    )
    path = tmp_path / "ada.ipynb"
    nbformat.write(notebook(*cells), path)
    grades = grade([path], tmp_path / "out", exercises=FURTHER, seed=7)
    assert of(grades, "ada").raised == () and verdicts(grades, "ada") == ("passed", "passed")
