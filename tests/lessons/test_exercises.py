"""The exercises inside the lessons: the solution passes, the starter is "not written yet"."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from commands import LESSONS, ROOT, environment

from workbook.form import exercises

# In a process of its own, because Triton decides at import whether it interprets kernels.
SCRIPT = """
import json, linecache, sys
from helpers import device, exercises, lab
from workbook.form import exercises as lesson_exercises
from pathlib import Path

lesson = Path(sys.argv[1])
solutions = lesson_exercises.solutions_of(lesson)
starters, problems = lesson_exercises.starter_cells(solutions, lesson.name)
assert not problems, problems
found = {}
for kind, cells in {"starter": starters, "solution": solutions}.items():
    for id, source in cells.items():
        names = {"check": lambda id, obj: found.setdefault(id, {}).update({kind: verdict(id, obj)})}

        def verdict(id, obj):
            given = lab.check(id, obj)
            return [given.passed, given.mistake]

        begin = (lesson.parent / "solutions" / f"{lesson.stem}.py").read_text().split("# %% ")[0]
        exec(begin.replace("from helpers.lab import check", ""), names)
        path = Path(sys.argv[2], f"{kind}_{id}.py")
        path.write_text(source)
        try:
            exec(compile(source, str(path), "exec"), names)
        except NotImplementedError:
            found.setdefault(id, {})[kind] = [False, "to-do"]
print(json.dumps(found))
"""


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_every_solution_passes_and_no_starter_does(lesson, tmp_path):
    if not exercises.solutions_of(lesson):
        return
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(lesson), str(tmp_path)],
        env={
            **environment(),
            "TRITON_INTERPRET": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "WORKBOOK_PROGRESS": str(tmp_path),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    from helpers.exercises import of_lesson

    assert list(found) == [exercise.id for exercise in of_lesson(lesson.stem)]
    for id, verdicts in found.items():
        assert verdicts == {"starter": [False, "to-do"], "solution": [True, ""]}, id
