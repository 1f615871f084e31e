"""One notebook under examination: its cells run in processes of their own, its exercises are checked where
they stand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from helpers import device
from helpers.exercises.attempt import run_cases
from helpers.exercises.model import Case, Exercise, Outcome, Verdict
from workbook.grade.calls import Ask, Calls, Unusable
from workbook.grade.notebook import Submission
from workbook.grade.process import start
from workbook.grade.starters import untouched
from workbook.grade.stubs import stubs_of
from workbook.sandbox.cgroup import Cgroup
from workbook.sandbox.process import Limits, Process, WorkerDied, WorkerTimeout

_MAX_STARTS = 6  # of one notebook's process
_TEXT = 2000  # characters of a sentence in a report


_NO_GPU = (
    "this machine has a GPU that cannot be used in the sandbox: grade with CUDA_VISIBLE_DEVICES= to check on "
    "the CPU, or with --unsafe where you know the learners"
)


class _OutOfTime(Exception):
    """The notebook has used up its time."""


class Examination:
    """One notebook: run its cells, check its exercises where they stand, start again without what ended its
    process.
    """

    def __init__(
        self,
        submission: Submission,
        exercises: dict[str, Exercise],
        further: str,
        limits: Limits,
        seed: int,
        cgroup: Cgroup | None,
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        self._submission, self._exercises, self._further = submission, exercises, further
        self._limits, self._seed, self._cgroup, self._tell = limits, seed, cgroup, tell
        self._open = dict(submission.checks)  # exercises without a verdict, and where they are checked
        self._left_out: set[int] = set()  # cells that ended the process
        self._raised: dict[int, str] = {}  # what each cell raised, or how it ended the process
        self._until = time.monotonic() + limits.total_s
        self._doing, self._checking = -1, ""  # the cell that runs, the exercise that is checked

    def run(self) -> None:
        """Examine it; every exercise gets a verdict."""
        reason = ""
        for _ in range(_MAX_STARTS):
            self._doing, started = -1, False
            try:
                told_of = stubs_of(self._exercises.values())
                with start(told_of, self._further, self._limits, self._until, self._cgroup) as process:
                    started = True
                    if device.has_gpu() and not process.sees_gpu:
                        reason = _NO_GPU
                        break
                    self._walk(process)
                    return
            except WorkerDied as gone:
                if not started:
                    last = (gone.log.strip().splitlines() or ["it printed nothing"])[-1]
                    reason = f"no process for the notebook could be started: {last}"
                    break
                reason = self._note_end(gone)
            except _OutOfTime:
                reason = ""
            if not self._open:
                return
            if time.monotonic() > self._until or not reason:
                reason = f"the notebook had run for {self._limits.total_s:g} s in all, its limit"
                break
        for exercise in list(self._open):
            self._give(exercise, _failed(exercise, f"not reached: {reason}", "not-reached"), 0.0)

    def _note_end(self, gone: WorkerDied) -> str:
        """Remember which cell ended the process; a clause that says it."""
        if self._doing == -1:  # in a check, which has its verdict, or before the first cell
            self._tell({"event": "ended", "says": f"{self._checking}: a call {gone}", "log": gone.log})
            return f"the notebook {gone}"
        cell = self._submission.cells[self._doing]
        clause = f"the notebook {gone} in {_called(cell.name)}"
        self._left_out.add(self._doing)
        self._note_cell(self._doing, f"it {gone}", 0, gone.log)
        return clause

    def _walk(self, process: Process) -> None:
        for index, cell in enumerate(self._submission.cells):
            if not any(at >= index for at in self._open.values()):
                return
            if not cell.check and index not in self._left_out:
                self._doing = index
                self._run_cell(process, index)
                self._doing = -1
            self._check_all(process, index)
        self._check_all(process, len(self._submission.cells))

    def _run_cell(self, process: Process, index: int) -> None:
        cell = self._submission.cells[index]
        self._in_time()
        try:
            reply = process.request({"do": "cell", "source": cell.source}, self._limits.cell_s)
            error, line = str(reply.get("error", ""))[:_TEXT], reply.get("line", 0)
        except WorkerTimeout:
            error, line = f"it ran past {self._limits.cell_s:g} s and was interrupted", 0
        if error:
            self._note_cell(index, error, line if type(line) is int else 0)

    def _note_cell(self, index: int, error: str, line: int, log: str = "") -> None:
        self._raised[index] = error
        name = self._submission.cells[index].name
        self._tell({"event": "cell", "index": index, "cell": name, "error": error, "line": line, "log": log})

    def _check_all(self, process: Process, index: int) -> None:
        """Check the exercises whose check cell this is."""
        for exercise in [name for name, at in self._open.items() if at == index]:
            begin = time.monotonic()
            try:
                verdict = self._check(process, self._exercises[exercise])
            except WorkerDied as gone:
                self._give(
                    exercise,
                    _failed(exercise, f"the check's call {gone}", gone.mistake),
                    time.monotonic() - begin,
                )
                raise
            self._give(exercise, verdict, time.monotonic() - begin)

    def _check(self, process: Process, exercise: Exercise) -> Verdict:
        """The verdict on one exercise in the notebook's state of now.

        Raises:
            WorkerDied: The process ended; the exercise has its verdict by then.
        """
        self._in_time()
        self._checking = exercise.id
        name = self._submission.names[exercise.id]
        until = time.monotonic() + self._limits.cell_s
        case = Case("")
        clean: Process | None = None

        def asking(whom: Process) -> Ask:
            def ask(message: dict[str, Any], answer: Callable[[Any], Any] | None = None) -> dict[str, Any]:
                left = until - time.monotonic()
                if left <= 0:
                    raise WorkerTimeout
                return whom.request({"exercise": exercise.id, **message}, left, answer)

            return ask

        def start_clean() -> Ask:
            nonlocal clean, until
            if clean is None:
                begin = time.monotonic()
                lab = self._submission.lab
                clean = start((), self._further, self._limits, self._until, self._cgroup, lab)
                until += time.monotonic() - begin
            return asking(clean)

        def call(given: Case) -> Outcome:
            nonlocal case
            case = given
            return calls(given)

        ask = asking(process)
        calls = Calls(exercise, ask, start_clean)
        try:
            if (
                self._submission.checks[exercise.id] == len(self._submission.cells)
                and self._submission.unclear
            ):
                return _failed(exercise.id, self._unclear(exercise.id, name), "not-reached")
            found = ask({"do": "has", "name": name})
            if found.get("found") is not True:
                raised = str(found.get("error", ""))[:_TEXT]
                says = self._missing(exercise.id, name, raised)
                return _failed(exercise.id, says, "timeout" if ": it ran past " in says else "missing")
            claimed = exercise.text is None
            return run_cases(exercise, call, self._seed, claimed=claimed)
        except WorkerTimeout:
            says = f"its check ran past {self._limits.cell_s:g} s" + (
                f", the last call with {case.label}" if case.label else ""
            )
            return _failed(exercise.id, says, "timeout", case.label)
        except Unusable as error:
            says = f"what came back for {case.label} cannot be judged: {error}"
            return _failed(exercise.id, says, "unusable", case.label)
        except WorkerDied as gone:
            says = f"the call with {case.label} {gone}"
            if clean is not None and clean.ended:  # the notebook's own process lives
                return _failed(exercise.id, says, gone.mistake, case.label)
            if not case.label:
                says = f"the notebook {gone} before its check"
            self._give(
                exercise.id,
                _failed(exercise.id, says, gone.mistake, case.label),
                self._limits.cell_s + time.monotonic() - until,
            )
            raise
        except Exception as error:  # a judge that stumbles over a strange answer passes nothing
            says = (
                f"what came back for {case.label} cannot be judged ({type(error).__name__}: "
                f"{str(error)[:200]})"
            )
            return _failed(exercise.id, says, "unusable", case.label)
        finally:
            if clean is not None:
                clean.close()

    def _unclear(self, exercise: str, name: str) -> str:
        """That a check is there which does not say what it checks."""
        where = _called(self._submission.unclear[0])
        says = f'{where} checks an exercise without saying which; write check("{exercise}", {name})'
        return f"not reached: {says} and grade the notebook again"

    def _missing(self, exercise: str, name: str, raised: str = "") -> str:
        """That the checked object is not there, and why, where one of its cells says it."""
        if raised:
            return f"{name}, which its check is given, raised {raised}"
        code = self._submission.code[exercise]
        for index, error in self._raised.items():
            source = self._submission.cells[index].source
            if source.strip() and source in code:
                says = error if error.startswith("it ") else f"it raised {error}"
                return f"there is no {name}, for its cell did not run through: {says}"
        return f"there is no {name} where it is checked"

    def _give(self, exercise: str, verdict: Verdict, seconds: float) -> None:
        if self._open.pop(exercise, None) is None:
            return
        if not verdict.passed and verdict.mistake != "to-do" and untouched(self._submission, exercise):
            verdict = _failed(exercise, "it is still as the starter has it", "to-do")
        later = "" if verdict.passed else self._submission.later[exercise]
        self._tell(
            {"event": "mark", **mark(self._exercises[exercise], verdict, seconds, self._submission, later)}
        )

    def _in_time(self) -> None:
        if time.monotonic() > self._until:
            raise _OutOfTime


def mark(
    exercise: Exercise, verdict: Verdict, seconds: float, submission: Submission, later: str = ""
) -> dict[str, Any]:
    """A verdict as the fields of a `Mark`."""
    if verdict.passed is True:
        word = "passed"
    else:
        word = {"to-do": "to do", "not-reached": "not reached"}.get(verdict.mistake, "failed")
    sentence = verdict.sentence
    if later:
        sentence += (
            f" ({submission.names[exercise.id]} is defined again in {_called(later)}, below its "
            "check, which does not count.)"
        )
    return {
        "exercise": exercise.id,
        "title": exercise.title,
        "verdict": word,
        "case": "" if word == "to do" else verdict.case[:_TEXT],
        "mistake": verdict.mistake,
        "sentence": sentence[:_TEXT],
        "hint": verdict.hint[:_TEXT],
        "details": getattr(verdict, "details", "")[:_TEXT],
        "speed": verdict.speed,
        "n_cases": verdict.n_cases,
        "seconds": round(seconds, 2),
        "code": submission.code[exercise.id][:100_000],
        "words": verdict.words[: 2 * _TEXT],
    }


def _failed(exercise: str, says: str, mistake: str, case: str = "") -> Verdict:
    return Verdict(exercise, False, f"{exercise}: {says}.", case=case, mistake=mistake)


def _called(name: str) -> str:
    """How a sentence calls a cell."""
    return name if name.startswith("cell ") else f"cell {name}"
