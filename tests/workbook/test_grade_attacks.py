"""What a notebook in the sandbox cannot do: each file in attacks/sandbox tries something, earns nothing, and
changes and leaves nothing.

The attacks are graded in one batch, between two neighbors whose notebooks are right.
"""

from __future__ import annotations

import csv
import ctypes
import json
import os
import platform
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import pytest
from commands import ROOT, environment
from grade_notebooks import ATTACKS, FURTHER, WRONG_A, WRONG_B, hostile, notebook, of, said, verdicts

from workbook.grade import grade, journal
from workbook.grade.marks import UNSAFE, Grades
from workbook.sandbox import bubblewrap, cgroup

NAMES = sorted(path.stem for path in (ATTACKS / "sandbox").glob("*.py") if path.stem != "tools")
SECRET = "a-token-of-the-teacher"
MEMORY_MB = 1500
# What the report says of an attack that raises nothing itself.
STOPPED = {
    "threads": "started more than 1500 threads",
    "buffers": f"took more than {MEMORY_MB} MB of memory",
    "nameless": f"took more than {MEMORY_MB} MB of memory",
}


@dataclass(frozen=True)
class Attacked:
    """A class that was attacked: what it got, the file that nobody should change, whether anybody called, and
    what System V kept before.
    """

    grades: Grades
    canary: Path
    called: bool
    shared: str


def attack(name: str, folder: Path, port: int = 1) -> Path:
    """The notebook of an attack, written into the folder `in`."""
    words = {
        "OUT_FOLDER": folder / "out", "CANARY_FILE": folder / "canary", "SUBMISSIONS_FOLDER": folder / "in",
        "COURSE_FILE": folder / "exercises.py", "PORT_NUMBER": port, "SOCKET_FILE": folder / "socket",
        "SOCKET_NAME": f"workbook-{os.getpid()}",
    }  # fmt: skip
    path = folder / "in" / f"{name}.ipynb"
    path.parent.mkdir(exist_ok=True)
    made = hostile("tools", name, a=WRONG_A, b=WRONG_B, folder=ATTACKS / "sandbox", **words)
    nbformat.write(made, path)
    return path


def prepared(folder: Path) -> Path:
    """A folder with a canary and a copy of the exercises, which an attack may try to change."""
    (folder / "canary").write_text("as it was")
    return Path(shutil.copy(FURTHER, folder / "exercises.py"))


def shared_memory() -> str:
    """What System V keeps of all processes."""
    return "".join(Path(f"/proc/sysvipc/{kind}").read_text() for kind in ("shm", "msg", "sem"))


def keep_key(name: str) -> None:
    """Put a key into the keyring of this session, as x86-64's kernel does it."""
    if platform.machine() == "x86_64":
        ctypes.CDLL(None).syscall(248, b"user", name.encode(), b"secret", 6, -3)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    exercises = prepared(folder)
    before = shared_memory()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as local,
        socket.socket(socket.AF_UNIX) as named,
        pytest.MonkeyPatch.context() as patch,
    ):
        port = server.getsockname()[1]
        datagrams.bind(("127.0.0.1", port))
        patch.chdir(folder)  # a socket's path has 107 characters at most
        local.bind("socket")
        named.bind(f"\0workbook-{os.getpid()}")
        for one in (local, named):
            one.listen()
        patch.setenv("WORKBOOK_SECRET", SECRET)
        keep_key(f"workbook-{os.getpid()}")
        given = [attack(name, folder, port) for name in NAMES]
        for name in ("good", "zoe"):
            nbformat.write(notebook(), folder / "in" / f"{name}.ipynb")
        given = [folder / "in" / "good.ipynb", *given, folder / "in" / "zoe.ipynb"]
        limits = {"time_limit": 100, "memory_limit": MEMORY_MB}
        grades = grade(given, folder / "out", exercises=exercises, jobs=2, seed=7, **limits)
        called = bool(select.select([server, datagrams, local, named], [], [], 0)[0])
    yield Attacked(grades, folder / "canary", called, before)


@pytest.mark.parametrize("name", NAMES)
def test_an_attack_is_stopped_and_earns_nothing(attacked, name):
    assert verdicts(attacked.grades, name) == ("failed", "failed"), of(attacked.grades, name)
    says = said(attacked.grades, name)
    if "control group" in cgroup.about(MEMORY_MB) or name not in ("buffers", "nameless"):
        assert STOPPED.get(name, "stopped: ") in says, says
    assert "it worked" not in says and "nothing was tried" not in says, says


def test_nobody_elses_mark_is_changed(attacked):
    rows = list(csv.DictReader((attacked.grades.out / "grades.csv").open()))
    passed = {(row["learner"], row["exercise"]) for row in rows if row["verdict"] == "passed"}
    assert passed == {(name, exercise) for name in ("good", "zoe") for exercise in ("count-blocks", "twice")}
    lines = (attacked.grades.out / journal.NAME).read_text().splitlines()
    assert len(lines) == 1 + len(NAMES) + 2 and all(json.loads(line) for line in lines)


def test_no_file_and_no_process_is_left_and_nothing_told(attacked):
    assert attacked.canary.read_text() == "as it was" and not attacked.called
    assert (attacked.canary.parent / "exercises.py").read_text() == FURTHER.read_text()
    kept = {path.name for path in attacked.grades.out.iterdir()}
    pages = {f"{n}.html" for n in (*NAMES, "good", "zoe")}
    assert {journal.NAME, "grades.csv", "index.html"} | pages <= kept
    assert not [name for name in kept - pages if Path(name).suffix not in (".csv", ".html", ".jsonl")]
    for folder in ("/dev/shm", "/tmp", "/var/tmp"):
        assert not (Path(folder) / f"workbook-attack-{os.getpid()}").exists()
    assert shared_memory() == attacked.shared
    for path in attacked.grades.out.iterdir():
        assert SECRET not in path.read_text(), path
    running = [" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])]
    assert not [words for words in running if str(attacked.canary.parent / "exercises.py") in words]


def test_the_report_says_how_the_class_was_kept_in(attacked):
    says = "sandboxed by bubblewrap "
    assert f" · {says}" in (attacked.grades.out / "index.html").read_text()
    assert f"seed 7, {says}" in repr(attacked.grades)
    assert says in (attacked.grades.out / "good.html").read_text()
    rows = csv.DictReader((attacked.grades.out / "grades.csv").open())
    assert all(row["tier"].startswith(says) for row in rows)


def test_without_a_sandbox_every_report_says_so_and_an_attack_works(tmp_path):
    exercises = prepared(tmp_path)
    grades = grade([attack("links", tmp_path)], tmp_path / "out", exercises=exercises, seed=7, unsafe=True)
    assert "it worked" in said(grades, "links") and verdicts(grades, "links") == ("failed", "failed")
    assert of(grades, "links").tier == UNSAFE and UNSAFE in repr(grades)
    for name in ("index.html", "links.html"):
        assert '<p class="banner">NOT SANDBOXED' in (grades.out / name).read_text(), name
    assert "NOT SANDBOXED" in (grades.out / "grades.csv").read_text()


def test_what_a_lab_needs_is_allowed(tmp_path):
    cells = (
        "import subprocess, tempfile, pathlib\nx = !echo one two\nassert x == ['one two'], x\n!true",
        "with tempfile.NamedTemporaryFile('w') as f:\n    f.write('x')\npathlib.Path('own').write_text('x')\n"
        "import getpass\nassert getpass.getuser() == 'learner'",
        "import os, signal\nchild = subprocess.Popen(['sleep', "
        "'60'])\nchild.send_signal(signal.SIGTERM)\nchild.wait()",
        "import torch\nassert torch.compile(lambda x: x + 1)(torch.ones(3)).tolist() == [2, 2, 2]",
    )
    path = tmp_path / "ada.ipynb"
    nbformat.write(notebook(*cells), path)
    # a compiler on a busy machine takes its time
    grades = grade([path], tmp_path / "out", exercises=FURTHER, seed=7, time_limit=900)
    assert of(grades, "ada").raised == () and verdicts(grades, "ada") == ("passed", "passed")


def test_a_folder_of_the_path_that_nobody_may_enter_disturbs_nothing(tmp_path, monkeypatch):
    """As an ordinary user: to root every folder is open."""
    (tmp_path / "closed").mkdir(mode=0)
    monkeypatch.setenv("PATH", f"{tmp_path / 'closed'}:{tmp_path / 'none'}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).startswith(str(tmp_path)))
    assert not [path for path in bubblewrap.mounts([tmp_path / "closed", tmp_path / "none"], ()) if path]
    nbformat.write(notebook(), tmp_path / "ada.ipynb")
    grades = grade([tmp_path / "ada.ipynb"], tmp_path / "out", exercises=FURTHER, seed=7)
    assert verdicts(grades, "ada") == ("passed", "passed")


@pytest.mark.parametrize("below", ["/tmp", "/usr/src", "/var/tmp"])
def test_answers_are_hidden_wherever_the_checkout_lies(below):
    """A copy of the checkout, from which a class is graded whose only learner looks for answers."""
    folder = Path(below) / f"workbook-copy-{os.getpid()}"
    if not os.access(below, os.W_OK):
        pytest.skip(f"this user may not write into {below}")
    try:
        for name in ("helpers", "workbook", "labs", "pyproject.toml"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            folder.mkdir(exist_ok=True)
            copy(ROOT / name, folder / name)
        nbformat.write(notebook(), folder / "other.ipynb")
        path = attack("answers_on_disk", folder)
        code = f"""\
from workbook.grade import grade, grader
assert grader.__file__.startswith({str(folder)!r})
print(grade([{str(path)!r}], "out", exercises={str(FURTHER)!r}, seed=7).graded[0].raised)"""
        ran = subprocess.run(
            [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False,
            env={**environment(), "PYTHONPATH": str(folder)},
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        assert "stopped: " in ran.stdout and "it worked" not in ran.stdout, ran.stdout
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ------------------------------------------------------------------------------------------------ on a GPU

KERNEL = """\
import torch, triton, triton.language as tl
@triton.jit
def add_one(y, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
x = torch.arange(300.0, device="cuda"); y = torch.empty_like(x)
add_one[(2,)](y, x, 300, BLOCK=256)
assert torch.equal(y, x + 1)
print(torch.compile(lambda x: x * 2 + 1)(x).sum())"""
CHILD = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', '''{KERNEL.splitlines()[0]}\n" + (
    "print(torch.ones(3, device=\"cuda\").sum().item())'''], check=True)"
)


@pytest.mark.gpu
def test_a_gpu_can_be_used_in_the_sandbox_also_by_a_child(tmp_path):
    path = tmp_path / "ada.ipynb"
    nbformat.write(notebook(KERNEL, CHILD), path)
    grades = grade([path], tmp_path / "out", exercises=FURTHER, seed=7)
    assert of(grades, "ada").raised == () and verdicts(grades, "ada") == ("passed", "passed")
    assert of(grades, "ada").tier.startswith("sandboxed by bubblewrap ")


@pytest.mark.gpu
def test_a_cell_can_be_profiled_in_the_sandbox(tmp_path):
    cell = "%%ncu\nimport torch\ntorch.ones(1 << 20, device='cuda').square_()"
    path = tmp_path / "ada.ipynb"
    nbformat.write(notebook("%load_ext helpers.ncu", cell), path)
    grades = grade([path], tmp_path / "out", exercises=FURTHER, seed=7, time_limit=300)
    assert of(grades, "ada").raised == () and verdicts(grades, "ada") == ("passed", "passed")
