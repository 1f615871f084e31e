"""What a confined notebook cannot do: each file in attacks/ tries something, earns nothing, and changes and
leaves nothing.

The attacks are graded in one batch, between two neighbours whose notebooks are right.
"""

from __future__ import annotations

import csv
import json
import os
import re
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
from commands import environment
from grade_notebooks import ATTACKS, FURTHER, WRONG_A, WRONG_B, hostile, notebook, of, said, verdicts

from workbook import grade as grading
from workbook.grade import confine, disk, grade, journal
from workbook.grade.confine import landlock_version
from workbook.grade.marks import Grades
from workbook.grade.sandbox import require, started
from workbook.usage import UsageError

NAMES = sorted(path.stem for path in (ATTACKS / "sandbox").glob("*.py") if path.stem not in ("tools", "disk"))
SECRET = "a-token-of-the-teacher"
needs_landlock = pytest.mark.skipif(landlock_version() < 6, reason="this kernel's Landlock is older than 6")
TIERS = ("", "bwrap", "podman", "docker")
SAYS = {
    "": "confined",
    "bwrap": "sandboxed by bubblewrap ",
    "podman": "contained by podman ",
    "docker": "contained by docker ",
}


def skip_without(kind: str) -> None:
    """Skip where this machine has no such tier; bubblewrap is installed by apt-get where it is missing and
    this user may.
    """
    if landlock_version() < 6:
        pytest.skip("this kernel's Landlock is older than 6")
    if kind == "bwrap" and not shutil.which(kind) and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"stdout": subprocess.DEVNULL, "check": False, "timeout": 900}
        for words in (["update"], ["install", "-y", "bubblewrap"]):
            subprocess.run(
                ["apt-get", *words], env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, **quiet
            )
    try:
        if kind:
            require(kind)
    except UsageError as error:
        pytest.skip(str(error))


@dataclass(frozen=True)
class Attacked:
    """A class that was attacked: in which tier, what it got, the file that nobody should change, whether
    anybody called.
    """

    sandbox: str
    grades: Grades
    canary: Path
    called: bool
    shared: str


def attack(name: str, folder: Path, port: int = 1, kind: str = "") -> Path:
    """The notebook of an attack, written into the folder `in`."""
    words = {
        "OUT_FOLDER": folder / "out", "CANARY_FILE": folder / "canary", "SUBMISSIONS_FOLDER": folder / "in",
        "COURSE_FILE": folder / "exercises.py", "PORT_NUMBER": port, "SOCKET_FILE": folder / "socket",
        "SANDBOX_KIND": kind,
    }  # fmt: skip
    path = folder / "in" / f"{name}.ipynb"
    path.parent.mkdir(exist_ok=True)
    nbformat.write(hostile("tools", name, a=WRONG_A, b=WRONG_B, folder=ATTACKS / "sandbox", **words), path)
    return path


def prepared(folder: Path) -> Path:
    """A folder with a canary and a copy of the exercises, which an attack may try to change."""
    (folder / "canary").write_text("as it was")
    return Path(shutil.copy(FURTHER, folder / "exercises.py"))


def shared_memory() -> str:
    """What System V keeps of all processes."""
    return "".join(Path(f"/proc/sysvipc/{kind}").read_text() for kind in ("shm", "msg", "sem"))


@pytest.fixture(scope="module", params=TIERS, ids=lambda kind: kind or "confined")
def attacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    skip_without(request.param)
    folder = tmp_path_factory.mktemp("attacked")
    exercises = prepared(folder)
    before = shared_memory()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as local,
        pytest.MonkeyPatch.context() as patch,
    ):
        port = server.getsockname()[1]
        datagrams.bind(("127.0.0.1", port))
        patch.chdir(folder)  # a socket's path has 107 characters at most
        local.bind("socket")
        local.listen()
        patch.setenv("WORKBOOK_SECRET", SECRET)
        given = [attack(name, folder, port, request.param) for name in NAMES]
        for name in ("good", "zoe"):
            nbformat.write(notebook(), folder / "in" / f"{name}.ipynb")
        given = [folder / "in" / "good.ipynb", *given, folder / "in" / "zoe.ipynb"]
        grades = grade(
            given, folder / "out", exercises=exercises, jobs=2, seed=7, time_limit=100, sandbox=request.param
        )
        called = bool(select.select([server, datagrams, local], [], [], 0)[0])
    yield Attacked(request.param, grades, folder / "canary", called, before)


@pytest.mark.parametrize("name", NAMES)
def test_an_attack_is_stopped_and_earns_nothing(attacked, name):
    assert of(attacked.grades, name).tier.startswith(SAYS[attacked.sandbox])
    assert verdicts(attacked.grades, name) == ("failed", "failed"), of(attacked.grades, name)
    says = said(attacked.grades, name)
    assert "it worked" not in says and "nothing was tried" not in says
    assert ("thread" if name == "threads" else "stopped: ") in says, says


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
    says = SAYS[attacked.sandbox]
    assert f" · {says}" in (attacked.grades.out / "index.html").read_text()
    assert f"seed 7, {says}" in repr(attacked.grades)
    assert says in (attacked.grades.out / "good.html").read_text()
    rows = csv.DictReader((attacked.grades.out / "grades.csv").open())
    assert all(row["tier"].startswith(says) for row in rows)


def test_what_is_not_confined_is_said_and_the_attack_would_work(tmp_path):
    exercises = prepared(tmp_path)
    grades = grade([attack("links", tmp_path)], tmp_path / "out", exercises=exercises, seed=7, confine=False)
    assert "it worked" in said(grades, "links") and verdicts(grades, "links") == ("failed", "failed")
    assert of(grades, "links").tier == "not confined, as asked for"
    assert "not confined, as asked for" in (grades.out / "index.html").read_text()


def test_a_spare_user_has_a_name_which_torch_compile_asks_for(tmp_path):
    path = tmp_path / "ada.ipynb"
    nbformat.write(notebook("import getpass\nassert getpass.getuser() == 'learner'"), path)
    grades = grade([path], tmp_path / "out", exercises=FURTHER, seed=7)
    assert of(grades, "ada").raised == () and verdicts(grades, "ada") == ("passed", "passed")


@needs_landlock
def test_a_confined_process_names_its_own_threads_as_cuda_does_when_it_starts(tmp_path):
    """Without that cuInit gives error 304 (seen on an H200). Nothing else of /proc may be written."""
    code = f"""
import os, sys, threading
from pathlib import Path
from workbook.grade import confine
print(confine.enter(confine.plan(Path({str(tmp_path)!r}), sys.path)))
def write(path, text):
    try:
        Path(path).write_text(text)
    except OSError as error:
        return type(error).__name__
    return Path(path).read_text().strip()
def named():
    print(write(f"/proc/{{os.getpid()}}/task/{{threading.get_native_id()}}/comm", "cuda-handler"))
thread = threading.Thread(target=named)
thread.start()
thread.join()
parent = os.getppid()
print(*[write(path, "1") for path in (f"/proc/{{parent}}/task/{{parent}}/comm", "/proc/self/oom_score_adj")])
"""
    words = [sys.executable, "-c", code]
    told = subprocess.run(words, env=environment(), capture_output=True, text=True, check=True).stdout
    tier, name, refused = told.splitlines()
    assert tier.startswith("confined") and name == "cuda-handler"
    assert refused == "PermissionError PermissionError"


@needs_landlock
def test_what_a_lab_needs_is_allowed(tmp_path):
    cells = (
        "import subprocess, tempfile, pathlib\nx = !echo one two\nassert x == ['one two'], x\n!true",
        "with tempfile.NamedTemporaryFile('w') as f:\n    f.write('x')\npathlib.Path('own').write_text('x')",
        "import os, signal\nchild = subprocess.Popen(['sleep', "
        "'60'])\nchild.send_signal(signal.SIGTERM)\nchild.wait()",
        "import torch\nassert torch.compile(lambda x: x + 1)(torch.ones(3)).tolist() == [2, 2, 2]",
    )
    path = tmp_path / "ada.ipynb"
    nbformat.write(notebook(*cells), path)
    grades = grade(
        [path], tmp_path / "out", exercises=FURTHER, seed=7, time_limit=900
    )  # a compiler on a busy machine
    assert of(grades, "ada").raised == () and verdicts(grades, "ada") == ("passed", "passed")


FILLED = """\
import json
from workbook.grade import grade
grades = grade({given!r}, {out!r}, exercises={exercises!r}, seed=7)
print(json.dumps({{one.learner: [[m.verdict for m in one.marks],
    [r.error for r in one.raised]] for one in grades.graded}}))
"""


def test_a_full_disk_costs_only_who_filled_it(tmp_path):
    """The notebooks' folders are on a file system of 300 MB, in a mount namespace that ends with
    the command.
    """
    exercises, small = prepared(tmp_path), tmp_path / "small"
    small.mkdir()
    given = [str(attack("disk", tmp_path)), str(tmp_path / "in" / "zoe.ipynb")]
    nbformat.write(notebook(), given[1])
    code = FILLED.format(given=given, out=str(tmp_path / "out"), exercises=str(exercises))
    (tmp_path / "run.py").write_text(code)
    mount = ["unshare", *([] if os.getuid() == 0 else ["--user", "--map-root-user"]), "--mount", "sh", "-c"]
    tmpfs = f"mount -t tmpfs -o size=300m,mode=1777 none {small}"
    if subprocess.run([*mount, tmpfs], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody mount a file system")
    ran = subprocess.run(
        [*mount, f"{tmpfs} && exec {sys.executable} {tmp_path / 'run.py'}"],
        env={**environment(), "TMPDIR": str(small)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["zoe"] == [["passed", "passed"], []]
    verdicts_of_it, raised = found["disk"]
    assert verdicts_of_it == ["failed", "failed"]
    assert any("wrote more than" in one for one in raised), raised
    assert len((tmp_path / "out" / journal.NAME).read_text().splitlines()) == 3


def test_files_that_have_no_name_any_more_are_counted(tmp_path):
    kept = tmp_path / "kept"
    kept.write_bytes(bytes(1 << 20))
    with open(tmp_path / "gone", "wb+") as gone:
        gone.write(bytes(2 << 20))
        gone.flush()
        os.unlink(tmp_path / "gone")
        with_it = disk.held(tmp_path, [psutil.Process()])
    without = disk.held(tmp_path, [psutil.Process()])
    assert (with_it[0] - without[0], with_it[1] - without[1]) == (2 << 20, 1) and without[0] >= 1 << 20


@needs_landlock
def test_sockets_that_are_files_are_allowed_where_cuda_needs_one():
    code = """\
import os, socket
from workbook.grade import syscalls
from workbook.supervisor import prctl
prctl(38, 1)
assert syscalls.refuse(unix_sockets=True)
socket.socket(socket.AF_UNIX).close()
for family in (socket.AF_INET, socket.AF_NETLINK):
    try:
        socket.socket(family, socket.SOCK_DGRAM)
    except PermissionError:
        continue
    raise SystemExit(f"{family} is allowed")
a, b = socket.socketpair()
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("tier", TIERS)
def test_a_gpu_can_be_used_in_each_tier(tmp_path, tier):
    skip_without(tier)
    kernel = """\
import torch, triton, triton.language as tl
@triton.jit
def add_one(y, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
x = torch.arange(300.0, device="cuda"); y = torch.empty_like(x)
add_one[(2,)](y, x, 300, BLOCK=256)
assert torch.equal(y, x + 1)
print(torch.compile(lambda x: x * 2 + 1)(x).sum())"""
    path = tmp_path / "ada.ipynb"
    nbformat.write(notebook(kernel), path)
    grades = grade([path], tmp_path / "out", exercises=FURTHER, seed=7, sandbox=tier)
    assert of(grades, "ada").raised == () and verdicts(grades, "ada") == ("passed", "passed")
    assert of(grades, "ada").tier.startswith(SAYS[tier])


# ------------------------------------------------------------------------------------------------ sandboxes


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"sandbox": "chroot"}, "--sandbox 'chroot' is none; there are bwrap, docker, podman."),
        ({"image": "mine"}, "--image mine is for --sandbox docker or podman."),
        ({"sandbox": "bwrap", "image": "mine"}, "--image mine is for --sandbox docker or podman."),
        ({"sandbox": "bwrap", "confine": False}, "say the opposite"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(tmp_path, asked, says):
    nbformat.write(notebook(), tmp_path / "ada.ipynb")
    with pytest.raises(UsageError, match=re.escape(says)):
        grade([tmp_path / "ada.ipynb"], tmp_path / "out", exercises=FURTHER, **asked)
    assert not (tmp_path / "out").exists()


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("bwrap", None, "there is no bwrap here; install bubblewrap, or grade without --sandbox."),
        ("podman", None, "there is no podman here; install podman, or grade without --sandbox."),
        ("bwrap", "echo no permission >&2; exit 1", "it can make no namespaces here (no permission)."),
        ("docker", "echo 'no daemon' >&2; exit 1", "its service does not answer (no daemon)."),
        (
            "docker", 'case "$1" in image) echo "No such image" >&2; exit 1;; esac',
            "there is no image kernel-workbook-grade; build it with `docker build -t kernel-workbook-grade "
            "-f workbook/grade/Dockerfile .` (No such image).",
        ),
    ],
)  # fmt: skip
def test_a_sandbox_that_is_not_there_is_refused_in_one_sentence(tmp_path, monkeypatch, kind, text, says):
    if text is not None:
        program(tmp_path, kind, text)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=re.escape(f"--sandbox {kind}: {says}")):
        require(kind)


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_container_gets_no_network_no_rights_and_limits(tmp_path, monkeypatch, kind):
    program(tmp_path, kind, f"echo '{kind} version 27.1.2, build x'")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = require(kind, "mine")
    assert found.says == f"contained by {kind} 27.1.2, image mine"
    given = {"HOME": "/tmp/x", "TMPDIR": "/tmp/x/tmp", "PATH": "/secret", "LANG": "C"}
    start = started(found, Path("/tmp/x"), ["/course"], "/course/more.py", given, 4000)
    line = " ".join(start.argv)
    for words in (
        f"{kind} run --rm --interactive --name {start.name} ",
        "--network none",
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--pids-limit 2000",
        "--memory 4000000000b",
        "--memory-swap 4000000000b",
        "--ulimit core=0:0",
        "--tmpfs /learner:rw,exec,mode=1777,size=2000000000",
        "helpers:/workbook/helpers:ro",
        "/course/more.py:/workbook-exercises.py:ro",
        "--env HOME=/learner",
        "--env TMPDIR=/learner/tmp",
        "--entrypoint python mine -I -X faulthandler",
    ):
        assert words in line, words
    assert "/secret" not in line and "0:0" not in start.argv[start.argv.index("--user") + 1]
    volumes = [start.argv[i + 1] for i, word in enumerate(start.argv) if word == "--volume"]
    assert all(volume.endswith(":ro") for volume in volumes) and "docker.sock" not in line
    assert start.path == ("/workbook",) and start.exercises == "/workbook-exercises.py"


def test_the_image_holds_what_constraints_say_and_is_well_formed():
    folder = Path(grading.__file__).parent
    text = re.sub(r"\\\n", " ", (folder / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    words = [line.split()[0] for line in lines]
    assert words[0] in ("ARG", "FROM") and words.count("FROM") == 1
    assert set(words) <= {"ARG", "FROM", "ENV", "RUN", "COPY", "WORKDIR", "USER"}
    checkout = folder.parents[1]
    for line in lines:
        if line.startswith("COPY"):
            *sources, _ = line.split()[1:]
            assert sources and all((checkout / source).is_file() for source in sources), line
        if line.startswith("RUN"):
            shell = subprocess.run(
                ["sh", "-n", "-c", line.removeprefix("RUN")], capture_output=True, check=False
            )
            assert shell.returncode == 0, line
    assert "-c constraints.txt" in text
    kept = (folder / "Dockerfile.dockerignore").read_text().split()
    assert kept[0] == "*" and all(f"!{source}" in kept for source in ("pyproject.toml", "constraints.txt"))


def test_a_spare_user_is_taken_only_where_it_can_read_what_is_needed(tmp_path):
    tmp_path.chmod(0o700)
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "closed").mkdir(mode=0o700)
    assert confine.is_open_to_all([str(tmp_path / "open")], parents=False)
    assert not confine.is_open_to_all([str(tmp_path / "open")], parents=True)
    assert not confine.is_open_to_all([str(tmp_path / "closed")], parents=False)
    assert confine.is_open_to_all(["/usr", "/bin/sh"], parents=True)
    assert 0 not in {confine.spare_user() for _ in range(50)}
