"""The reference: its modules' docstrings describe arguments that exist, and their examples run."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from commands import ROOT, environment

MODULES = re.findall(
    r"^   ((?:helpers|workbook)[\w.]*)$", (ROOT / "docs/book/reference.md").read_text(), re.M
)


def functions(name: str) -> Iterator[tuple[str, Callable]]:
    """The public functions of a module."""
    module = importlib.import_module(name)
    own = [one for one in vars(module) if getattr(getattr(module, one), "__module__", "") == name]
    for one in getattr(module, "__all__", own):
        function = getattr(module, one)
        if inspect.isfunction(function) and not one.startswith("_"):
            yield f"{name}.{one}", function


FUNCTIONS = [one for name in MODULES for one in functions(name)]


def test_what_learners_import_is_in_the_reference():
    found = {name for name, _ in FUNCTIONS}
    assert {"helpers.check.assert_matches", "helpers.timing.time_gpu", "helpers.widgets.explore"} <= found
    assert {"helpers.records.measured", "helpers.ptx.stages", "workbook.batch.run_course"} <= found


@pytest.mark.parametrize("name, function", FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_described_arguments_exist(name, function):
    doc = inspect.getdoc(function) or ""
    assert doc, "no docstring"
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", doc, re.MULTILINE | re.DOTALL)
    described = re.findall(
        r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \(.*?\))?: ", section[1] if section else "", re.MULTILINE
    )
    arguments = {argument.strip("* ") for names in described for argument in names.split(",")}
    assert arguments <= set(inspect.signature(function).parameters)


RUN = """
import doctest, importlib, sys

find = doctest.DocTestFinder(exclude_empty=True).find
tests = []
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    public = getattr(module, "__all__", None)
    for one in [getattr(module, other) for other in public] if public else [module]:
        tests += [test for test in find(one, name, globs={}) if test.examples]
failed = sum(doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed for test in tests)
print(f"{len(tests)} examples, {failed} failed")
raise SystemExit(failed > 0)
"""


def test_the_examples_run():
    """Without a GPU and outside a notebook, so that they print the same everywhere."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *MODULES],
        env={**environment(), "CUDA_VISIBLE_DEVICES": "", "WORKBOOK_REPLAY": "h200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.splitlines()[-1].split()[0]) > 40
