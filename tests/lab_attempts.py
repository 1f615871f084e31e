"""Attempts at a lab's exercises, run against their checks: what tests/exercises/test_lab03.py and test_lab06.py share.

An attempt is the solution's own cell with a few words changed, or a text of its own. Whether Triton kernels are
interpreted is decided when triton is imported, so all attempts of a lab run in one process of their own, without a GPU:
this file is the script that the process runs. It prints one JSON object, name of the attempt to the verdict.
"""

from __future__ import annotations

import json
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


@dataclass(frozen=True)
class Attempt:
    """One attempt.

    Attributes:
        exercise: its id.
        changes: (old, new) texts, replaced in the solution's cell; each old text has to be there.
        mistake: the key that the verdict must have; "" where the attempt has to be accepted. Several with "|" between.
        says: what must stand in the sentence, its details or the hint.
        source: a text that comes instead of the solution's cell.
        seed: of the hidden cases, where a draw is wanted that once was judged wrongly; None takes the run's.
    """

    exercise: str
    changes: tuple[tuple[str, str], ...] = ()
    mistake: str = ""
    says: str = ""
    source: str = ""
    seed: int | None = None


def solution_cells(lab: str) -> dict[str, str]:
    """Cell id to source of a lab's solution."""
    notebook = nbformat.read(ROOT / "labs" / "solutions" / f"{lab}.ipynb", as_version=4)
    return {cell.id: cell.source for cell in notebook.cells if cell.cell_type == "code"}


def run(lab: str, attempts: dict[str, Attempt]) -> dict[str, dict]:
    """Every attempt's verdict, in this process. Each has a seed of its own name."""
    import warnings

    from helpers.exercises import attempt, of_lab

    interpreter.quicken()
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    cells = solution_cells(lab)
    exercises = {exercise.id: exercise for exercise in of_lab(lab)}
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
            execute("begin", "from helpers import device\n" + cells["begin"], names)
            execute(f"cell_{i}", source, names)
            exercise = exercises[one.exercise]
            verdict = attempt.attempt(exercise, names[exercise.name], seed if one.seed is None else one.seed)
            found[name] = {
                "passed": verdict.passed,
                "mistake": verdict.mistake,
                "said": repr(verdict),
                "seed": verdict.seed,
            }
    return found


def verdicts(file: str) -> dict[str, dict]:
    """Run the attempts of a test file (its LAB and ATTEMPTS) in a process without a GPU, Triton interpreted."""
    without_gpu = {**environment(), "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, __file__, file], env=without_gpu, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def judge(name: str, attempt: Attempt, verdict: dict) -> None:
    """Fail unless an attempt got the verdict that it has to get."""
    about = f"{name} (seed {verdict['seed']}): {verdict['said']}"
    assert verdict["passed"] == (not attempt.mistake), about
    assert verdict["mistake"] in attempt.mistake.split("|"), f"{verdict['mistake']}: {about}"
    assert attempt.says in verdict["said"], about


if __name__ == "__main__":
    tests = runpy.run_path(sys.argv[1])
    sys.stdout.write("\n" + json.dumps(run(tests["LAB"], tests["ATTEMPTS"])) + "\n")
