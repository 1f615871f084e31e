"""`workbook grade` loses nothing: odd texts, a run that is killed, results that are kept, checks that are
written otherwise.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import nbformat
import psutil
import pytest
import torch
from commands import environment
from grade_notebooks import FURTHER, RIGHT_A, WRONG_A, mark, notebook, of, said, verdicts

from workbook.grade import grade, journal, report
from workbook.grade.marks import Graded, Grades, Mark
from workbook.grade.notebook import check_call, read
from workbook.grade.submissions import learners_of
from workbook.grade.texts import clean
from workbook.grade.untrusted import is_plain_zip
from workbook.usage import UsageError

LABS = {"90_mini": {"count-blocks": "n_blocks", "twice": "twice"}}
HALF = "\ud800"  # of a character: it cannot be written as UTF-8


def submission(made: nbformat.NotebookNode, path: Path, before: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # JSON's own escapes: Python refuses to write half a character.
    path.write_bytes(before + json.dumps(json.loads(nbformat.writes(made))).encode())
    return path


def checked(check: str, *between: str, a: str = RIGHT_A, **kwargs: str) -> nbformat.NotebookNode:
    """A notebook whose exercise count-blocks is checked by this cell, without the id of a check cell."""
    made = notebook(*between, a=a, **kwargs)
    for cell in made.cells:
        if cell.id == "check-count-blocks":
            cell.source, cell.id = check, "mine"
    return made


ODD = os.fsdecode(b"odd-\xff")
CLASS = {
    "good": notebook(),
    "surrogates": notebook(
        a=f"def n_blocks(n):\n    raise ValueError('{HALF}')", b=f"# {HALF}\ndef twice(x):\n    return x * 2"
    ),
    "raised": notebook("raise ValueError(chr(0xD800))", a="def n_blocks(n):\n    return chr(0xD800)"),
    "interrupts": notebook("raise KeyboardInterrupt", a="def n_blocks(n):\n    raise KeyboardInterrupt"),
    "sends-interrupts": notebook(
        a="import os, signal\ndef n_blocks(n):\n    os.kill(os.getpid(), signal.SIGINT)"
    ),
    ODD: notebook(),
    "keyword": checked('check("count-blocks", obj=mine)', a=RIGHT_A.replace("n_blocks", "mine")),
    "attribute": checked(
        'check("count-blocks", Mine.blocks)',
        a="class Mine:\n    blocks = staticmethod(lambda n: -(-n // 256))",
    ),
    "lambda": checked('check("count-blocks", lambda n: mine(n))', a=RIGHT_A.replace("n_blocks", "mine")),
    "star": checked('check("count-blocks", *rest)', a="rest = [lambda n: -(-n // 256)]"),
    "expression-raises": checked('check("count-blocks", n_blocks.other)'),
    "pair": checked("check(*pair)", a="pair = 'count-blocks', lambda n: -(-n // 256)"),
    "large-cell": notebook("x = '" + "y" * 10**6 + "'"),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Grades:
    folder = tmp_path_factory.mktemp("kept")
    given = [submission(made, folder / f"{name}.ipynb") for name, made in CLASS.items()]
    given.append(submission(notebook(), folder / "bom.ipynb", b"\xef\xbb\xbf"))
    (folder / "link.ipynb").symlink_to(given[0])
    given.append(folder / "link.ipynb")
    return grade(given, folder / "out", exercises=FURTHER, jobs=2, seed=7)


def test_no_text_of_a_learner_ends_the_run(graded):
    assert verdicts(graded, "surrogates") == ("failed", "passed")
    assert "raised ValueError: \ufffd" in mark(graded, "surrogates", "count-blocks").sentence
    assert verdicts(graded, "raised") == ("failed", "passed") and "ValueError: \ufffd" in said(
        graded, "raised"
    )
    assert verdicts(graded, "odd-\ufffd") == ("passed", "passed")
    assert verdicts(graded, "good") == ("passed", "passed")
    rows = list(csv.DictReader((graded.out / "grades.csv").open(encoding="utf-8")))
    assert {row["learner"] for row in rows} == {clean(name) for name in CLASS} | {"bom", "link"}


def test_a_page_that_cannot_be_made_says_so_and_the_others_are_there(tmp_path):
    good = Graded("ada", "ada.ipynb", "90_mini", (("a", "A"),), (Mark("a", "A", "passed", "", ""),))
    bad = Graded(
        "eve", "eve.ipynb", "90_mini", (("a", "A"),), (Mark("a", "A", "passed", "", "", details=HALF),)
    )
    report.write(Grades(tmp_path, (good, bad), 0))
    assert "could not be made" in (tmp_path / "eve.html").read_text()
    assert "passed" in (tmp_path / "ada.html").read_text() and (tmp_path / "index.html").is_file()


def test_a_learners_own_interrupt_is_no_timeout(graded):
    for learner in ("interrupts", "sends-interrupts"):
        one = mark(graded, learner, "count-blocks")
        assert one.verdict == "failed" and "KeyboardInterrupt" in one.sentence and one.mistake != "timeout", (
            one
        )
        assert verdicts(graded, learner)[1] == "passed"


def test_an_object_may_be_given_to_the_check_in_any_way(graded):
    for learner in ("keyword", "attribute", "lambda", "star", "bom"):
        assert verdicts(graded, learner) == ("passed", "passed"), of(graded, learner)
    assert (
        "n_blocks.other, which its check is given, raised AttributeError"
        in mark(graded, "expression-raises", "count-blocks").sentence
    )


def test_a_check_that_does_not_say_its_exercise_is_not_marked_wrong(graded):
    one = mark(graded, "pair", "count-blocks")
    assert one.verdict == "not reached" and 'write check("count-blocks", n_blocks)' in one.sentence


def test_what_is_too_large_or_a_link_is_refused_in_a_sentence(graded):
    assert of(graded, "large-cell").problem == "its cell 2 holds more than 1 MB of text"
    assert of(graded, "link").problem == "it is a link; put the notebook itself there"


def test_a_code_shown_is_the_one_that_defines_the_object(tmp_path):
    made = checked('check("count-blocks", mine.blocks)')
    for cell in made.cells:
        cell.id = f"x{cell.id}"
    made.cells.insert(1, nbformat.v4.new_code_cell("mine = object()", id="b1"))
    found = read(submission(made, tmp_path / "ada.ipynb"), LABS)
    assert found.names["count-blocks"] == "mine.blocks" and found.code["count-blocks"] == "mine = object()"


@pytest.mark.parametrize(("source", "says"), [
    ('check(id="a", obj=m.f)', ("a", "m.f")), ('check("a", **d)', ("a", "(d)['obj']")), ("check(*p)", ("?",
        "[*p][1]")),
    ('check("a")', ("a", "")), ("check(a, b)", ("", "")),
])  # fmt: skip
def test_how_a_check_is_read(source, says):
    assert check_call(source) == says


def test_names_that_differ_in_odd_bytes_stay_two():
    paths = [Path(os.fsdecode(name)) for name in (b"a\xff.ipynb", b"a\xfe.ipynb")]
    assert list(learners_of(paths).values()) == ["a\ufffd", "a\ufffd (2)"]


# ---------------------------------------------------------------------------------------------- an examiner's
# memory


def saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def test_only_plain_replies_are_read():
    whole = saved({"a": torch.ones(3), "b": "x" * 1000})
    assert is_plain_zip(whole)
    assert not any(is_plain_zip(bad) for bad in (b"", b"PK", whole[:-1], whole + b"x", b"x" + whole))
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert torch.load(io.BytesIO(packed.getvalue()), weights_only=True)["b"] and not is_plain_zip(
        packed.getvalue()
    )


# ---------------------------------------------------------------------------------------------- what is kept


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    return [submission(notebook(), tmp_path / "in" / f"{name}.ipynb") for name in ("ada", "bob", "eve")]


def test_what_is_there_is_kept_and_the_rest_is_graded(three, tmp_path, capsys):
    out = tmp_path / "out"
    grade(three[:2], out, exercises=FURTHER, seed=7)
    kept = (out / journal.NAME).read_bytes()
    submission(notebook(a=WRONG_A), three[1])
    with (out / journal.NAME).open("ab") as file:
        file.write(b'{"key": "cut o')  # as a process that was killed leaves it
    grades = grade(three, out, exercises=FURTHER, resume=True)
    assert grades.seed == 7
    assert [verdicts(grades, name) for name in ("ada", "bob", "eve")] == [
        ("passed", "passed"), ("failed", "passed"), ("passed", "passed"),
    ]  # fmt: skip
    now = (out / journal.NAME).read_bytes()
    assert now.startswith(kept) and all(json.loads(line) for line in now.splitlines())
    assert len(now.splitlines()) == 1 + 2 + 2  # the head, what was kept, what was graded now
    shutil.copy(out / "grades.csv", tmp_path / "first.csv")
    again = grade(three, out, exercises=FURTHER, resume=True)
    assert again.graded == grades.graded and (out / journal.NAME).read_bytes() == now
    assert (out / "grades.csv").read_text() == (tmp_path / "first.csv").read_text()
    other = journal.Journal(out, 8, resume=True)  # another seed: nothing of it counts, and it is kept aside
    with other:
        assert other.graded == {} and (out / "results.before.jsonl").read_bytes() == now
        with pytest.raises(UsageError, match="Another `workbook grade` writes into"):
            grade(three, out, exercises=FURTHER)


def test_a_run_that_is_killed_loses_the_notebook_in_work_only(three, tmp_path):
    out, sign = tmp_path / "out", tmp_path / "sign"
    slow = (
        f"import os, pathlib, time\nif not pathlib.Path({str(sign)!r}).exists():\n    print(os.getpid(), "
        "flush=True)\n    time.sleep(600)"
    )
    submission(notebook(slow), three[1])
    code = (
        f"from workbook.grade import grade\ngrade({[str(p) for p in three]!r}, {str(out)!r}, "
        f"exercises={str(FURTHER)!r}, seed=7, time_limit=300)"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment() | {"TMPDIR": str(temporary)},
        stderr=subprocess.DEVNULL,
    )
    family: list[psutil.Process] = []
    try:
        until = time.monotonic() + 120
        while b"passed" not in (content(out)) or not workers(process.pid):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.1)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert psutil.wait_procs(family, timeout=30)[1] == []
    finally:
        process.kill()
        process.wait()
    assert not (out / "grades.csv").exists()
    assert not list(temporary.rglob("*.ipynb"))
    submission(notebook(), three[1])
    kept = content(out).splitlines()
    grades = grade(three, out, exercises=FURTHER, resume=True)
    assert [verdicts(grades, name) for name in ("ada", "bob", "eve")] == [("passed", "passed")] * 3
    assert content(out).splitlines()[: len(kept)] == kept and len(kept) >= 2


def content(out: Path) -> bytes:
    path = out / journal.NAME
    return path.read_bytes() if path.exists() else b""


def workers(pid: int) -> list[psutil.Process]:
    return [p for p in psutil.Process(pid).children(recursive=True) if p.ppid() != pid]


def test_a_mark_that_is_missing_is_said(three, tmp_path):
    further = tmp_path / "exercises.py"
    # An examiner that says something under another name, and one that ends without a mark.
    further.write_text(
        FURTHER.read_text()
        + """

import os

def _judge(case, outcome):
    if outcome.value == 666:
        os._exit(0)
    return _own(case, outcome)

_own = EXERCISES[0].judge
object.__setattr__(EXERCISES[0], "judge", _judge)
"""
    )
    submission(notebook(a=RIGHT_A.replace("-(-n // 256)", "666")), three[0])
    grades = grade(three[:2], tmp_path / "out", exercises=further, seed=7)
    assert verdicts(grades, "ada") == ("not reached", "not reached") and verdicts(grades, "bob") == (
        "passed",
        "passed",
    )
    assert "the examiner gave no mark" in mark(grades, "ada", "count-blocks").sentence
    assert len((tmp_path / "out" / journal.NAME).read_text().splitlines()) == 2  # graded again by --resume


def test_links_in_folders_are_rows_that_say_so(three, tmp_path):
    (tmp_path / "in" / "mallory").symlink_to(tmp_path)
    (tmp_path / "in" / "gone.ipynb").symlink_to(tmp_path / "nowhere")
    grades = grade([tmp_path / "in"], tmp_path / "out", exercises=FURTHER, jobs=2, seed=7)
    assert [one.learner for one in grades.graded if one.problem] == ["gone", "mallory"]
    assert sum(one.n_passed for one in grades.graded) == 6


def test_where_gpus_are_each_notebook_has_one_to_itself(tmp_path, monkeypatch, capfd):
    """Two on one GPU would make each other's kernels slow, and an exercise that asks for a speed
    would fail.
    """
    from workbook import gpus
    from workbook.grade import grader

    monkeypatch.setattr(gpus, "installed", lambda: [gpus.Gpu(i, f"GPU-{i}", "H200") for i in range(3)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    monkeypatch.setattr(torch.version, "cuda", None)
    assert grader._gpus() == ()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    tells = "import os, time\ntime.sleep(2)\nraise RuntimeError(os.environ['CUDA_VISIBLE_DEVICES'])"
    given = [submission(notebook(tells), tmp_path / "in" / f"{name}.ipynb") for name in ("ada", "bob", "eve")]
    grades = grade(given, tmp_path / "out", exercises=FURTHER, jobs=3, seed=7, confine=False)
    assert "2 notebooks at a time, not 3: each has a GPU to itself." in capfd.readouterr().err
    told = [one.raised[0].error for one in grades.graded]
    assert set(told) == {"RuntimeError: GPU-0", "RuntimeError: GPU-2"}, told


NO_CUDA = """
import sys
import torch

def refuse(*args, **kwargs):
    raise AssertionError("an import asks for a GPU")

def hook(event, args):
    if event == "ctypes.dlopen" and args[0] and any(word in str(args[0]) for word in ("libcuda",
        "nvidia-ml", "cudart")):
        refuse()

for name in ("is_available", "device_count", "init", "_lazy_init", "get_device_properties", "current_device"):
    setattr(torch.cuda, name, refuse)
sys.addaudithook(hook)
from workbook.grade import examine
examine._import_all("")
assert not torch.cuda.is_initialized() and "helpers.exercises.judge" in sys.modules
"""


def test_what_an_examiner_imports_before_it_forks_asks_for_no_gpu():
    ran = subprocess.run([sys.executable, "-c", NO_CUDA], env=environment(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_a_gpu_that_learners_code_cannot_use_fails_nobody(tmp_path, monkeypatch):
    """On an H200 CUDA did not start in the confined tier (error 304), and every kernel was marked wrong."""
    from workbook.grade import examination, examine

    monkeypatch.setattr(examination.device, "has_gpu", lambda: True)
    path = submission(notebook(), tmp_path / "ada.ipynb")
    task = {
        "content": base64.b64encode(path.read_bytes()).decode(),
        "digest": hashlib.sha256(path.read_bytes()).hexdigest(),
        "stem": "ada",
        "lab": "",
        "exercises": str(FURTHER),
        "seed": 1,
        "sandbox": None,
    }
    events: list[dict] = []
    examine.examine(task | {"cell_s": 60, "total_s": 600, "memory_mb": 8000, "confine": True}, events.append)
    marks = [event for event in events if event["event"] == "mark"]
    assert len(marks) == 2 and {one["verdict"] for one in marks} == {"not reached"}
    assert all("has a GPU that the notebook's process cannot use" in one["sentence"] for one in marks)
