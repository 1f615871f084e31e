"""Runs attempts at a lab's exercises against their checks.

An attempt is the solution's cell with a few words changed, or a source of its own. Triton decides at import
whether it interprets kernels, so all attempts of a lab run in one separate process without a GPU. That
process runs this file as a script, which prints one JSON object with the verdict per attempt.
"""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import interpreter
import nbformat
import seeds
from commands import ROOT, environment

from workbook.form import exercises as lesson_exercises


@dataclass(frozen=True)
class Attempt:
    """One attempt.

    Attributes:
        exercise: its id.
        changes: (old, new) texts, replaced in the solution's cell; each old text has to be there.
        mistake: the key that the verdict must have, or several separated by "|"; "" if the attempt must be
            accepted.
        says: text that must appear in the sentence, its details or the hint.
        source: source code that replaces the solution's cell.
    """

    exercise: str
    changes: tuple[tuple[str, str], ...] = ()
    mistake: str = ""
    says: str = ""
    source: str = ""


def changed(exercise: str, old: str, new: str, mistake: str = "", says: str = "") -> Attempt:
    """The solution's cell with one text replaced."""
    return Attempt(exercise, ((old, new),), mistake, says)


def solution_cells(lab: str) -> dict[str, str]:
    """The sources of the cells of a lab's solution, and of its lesson's exercises, by id."""
    notebook = nbformat.read(ROOT / "labs" / "solutions" / f"{lab}.ipynb", as_version=4)
    return {
        **{cell.id: cell.source for cell in notebook.cells if cell.cell_type == "code"},
        **lesson_exercises.solutions_of(ROOT / "notebooks" / f"{lab}.ipynb"),
    }


def run(lab: str, attempts: dict[str, Attempt]) -> dict[str, dict]:
    """The verdict per attempt, computed in this process. An attempt's seed comes from its name."""
    import warnings

    from helpers.exercises import attempt, of_lab, of_lesson

    interpreter.quicken()
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    cells = solution_cells(lab)
    exercises = {exercise.id: exercise for exercise in (*of_lesson(lab), *of_lab(lab))}
    found: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:

        def execute(name: str, source: str, names: dict) -> None:
            path = Path(folder, f"{name}.py")  # a file, as the interpreter reads a kernel's source
            path.write_text(source)
            exec(compile(source, str(path), "exec"), names)

        for i, (name, one) in enumerate(attempts.items()):
            source = one.source or cells[one.exercise]
            for old, new in one.changes:
                if old not in source:
                    raise ValueError(f"attempt {name!r}: the cell has no {old!r}")
                source = source.replace(old, new)
            seed = seeds.of(f"{lab}: {name}")
            seeds.sow(seed)
            names: dict = {"__name__": "lab"}
            without_magics = re.sub("^%.*", "", cells["begin"], flags=re.MULTILINE)
            execute("begin", f"from helpers import device\n{without_magics}", names)
            names["check"] = lambda id, obj: None  # a lesson's cell ends with its check
            execute(f"cell_{i}", source, names)
            exercise = exercises[one.exercise]
            verdict = attempt.attempt(exercise, names[exercise.name], seed)
            found[name] = {
                "passed": verdict.passed,
                "mistake": verdict.mistake,
                "said": repr(verdict),
                "seed": verdict.seed,
            }
    return found


def verdicts(file: str) -> dict[str, dict]:
    """Run the attempts of a test file (its LAB and ATTEMPTS) in Triton's interpreter, in a new process."""
    without_gpu = {**environment(), "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, __file__, file], env=without_gpu, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def judge(name: str, attempt: Attempt, verdict: dict) -> None:
    """Fail unless an attempt got the expected verdict."""
    about = f"{name} (seed {verdict['seed']}): {verdict['said']}"
    assert verdict["passed"] == (not attempt.mistake), about
    assert verdict["mistake"] in attempt.mistake.split("|"), f"{verdict['mistake']}: {about}"
    assert attempt.says in verdict["said"], about


if __name__ == "__main__":
    tests = runpy.run_path(sys.argv[1])
    sys.stdout.write("\n" + json.dumps(run(tests["LAB"], tests["ATTEMPTS"])) + "\n")
