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


# What a launch on a GPU would do: the real compiler sees the starter's kernel.
COMPILE = """
import json, sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

from helpers.exercises import errors
from helpers.exercises.model import Outcome
from helpers.ptx import ASTSource
from workbook.form import exercises as lesson_exercises

lesson = Path(sys.argv[1])
starters, _ = lesson_exercises.starter_cells(lesson_exercises.solutions_of(lesson), lesson.name)
found = {}
for id, source in starters.items():
    if "@triton.jit" not in source or "raise NotImplementedError" not in source.split("def ")[1]:
        continue
    path = Path(sys.argv[2], f"{id}.py".replace("-", "_"))
    path.write_text(source)
    names = {"triton": triton, "tl": tl, "check": lambda id, obj: None}
    exec(compile(source, str(path), "exec"), names)
    kernel = next(one for one in names.values() if type(one).__name__ == "JITFunction")
    signature = {
        name: "*fp32" if name.endswith("_ptr") else "constexpr" if name.isupper() else "i32"
        for name in kernel.arg_names
    }
    sizes = {name: 64 for name in kernel.arg_names if name.isupper()}
    try:
        stub = ASTSource(fn=kernel, signature=signature, constexprs=sizes)
        triton.compile(stub, target=GPUTarget("cuda", 90, 32))
    except Exception as error:
        found[id] = errors.to_do(Outcome(error=str(error), error_type=type(error).__name__))
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("lesson", "ids"),
    [("05_ncu", ["sum-columns"]), ("06_fusion", ["center-rows", "fuse-a-gelu"])],
)
def test_a_starter_in_a_compiled_kernel_is_still_to_do(lesson, ids, tmp_path):
    """Triton's compiler knows no `raise`, and its error must not reach a learner who hasn't begun."""
    path = next(one for one in LESSONS if one.stem == lesson)
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(path), str(tmp_path)],
        env={**environment(), "TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == ids
    for id, text in found.items():
        assert text and text in path.with_name("solutions").joinpath(f"{lesson}.py").read_text(), id
