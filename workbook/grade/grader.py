"""Grade learners' notebooks: each in processes of its own, with limits; the verdicts come from hidden checks,
never from what a notebook shows.

Three kinds of process: this one copies the notebooks (`submissions`), keeps what came of each (`journal`) and
writes the reports; an examiner (`examine`), a new one for each notebook, makes hidden cases and judges; a
learner's process (`worker`) runs one notebook and answers the examiner's calls. Whichever of the last two
ends, the batch goes on.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from helpers import aliases
from helpers.predict import summary
from workbook.grade import journal, overrides, seeds, submissions
from workbook.grade.marks import BROKEN, UNSAFE, Graded, Grades, Mark, Raised, placed
from workbook.grade.submissions import Copies, Submitted
from workbook.interrupts import interruptible
from workbook.outputs import require_writable
from workbook.sandbox import bubblewrap, cgroup
from workbook.sandbox.process import import_path
from workbook.sandbox.texts import clean_all, one_line
from workbook.usage import UsageError

TOTAL = 10  # a notebook's whole time, in time limits of one cell or exercise
_USUAL_BYTES, _MOST_AT_ONCE = 2e9, 8  # what a notebook's processes usually take; notebooks
_INTERRUPTED = "the batch was interrupted before it was finished"
_EXAMINERS_OWN_S = 240.0  # for starting processes, and for judging
_UNSAFE = "or grade with --unsafe, which runs learners' code with your rights"
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from workbook.grade import examine; examine.main()"
)


def grade(
    notebooks: Sequence[Path | str],
    out: Path | str,
    *,
    time_limit: float = 120,
    memory_limit: float = 8000,
    jobs: int | None = None,
    seed: int | None = None,
    lab: str = "",
    exercises: Path | str = "",
    resume: bool = False,
    unsafe: bool = False,
) -> Grades:
    """Grade notebooks and write `grades.csv`, a page for each learner and `index.html` into `out`.

    Marks that a teacher wrote into `overrides.csv` there win over the computed ones. What came of a notebook
    is kept in `results.jsonl` there at once; the reports are made from that at the end.

    Args:
        notebooks: Files, or folders in which every notebook is taken. One that is missing or broken is a row
            that says so.
        out: The folder for the reports; made if missing.
        time_limit: Seconds for one cell, and for the check of one exercise; a notebook gets ten times as much
            in all.
        memory_limit: MB (10^6 bytes) that a notebook's processes may hold together.
        jobs: How many notebooks are graded at the same time; where GPUs are, one on each at most. By default
            one on each GPU, or without a GPU one on each core, up to 8 and as memory allows.
        seed: The class's, 0 to 2^128 - 1; a new one by default. Each notebook's hidden cases come from it,
            the learner's name and the notebook's content, so that it repeats a class.
        lab: Which lab the notebooks are of; by default each notebook says it.
        exercises: A Python file whose `EXERCISES` are known beside the course's own.
        resume: Keep what `out` holds of the same notebooks, graded by the same exercises with the same limits
            and seed. Without `seed`, that of `out` is taken.
        unsafe: Run learners' code without a sandbox, with the rights of this process.

    Raises:
        UsageError: Nothing was graded: none of the notebooks is there, an argument is wrong, or another run
            writes into `out`, or `overrides.csv` cannot be understood, or there is no sandbox here.
    """
    given = submissions.find([Path(n) for n in notebooks])
    if not any(os.path.lexists(one.path) for one in given):
        if not given:
            raise UsageError("No notebook is given; name at least one file or folder.")
        raise UsageError(one_line(f"There is no notebook {given[0].path}."))
    for value, option in ((time_limit, "--time-limit"), (memory_limit, "--memory-limit"), (jobs, "--jobs")):
        if value is not None and value <= 0:
            raise UsageError(f"{option} is {value:g}; give a number above 0.")
    from helpers.exercises import LABS

    lab = aliases.current(lab)
    if lab and lab not in LABS and not exercises:
        raise UsageError(f"--lab {lab!r} is no lab; there are {', '.join(LABS)}.")
    tier = UNSAFE if unsafe else f"{bubblewrap.require(_UNSAFE)}, {cgroup.about(memory_limit)}"
    out = Path(out).resolve()
    require_writable(out)
    given_marks = overrides.read(out)
    if seed is None:
        seed = journal.seed_of(out) if resume else None
    seed = seeds.fresh() if seed is None else seed
    task = {
        "lab": lab, "exercises": str(Path(exercises).resolve()) if exercises else "", "seed": seed,
        "cell_s": time_limit, "total_s": TOTAL * time_limit, "memory_mb": memory_limit,
        "sandboxed": not unsafe, "hidden": sorted({*map(_folder, notebooks), str(out), *bubblewrap.ANSWERS}),
    }  # fmt: skip
    with journal.Journal(out, seed, resume=resume) as kept, Copies() as copies:
        todo = submissions.take(given, (*LABS, *aliases.LESSONS), copies)
        return _Batch(todo, out, task, tier, jobs, copies, kept, given_marks).run()


def _folder(given: Path | str) -> str:
    """The folder that a command line names, or that holds the file that it names."""
    return os.path.realpath(given if os.path.isdir(given) else os.path.dirname(os.path.abspath(given)))


def _gpus() -> tuple[str, ...]:
    """The GPUs that notebooks will run on, as UUIDs."""
    import torch

    from workbook import gpus

    return gpus.visible() if torch.version.cuda else ()


def _at_once(asked: int | None, n_gpus: int) -> int:
    """How many notebooks run at the same time; on each GPU one, or a second would make its kernels slow."""
    if asked is None:
        by_memory = int(psutil.virtual_memory().available / _USUAL_BYTES)
        return n_gpus or max(min(os.cpu_count() or 1, by_memory, _MOST_AT_ONCE), 1)
    if n_gpus and asked > n_gpus:
        says = f"{n_gpus} {'notebook' if n_gpus == 1 else 'notebooks'} at a time, not {asked}"
        print(f"{says}: each has a GPU to itself.", file=sys.stderr, flush=True)
        return n_gpus
    return asked


def _exercises_digest(further: str) -> str:
    """Returns a SHA-256 of the sources that make and judge the hidden cases, and of the hints."""
    from helpers import exercises

    folder = Path(exercises.__file__).parent
    digest = hashlib.sha256()
    sources = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".toml"))
    for path in [*sources, *([Path(further)] if further else [])]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _Examiner:
    """One examiner's process and what it says; started when it is needed, again after it has ended."""

    def __init__(self, gpu: str = "") -> None:
        self._gpu = gpu
        self._process: subprocess.Popen | None = None
        self._events: queue.Queue[str | None] = queue.Queue()

    def examine(self, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of one notebook, which repeat a name that nobody can guess; "broken" where no examiner
        saw its end.
        """
        if self._process is None or self._process.poll() is not None:
            self._start()
        name = secrets.token_hex(16)
        until = time.monotonic() + task["total_s"] + _EXAMINERS_OWN_S
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({**task, "name": name}) + "\n")
            self._process.stdin.flush()
        while True:
            try:
                line = self._events.get(timeout=max(until - time.monotonic(), 0))
            except queue.Empty:
                line = None
            event = _event(line, name) if line is not None else {"event": "broken", "says": BROKEN}
            if event is None:
                event = {"event": "broken", "says": "something else wrote into the examiner's output"}
                line = None
            if event["event"] == "done":
                return
            if line is None:
                self.close()
            yield event
            if line is None:
                return

    def _start(self) -> None:
        self._events = queue.Queue()
        environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        if self._gpu:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpu
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT, json.dumps(import_path())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
            start_new_session=True,
        )
        threading.Thread(target=_lines, args=(self._process.stdout, self._events), daemon=True).start()

    def close(self) -> None:
        """End it; a notebook's process that it left ends by itself, for nobody holds its leash."""
        process, self._process = self._process, None  # two threads may want to, after Ctrl-C
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _lines(stream: Any, into: queue.Queue[str | None]) -> None:
    for line in stream:
        into.put(line)
    into.put(None)


def _event(line: str, name: str) -> dict[str, Any] | None:
    """An event of the notebook with this name, in characters that can be written; None for anything else."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if type(event) is not dict or event.pop("name", "") != name or type(event.get("event")) is not str:
        return None
    return clean_all(event)


@dataclass
class _Batch:
    """One call of `grade`."""

    todo: list[Submitted]
    out: Path
    task: dict[str, Any]
    tier: str
    jobs: int | None
    copies: Copies
    journal: journal.Journal
    overrides: tuple[overrides.Override, ...]
    results: dict[int, Graded] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    writing: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> Grades:
        from tqdm import tqdm

        from workbook.grade import report

        begin = time.monotonic()
        about = json.dumps([self.task, _exercises_digest(self.task["exercises"])], sort_keys=True)
        keys = [_key(one, about) for one in self.todo]
        for index, (one, key) in enumerate(zip(self.todo, keys, strict=True)):
            if one.problem:
                self.results[index] = Graded(one.learner, one.notebook, problem=one.problem)
            elif key in self.journal.graded:
                self.results[index] = self.journal.graded[key]
        todo = [index for index in range(len(self.todo)) if index not in self.results]
        visible = _gpus()
        jobs = min(_at_once(self.jobs, len(visible)), max(len(todo), 1))
        examiners: queue.SimpleQueue[_Examiner] = queue.SimpleQueue()
        every = [_Examiner(gpu) for gpu in visible[:jobs] or [""] * jobs]
        for examiner in every:
            examiners.put(examiner)

        def one(index: int) -> None:
            if self.stop.is_set():
                return
            examiner = examiners.get()
            try:
                graded = self._grade(self.todo[index], examiner)
            finally:
                examiners.put(examiner)
            with self.writing:
                self.results[index] = self.journal.add(keys[index], graded) if graded.finished else graded

        for index in sorted(self.results):
            print(self.results[index], file=sys.stderr, flush=True)
        bar = tqdm(
            total=len(self.todo), initial=len(self.results), desc="Notebooks", unit="notebook", disable=None
        )
        with interruptible(), bar, ThreadPoolExecutor(jobs, "grade") as pool:
            try:
                waiting = {pool.submit(one, index): index for index in todo}
                for future in as_completed(waiting):
                    future.result()
                    bar.update()
                    with bar.external_write_mode(file=sys.stderr):
                        print(self.results[waiting[future]], file=sys.stderr, flush=True)
            except KeyboardInterrupt:
                self.stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
            finally:
                for examiner in every:
                    examiner.close()
        graded = tuple(
            self.results.get(i) or Graded(one.learner, one.notebook, problem=_INTERRUPTED, finished=False)
            for i, one in enumerate(self.todo)
        )
        graded, notes = overrides.apply(placed(graded, self.task["lab"]), self.overrides)
        notes = (*notes, *submissions.claims(self.todo, graded))
        grades = Grades(
            self.out, graded, self.task["seed"], round(time.monotonic() - begin, 1), self.stop.is_set(), notes
        )
        report.write(grades)
        return grades

    def _grade(self, one: Submitted, examiner: _Examiner) -> Graded:
        """One notebook, put together from what its examiner says. Every exercise has a mark, or there is a
        problem.
        """
        begin = time.monotonic()
        seed = seeds.of_notebook(self.task["seed"], one.learner, one.digest)
        graded = Graded(one.learner, one.notebook, seed=seeds.said(seed), tier=self.tier)
        marks: dict[str, Mark] = {}
        raised: dict[int, Raised] = {}
        missing = "the examiner gave no mark"
        content = base64.b64encode(self.copies.read(one)).decode()
        task = {**self.task, "seed": seed, "content": content, "stem": one.stem, "digest": one.digest}
        for event in examiner.examine(task):
            kind = event.pop("event")
            if kind == "lab":
                exercises = tuple((name, title) for name, title in event["exercises"])
                graded = replace(graded, lab=event["lab"], exercises=exercises)
            elif kind == "predictions":
                graded = replace(graded, predictions=summary.parse(event["data"]))
            elif kind == "mark":
                marks.setdefault(event["exercise"], Mark(**event))
            elif kind == "reaching":
                graded = replace(graded, reaching=tuple(event["says"]))
            elif kind == "cell":
                index = event.pop("index")
                raised[index] = Raised(**event)
            elif kind == "ended":
                raised[1000 + len(raised)] = Raised("", event["says"], 0, event["log"])
            elif kind == "unreadable":
                graded = replace(graded, problem=event["says"])
            elif kind == "broken":
                if self.stop.is_set():
                    return replace(graded, problem=_INTERRUPTED, finished=False)
                missing = event["says"]
                graded = replace(graded, finished=False)
        if not graded.exercises and not graded.problem:
            graded = replace(graded, problem=missing, finished=False)
        for name, title in graded.exercises:
            if name not in marks:
                graded = replace(graded, finished=False)
                says = f"{name}: not reached: {missing}."
                marks[name] = Mark(name, title, "not reached", "not-reached", says)
        in_order = tuple(marks[name] for name, _ in graded.exercises)
        found = tuple(one for _, one in sorted(raised.items()))
        return replace(graded, marks=in_order, raised=found, seconds=round(time.monotonic() - begin, 1))


def _key(one: Submitted, about: str) -> str:
    """What tells a result from that of another notebook, or of the same one graded in another way."""
    return hashlib.sha256(json.dumps([one.learner, one.notebook, one.digest, about]).encode()).hexdigest()
