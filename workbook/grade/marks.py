"""What a batch of graded notebooks comes to: a mark for each exercise, a line for each notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from helpers import aliases
from helpers.exercises import LABS, of_lab
from helpers.predict.summary import Summary
from workbook.grade.seeds import said

VERDICTS = ("passed", "failed", "to do", "not reached")
UNSAFE = "NOT SANDBOXED (--unsafe): learners' code ran with the rights of whoever graded"
BROKEN = "the examiner's process ended or hung over it"


@dataclass(frozen=True)
class Mark:
    """One exercise of one notebook.

    Attributes:
        exercise, title: Its id and title.
        verdict: "passed", "failed", "to do" or "not reached".
        mistake: The kind of mistake, such as "missing-mask".
        sentence, hint, details: What the check says.
        case: What was special about the case that failed.
        speed: "94 % of the copy ceiling", on a GPU.
        n_cases: How many hidden cases agreed.
        seconds: How long the check took.
        code: What the learner wrote.
        computed: The verdict of the checks where a teacher's stands in `verdict`, or "".
        remark: What the teacher says.
        words: What the learner wrote in a free exercise; nobody judged it.
    """

    exercise: str
    title: str
    verdict: str
    mistake: str
    sentence: str
    case: str = ""
    hint: str = ""
    details: str = ""
    speed: str = ""
    n_cases: int = 0
    seconds: float = 0.0
    code: str = ""
    computed: str = ""
    remark: str = ""
    words: str = ""

    @property
    def by_teacher(self) -> str:
        """That the verdict is the teacher's, and what was computed; "" where it is not."""
        return f"the teacher's mark; computed: {self.computed}" if self.computed else ""

    @property
    def kind(self) -> str:
        """The kind of mistake in words, such as "missing mask"."""
        return "timed out" if self.mistake == "timeout" else self.mistake.replace("-", " ")

    @property
    def shortly(self) -> str:
        """The exercise and its verdict, such as "softmax failed (missing-mask)"."""
        why = f" ({self.mistake})" if self.verdict == "failed" and self.mistake and not self.computed else ""
        return f"{self.exercise} {self.verdict}{why}"


@dataclass(frozen=True)
class Raised:
    """A cell that raised or ended its process: its name, what it said, the line or 0, the end of the log."""

    cell: str
    error: str
    line: int
    log: str

    @property
    def timed_out(self) -> bool:
        """Whether the cell took longer than `--time-limit`."""
        return self.error.startswith("it ran past ")


@dataclass(frozen=True)
class Graded:
    """One notebook.

    Attributes:
        learner: Whose it is.
        notebook: Its path as given.
        lab: The lab's name, or ""; `placed` finds it for a notebook that could not be graded.
        exercises: (id, title) of each exercise of the lab.
        marks: One for each of them, or none if it could not be graded.
        raised: What its cells raised, in order.
        problem: Why it could not be graded, as the end of a sentence, or "".
        seconds: From start to end.
        predictions: What the notebook claims that the learner predicted in the lesson, or None.
        tier: How its process was kept in, such as "sandboxed by bubblewrap 0.8.0, …", or `UNSAFE`.
        reaching: What in its code looks like reaching for the grader; advice, no verdict.
        seed: Of its hidden cases, as `check(id, f, seed=…)` takes it, or "".
        finished: Whether its examiner came to the end; `--resume` grades it again otherwise.
    """

    learner: str
    notebook: str
    lab: str = ""
    exercises: tuple[tuple[str, str], ...] = ()
    marks: tuple[Mark, ...] = ()
    raised: tuple[Raised, ...] = ()
    problem: str = ""
    seconds: float = 0.0
    predictions: Summary | None = None
    tier: str = ""
    reaching: tuple[str, ...] = ()
    seed: str = ""
    finished: bool = True

    @property
    def n_passed(self) -> int:
        """How many exercises passed."""
        return sum(mark.verdict == "passed" for mark in self.marks)

    @property
    def timed_out(self) -> str:
        """That cells took too long, or ""."""
        n = sum(one.timed_out for one in self.raised)
        return f"{n} cells timed out" if n > 1 else "a cell timed out" if n else ""

    def __str__(self) -> str:
        if self.problem:
            return f"{self.learner}: not graded, {self.problem} ({Path(self.notebook).name})"
        says = f"{self.learner}: {self.lab}, {self.n_passed} of {len(self.marks)} passed"
        others = [m.shortly for m in self.marks if m.verdict != "passed"]
        others += [self.timed_out] if self.timed_out else []
        return f"{says}; {', '.join(others)}" if others else says


def placed(graded: Sequence[Graded], lab: str = "") -> tuple[Graded, ...]:
    """Give the notebooks that could not be graded their lab and its exercises, so that no table lacks them.

    The lab is the one that the file's or a folder's name contains, or the only one of the class if the
    learner has no other notebook of it. Otherwise it stays unknown.

    Args:
        graded: The class.
        lab: All notebooks' lab, if the teacher named it.
    """
    exercises = {one.lab: one.exercises for one in graded if one.exercises}
    have = {(one.learner, one.lab) for one in graded if one.exercises}
    only = next(iter(exercises)) if len(exercises) == 1 else ""
    names = dict.fromkeys([*LABS, *exercises])
    found = []
    for one in graded:
        if one.problem and not one.exercises:
            parts = [aliases.current(part) for part in reversed(Path(one.notebook).parts)]
            its = lab or next((name for part in parts for name in names if name in part), "")
            if not its and (one.learner, only) not in have:
                its = only
            if its in LABS and its not in exercises:
                exercises[its] = tuple((of.id, of.title) for of in of_lab(its))
            one = replace(one, lab=its, exercises=exercises.get(its, ()))
        found.append(one)
    return tuple(found)


@dataclass(frozen=True)
class Grades:
    """A whole batch: what was graded, in the order given, and where the reports are; `notes` are for the
    teacher.
    """

    out: Path
    graded: tuple[Graded, ...]
    seed: int
    seconds: float = 0.0
    interrupted: bool = False
    notes: tuple[str, ...] = ()

    @property
    def exit_status(self) -> int:
        """0 whatever the marks are; 130 after an interrupt."""
        return 130 if self.interrupted else 0

    @property
    def n_not_graded(self) -> int:
        """How many notebooks could not be graded."""
        return sum(bool(one.problem) for one in self.graded)

    @property
    def tiers(self) -> str:
        """How the notebooks were kept in, each way once."""
        return "; ".join(dict.fromkeys(one.tier for one in self.graded if one.tier)) or "nothing was run"

    def __repr__(self) -> str:
        lines = [
            f"{len(self.graded)} notebooks, {f'{n} not graded, ' if (n := self.n_not_graded) else ''}seed "
            f"{said(self.seed)}, {self.tiers}, {self.seconds:.0f} s. Open {self.out / 'index.html'}"
        ]
        lines += self.notes
        if self.interrupted:
            lines.insert(0, "Interrupted: the notebooks that were not finished are marked as not graded.")
        return "\n".join(lines)
