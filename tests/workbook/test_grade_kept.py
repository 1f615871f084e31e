"""`workbook grade` loses nothing: odd texts, a run that is killed, results that are kept, checks that are
written otherwise.
"""

from __future__ import annotations

import base64
import csv
import ctypes
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import nbformat
import psutil
import pytest
import torch
from commands import environment
from grade_notebooks import FURTHER, RIGHT_A, WRONG_A, mark, notebook, of, said, verdicts

from workbook.grade import grade, journal, report, submissions
from workbook.grade.marks import Graded, Grades, Mark
from workbook.grade.notebook import check_call, read
from workbook.grade.submissions import Copies, Submitted, find, take
from workbook.sandbox.messages import is_plain_zip
from workbook.sandbox.texts import clean, printable
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


def taken(*given: Path) -> list[Submitted]:
    with Copies() as copies:
        return take(find(given), (), copies)


def test_names_that_differ_in_odd_bytes_stay_two(tmp_path):
    for name in (b"a\xff.ipynb", b"a\xfe.ipynb"):
        (tmp_path / os.fsdecode(name)).write_text("{}")
    assert [one.learner for one in taken(tmp_path)] == ["a\ufffd", "a\ufffd (2)"]


def test_no_control_character_of_a_name_is_printed_or_written(tmp_path):
    """They move a terminal's cursor, and turn the order of a line around."""
    odd = "\x1b\r\n\t\x7f\x9b\u2028\u202e\u2066"
    for character in odd:
        (tmp_path / "in" / f"b{character}b").mkdir(parents=True)
        (tmp_path / "in" / f"b{character}b" / f"{character}.ipynb").write_text("{}")
    (tmp_path / "in" / f"{odd}.ipynb").write_text("{}")
    found = taken(tmp_path / "in")
    assert len({one.learner for one in found}) == len(odd) + 1
    graded = tuple(Graded(one.learner, one.notebook, problem="it is empty") for one in found)
    notes = submissions.claims(found, [replace(one, lab="03_triton", learner="b") for one in graded])
    grades = Grades(tmp_path / "out", graded, 7, notes=tuple(notes))
    report.write(grades)
    written = [path.read_text() for path in grades.out.iterdir()]
    assert len(written) == len(odd) + 1 + 4
    for text in (*written, *map(str, graded), repr(grades)):
        assert not set(odd.replace("\n", "")) & set(text), text
    assert all("\n" not in str(one) for one in graded)
    assert printable("a\r\nb\tc\x1b") == "a\nb\tc\ufffd"  # as code and logs have them


def test_a_folder_that_is_exchanged_for_a_link_gives_nothing_away(tmp_path):
    given, secret = tmp_path / "in", tmp_path / "secret"
    for folder, content in ((given / "ada" / "deep", "own"), (secret / "deep", "SECRET")):
        folder.mkdir(parents=True)
        (folder / "lab.ipynb").write_text(content)
    (tmp_path / "link").symlink_to(secret)
    over = threading.Event()
    paths = os.fsencode(given / "ada"), os.fsencode(tmp_path / "link")
    at_cwd, rename_exchange = -100, 2

    def exchange() -> None:
        while not over.is_set():
            ctypes.CDLL(None).renameat2(at_cwd, paths[0], at_cwd, paths[1], rename_exchange)

    thread = threading.Thread(target=exchange)
    thread.start()
    says, contents = set(), set()
    try:
        for _ in range(3000):
            with Copies() as copies:
                for one in take(find([given]), (), copies):
                    says.add(one.problem)
                    contents.add(copies.read(one))
    finally:
        over.set()
        thread.join()
    assert contents == {b"own", b""}
    assert says <= {"", "it is a link; put the notebook itself there", "there is no such file",
                    "it is a folder without a notebook (*.ipynb)"}, says  # fmt: skip


def test_folders_are_read_as_far_as_they_can_be(tmp_path):
    deep = tmp_path / "in" / "ada" / "/".join("d" * 100)
    deep.mkdir(parents=True)
    (deep / "lab.ipynb").write_text("{}")
    (tmp_path / "in" / "bob.ipynb").write_bytes(bytes(21 << 20))
    (tmp_path / "in" / "eve.ipynb").write_text("{}")
    (tmp_path / "linked").symlink_to(tmp_path / "in")
    found = taken(tmp_path / "linked", tmp_path / "in")  # what the teacher types may be a link
    assert [(one.learner, one.problem) for one in found[:3]] == [
        ("linked/ada", "it is a folder without a notebook (*.ipynb)"),
        ("linked/bob", "it is larger than 20 MB; clear its outputs"),
        ("linked/eve", ""),
    ]


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    with Copies() as copies, open("/dev/full", "r+b", buffering=0) as full:
        monkeypatch.setattr(copies, "_file", full)
        with pytest.raises(UsageError, match=r"No space left on device.* set TMPDIR to another folder"):
            copies.add(b"x")
    monkeypatch.setattr(journal, "_FOR_SPACE_S", 0.3)
    (tmp_path / journal.NAME).symlink_to("/dev/full")
    with pytest.raises(UsageError, match=r"No space left on device.* go on with --resume"):
        journal.Journal(tmp_path, 7, resume=False)


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


@pytest.mark.parametrize("bad", [
    "[" * 100_000, '{"key": "a", "graded": ' + '{"a":' * 100_000, '{"key": "a", "graded": []}', "3", "\0",
    '{"key": "a", "graded": {"marks": 3}}', '{"key": "a", "graded": ' + "[" * 400 + "]" * 400 + "}",
])  # fmt: skip
def test_a_line_that_is_no_result_is_as_if_it_were_not_there(tmp_path, bad):
    good = Graded("ada", "ada.ipynb", "90_mini", (("a", "A"),), (Mark("a", "A", "passed", "", ""),))
    with journal.Journal(tmp_path, 7, resume=False) as kept:
        kept.add("good", good)
    with (tmp_path / journal.NAME).open("a") as file:
        file.write(f"{bad}\n")
    with journal.Journal(tmp_path, 7, resume=True) as kept:
        assert kept.graded == {"good": good}
        kept.add("later", good)
    (tmp_path / journal.NAME).write_text(f"{bad}\n")
    assert journal.seed_of(tmp_path) is None


def test_a_run_that_is_killed_at_ten_moments_is_whole_in_the_end(three, tmp_path):
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    code = (
        f"from workbook.grade import grade\ngrade({[str(p) for p in three]!r}, {str(out)!r}, "
        f"exercises={str(FURTHER)!r}, seed=7, resume=True, jobs=2)"
    )
    for moment in range(10):
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment() | {"TMPDIR": str(temporary)},
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.5 + moment / 2)
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        assert psutil.wait_procs(family, timeout=30)[1] == []
    grades = grade(three, out, exercises=FURTHER, seed=7, resume=True)
    assert [verdicts(grades, name) for name in ("ada", "bob", "eve")] == [("passed", "passed")] * 3
    assert len([json.loads(line) for line in content(out).splitlines()]) == 1 + 3  # each was graded once
    assert not list(temporary.rglob("*.ipynb"))


def test_huge_outputs_cost_their_notebook_nothing(tmp_path):
    """A picture that is 10,000 times as large when it is unpacked, and 300,000 lines of output."""
    made = json.loads(nbformat.writes(notebook()))
    picture = b"\x89PNG\r\n\x1a\n" + zlib.compress(bytes(10**8), 9)
    png = {"image/png": base64.b64encode(picture).decode()}
    line = {"output_type": "stream", "name": "stdout", "text": ""}
    made["cells"][0]["outputs"] = [{"output_type": "display_data", "metadata": {}, "data": png}] + [
        line
    ] * 300_000
    path = tmp_path / "ada.ipynb"
    path.write_text(json.dumps(made))
    grades = grade([path], tmp_path / "out", exercises=FURTHER, seed=7)
    assert verdicts(grades, "ada") == ("passed", "passed"), of(grades, "ada").problem
    assert sum(page.stat().st_size for page in (tmp_path / "out").iterdir()) < 100_000


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
    grades = grade(given, tmp_path / "out", exercises=FURTHER, jobs=3, seed=7)
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
    """On an H200 CUDA did not start in an earlier sandbox (error 304), and every kernel was marked wrong."""
    from workbook.grade import examination, examine

    monkeypatch.setattr(examination.device, "has_gpu", lambda: True)
    path = submission(notebook(), tmp_path / "ada.ipynb")
    task = {
        "content": base64.b64encode(path.read_bytes()).decode(),
        "stem": "ada",
        "lab": "",
        "exercises": str(FURTHER),
        "seed": 1,
    }
    limits = {"cell_s": 60, "total_s": 600, "memory_mb": 8000, "sandboxed": True, "hidden": []}
    events: list[dict] = []
    examine.examine(task | limits, events.append)
    marks = [event for event in events if event["event"] == "mark"]
    assert len(marks) == 2 and {one["verdict"] for one in marks} == {"not reached"}
    assert all("has a GPU that cannot be used in the sandbox" in one["sentence"] for one in marks)
