"""Grade learners' notebooks: each in processes of its own, with limits; the verdicts come from hidden checks, never from
what a notebook shows.

Three kinds of process: this one finds the notebooks and writes the reports; an examiner for each job
(`examine`) makes hidden cases and judges; a learner's process (`worker`) runs one notebook and answers the examiner's
calls. Whichever of the last two ends, the batch goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.predict import summary
from helpers.workshop.grade.marks import Graded, Grades, Mark, Raised
from helpers.workshop.grade.notebook import import_path
from helpers.workshop.interrupts import interruptible
from helpers.workshop.outputs import require_writable
from helpers.workshop.usage import UsageError

TOTAL = 10  # a notebook's whole time, in time limits of one cell or exercise
_EXAMINERS_OWN_S = 240.0  # for starting processes, and for judging
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from helpers.workshop.grade import examine; examine.main()"
)


def grade(
    notebooks: Sequence[Path | str],
    out: Path | str,
    *,
    time_limit: float = 120,
    memory_limit: float = 8000,
    jobs: int = 1,
    seed: int | None = None,
    lab: str = "",
    exercises: Path | str = "",
) -> Grades:
    """Grade notebooks and write `grades.csv`, a page for each learner and `index.html` into `out`.

    Args:
        notebooks: Files, or folders in which every notebook is taken. One that is missing or broken is a row that says so.
        out: The folder for the reports; made if missing.
        time_limit: Seconds for one cell, and for the check of one exercise; a notebook gets ten times as much in all.
        memory_limit: MB (10^6 bytes) that a notebook's processes may hold together.
        jobs: How many notebooks are graded at the same time.
        seed: The seed of the hidden cases, the same for every learner; a new one by default.
        lab: Which lab the notebooks are of; by default each notebook says it.
        exercises: A Python file whose `EXERCISES` are known beside the course's own.

    Raises:
        UsageError: Nothing was graded: none of the notebooks is there, or an argument is wrong.
    """
    given = find([Path(n) for n in notebooks])
    if not any(path.exists() for path in given):
        if not given:
            raise UsageError("No notebook is given; name at least one file or folder.")
        raise UsageError(f"There is no notebook {given[0]}.")
    for value, option in ((time_limit, "--time-limit"), (memory_limit, "--memory-limit"), (jobs, "--jobs")):
        if value <= 0:
            raise UsageError(f"{option} is {value:g}; give a number above 0.")
    from helpers.exercises import LABS

    if lab and lab not in LABS and not exercises:
        raise UsageError(f"--lab {lab!r} is no lab; there are {', '.join(LABS)}.")
    out = Path(out).resolve()
    require_writable(out)
    learners = learners_of(given, LABS)
    seed = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    task = {
        "lab": lab, "exercises": str(Path(exercises).resolve()) if exercises else "", "seed": seed,
        "cell_s": time_limit, "total_s": TOTAL * time_limit, "memory_mb": memory_limit,
    }  # fmt: skip
    return _Batch([(learners[path], path) for path in given], out, task, jobs).run()


def find(given: Sequence[Path]) -> list[Path]:
    """The notebooks that a command line names: files as they are, and what folders hold, sorted."""
    paths: list[Path] = []
    for path in given:
        inside = [p for p in path.rglob("*.ipynb") if p.is_file() and not _hidden(p.relative_to(path))]
        paths += sorted(inside) or [path]
    return list(dict.fromkeys(paths))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def learners_of(paths: Sequence[Path], labs: Sequence[str] = ()) -> dict[Path, str]:
    """Each notebook's learner: its file's name, or its folder's where several files or a lab have that name.

    `submissions/ada/03_triton.ipynb` and `submissions/grace/03_triton.ipynb` are ada's and grace's, `ada.ipynb` is ada's.
    Where folders have one name too, as much of the path is taken as tells them apart.
    """
    stems = Counter(path.stem for path in paths)
    names: dict[Path, str] = {}
    by_folder = [p for p in paths if stems[p.stem] > 1 or p.stem in labs]
    for path in paths:
        names[path] = path.stem
    for path in by_folder:
        parts = path.resolve().parent.parts
        others = {p.resolve().parent for p in by_folder if p.stem == path.stem} - {path.resolve().parent}
        n = 1
        while n < len(parts) - 1 and any(other.parts[-n:] == parts[-n:] for other in others):
            n += 1
        names[path] = "/".join(parts[-n:]) or path.stem
    return names


class _Examiner:
    """One examiner's process and what it says; started when it is needed, again after it has ended."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._process: subprocess.Popen | None = None
        self._events: queue.Queue[str | None] = queue.Queue()

    def examine(self, task: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of one notebook; a last one is "broken" where the examiner itself ended."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        until = time.monotonic() + task["total_s"] + _EXAMINERS_OWN_S
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()
        while True:
            try:
                line = self._events.get(timeout=max(until - time.monotonic(), 0))
            except queue.Empty:
                line = None
            if line is None:
                self.close()
                yield {"event": "broken", "says": "the examiner's process ended or hung over it"}
                return
            event = json.loads(line)
            if event["event"] == "done":
                return
            yield event

    def _start(self) -> None:
        self._events = queue.Queue()
        environment = {**os.environ, "TMPDIR": str(self._scratch)}
        environment.pop("TRITON_INTERPRET", None)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT, json.dumps(import_path())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment, start_new_session=True,
        )  # fmt: skip
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


@dataclass
class _Batch:
    """One call of `grade`."""

    todo: list[tuple[str, Path]]
    out: Path
    task: dict[str, Any]
    jobs: int
    results: dict[int, Graded] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> Grades:
        from tqdm import tqdm

        from helpers.workshop.grade import report

        begin = time.monotonic()
        scratch = Path(tempfile.mkdtemp(prefix="workbook-grade-"))
        jobs = min(self.jobs, len(self.todo))
        examiners: queue.SimpleQueue[_Examiner] = queue.SimpleQueue()
        every = [_Examiner(scratch) for _ in range(jobs)]
        for examiner in every:
            examiners.put(examiner)

        def one(index: int) -> None:
            if self.stop.is_set():
                return
            examiner = examiners.get()
            try:
                self.results[index] = self._grade(index, examiner)
            finally:
                examiners.put(examiner)

        bar = tqdm(total=len(self.todo), desc="Notebooks", unit="notebook", disable=None)
        with interruptible(), bar, ThreadPoolExecutor(jobs, "grade") as pool:
            try:
                waiting = {pool.submit(one, index): index for index in range(len(self.todo))}
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
        shutil.rmtree(scratch, ignore_errors=True)
        graded = tuple(
            self.results.get(i)
            or Graded(learner, str(path), problem="the batch was interrupted before it was finished")
            for i, (learner, path) in enumerate(self.todo)
        )
        grades = Grades(
            self.out, graded, self.task["seed"], round(time.monotonic() - begin, 1), self.stop.is_set()
        )
        report.write(grades)
        return grades

    def _grade(self, job: int, examiner: _Examiner) -> Graded:
        """One notebook, put together from what its examiner says."""
        learner, path = self.todo[job]
        begin = time.monotonic()
        graded = Graded(learner, str(path))
        marks: dict[str, Mark] = {}
        raised: dict[int, Raised] = {}
        for event in examiner.examine({**self.task, "notebook": str(path.resolve())}):
            kind = event.pop("event")
            if kind == "lab":
                exercises = tuple((name, title) for name, title in event["exercises"])
                graded = replace(graded, lab=event["lab"], exercises=exercises)
            elif kind == "predictions":
                graded = replace(graded, predictions=summary.parse(event["data"]))
            elif kind == "mark":
                marks[event["exercise"]] = Mark(**event)
            elif kind == "cell":
                index = event.pop("index")
                raised[index] = Raised(**event)
            elif kind == "ended":
                raised[1000 + len(raised)] = Raised("", event["says"], 0, event["log"])
            elif kind == "unreadable":
                graded = replace(graded, problem=event["says"])
            elif kind == "broken":
                if self.stop.is_set():
                    return replace(graded, problem="the batch was interrupted before it was finished")
                if not graded.exercises:
                    graded = replace(graded, problem=event["says"])
                for name, title in graded.exercises:
                    if name not in marks:
                        says = f"{name}: not reached: {event['says']}."
                        marks[name] = Mark(name, title, "not reached", "not-reached", says)
        in_order = tuple(marks[name] for name, _ in graded.exercises if name in marks)
        found = tuple(one for _, one in sorted(raised.items()))
        return replace(graded, marks=in_order, raised=found, seconds=round(time.monotonic() - begin, 1))
