"""Every file in wrong_kernels/ is rejected for its own reason, and every file in wrong_kernels/right/
accepted.

`make test` tries one seed with those of the core labs, `make test-slow` with the others, and `make thorough`
nineteen more seeds.

Triton decides at import whether it interprets kernels, so the attempts run in processes of their own: two on
a machine without a GPU, four on a GPU, followed by one that measures the speed of the right kernels. With
several pytest workers there is one process. It runs this file as a script.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import interpreter
import pytest
import seeds
from commands import ROOT, environment, processes

from helpers import device, exercises

FOLDER = Path(__file__).parents[1] / "wrong_kernels"
WRONG = sorted(path for path in FOLDER.glob("*.py") if path.stem != "targets")
RIGHT = sorted((FOLDER / "right").glob("*.py"))
DEEPER = {one.id for lab in exercises.LABS if lab >= "07" for one in exercises.of_lab(lab)}
SEEDS = seeds.several(20)
FEW = 1
pytestmark = pytest.mark.seeded
# Mistakes that learners make in every course on GPU kernels.
CLASSICS = {
    "missing-mask",
    "only-first-block",
    "wrong-stride",
    "transposed",
    "off-by-one",
    "int32-overflow",
    "race",
    "uninitialised-output",
    "in-place",
    "half-precision",
    "fast-but-partial",
    "stale-answer",
    "returns-input",
    "contiguous-only",
    "power-of-two-only",
    "nan-blind",
    "no-maximum",
}


def _module(path: Path) -> ModuleType:
    """Import a file again, so that it remembers nothing from the previous seed."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attempts(paths: list[Path], numbers: Iterable[int], timed: bool) -> None:
    """Attempt each file with each seed and print one line of JSON per attempt."""
    import torch

    from helpers.exercises.attempt import attempt

    sys.path.insert(0, str(FOLDER))
    import targets

    interpreter.quicken()
    torch.set_num_threads(1)
    for path in paths:
        for seed in numbers:
            module = _module(path)
            exercise = targets.target(module.EXERCISE)
            seeds.sow(seed)
            verdict = attempt(exercise, getattr(module, exercise.name), seed, timed=timed)
            row = {"file": str(path), "seed": seed, "passed": verdict.passed, "mistake": verdict.mistake}
            print(json.dumps({**row, "speed": verdict.speed, "text": repr(verdict)}), flush=True)


def _run(
    folder: Path, shards: list[list[Path]], numbers: range, timed: bool = False
) -> dict[str, list[dict]]:
    """Return the verdicts per file, from one process per shard."""
    surroundings = environment()
    modules = os.pathsep.join([str(ROOT / "tests"), surroundings["PYTHONPATH"]])
    surroundings["PYTHONPATH"] = modules
    if not device.has_gpu():
        surroundings["TRITON_INTERPRET"] = "1"
    running = []
    for i, shard in enumerate(shards):
        out, err = (folder / f"out{i}").open("w+"), (folder / f"err{i}").open("w+")
        options = ["timed" if timed else "untimed", str(numbers.start), str(numbers.stop)]
        command = [sys.executable, __file__, *options, *map(str, shard)]
        running.append((subprocess.Popen(command, env=surroundings, stdout=out, stderr=err), out, err))
    found: dict[str, list[dict]] = {}
    for process, out, err in running:
        status = process.wait(timeout=3600)
        for file in (out, err):
            file.seek(0)
        assert status == 0, err.read()[-3000:]
        for row in map(json.loads, out):
            found.setdefault(row["file"], []).append(row)
    return found


def _judge(request: pytest.FixtureRequest, folder: Path, numbers: range) -> dict[str, list[dict]]:
    """Return the verdicts per file of the selected tests that use the requesting fixture."""
    tests = [
        item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")
    ]
    selected = [test.callspec.params["path"] for test in tests if request.fixturename in test.fixturenames]
    n = 4 if device.has_gpu() else processes()
    shards = [selected[i::n] for i in range(n)]
    return _run(folder, [shard for shard in shards if shard], numbers)


@pytest.fixture(scope="module")
def verdicts(request, tmp_path_factory) -> dict[str, list[dict]]:
    """The verdicts per file for the first seeds."""
    return _judge(request, tmp_path_factory.mktemp("verdicts"), SEEDS[:FEW])


@pytest.fixture(scope="module")
def further_verdicts(request, tmp_path_factory) -> dict[str, list[dict]]:
    """The verdicts per file for the other seeds."""
    return _judge(request, tmp_path_factory.mktemp("further"), SEEDS[FEW:])


def test_there_are_enough_of_them():
    reasons = {_reason(path) for path in WRONG}
    assert len(WRONG) >= 40 and len(RIGHT) >= 15
    assert reasons >= CLASSICS, CLASSICS - reasons


def _shown(verdicts: list[dict]) -> str:
    some = "\n\n".join(f"seed {one['seed']}: {one['mistake']}\n{one['text']}" for one in verdicts[:2])
    return f"{len(verdicts)} seeds:\n{some}"


def _reason(path: Path) -> str:
    line = next(line for line in path.read_text().splitlines() if line.startswith("REASON = "))
    return line.split('"')[1]


def _marked(paths: list[Path]) -> list[Any]:
    """The files as parameters; those of the deeper labs are slow tests."""
    exercise = re.compile(r'^EXERCISE = "(.*)"', re.MULTILINE)
    deeper = [path for path in paths if exercise.search(path.read_text())[1] in DEEPER]
    return [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path in deeper else []) for path in paths
    ]


def _reasons(path: Path) -> set[str]:
    """The expected mistake, and on a GPU those that may appear there by chance."""
    also = re.search(r"^ALSO_ON_A_GPU = \((.*)\)", path.read_text(), re.MULTILINE)
    return {_reason(path), *(re.findall(r'"([^"]+)"', also[1]) if also and device.has_gpu() else ())}


def _assert_rejected(verdicts: list[dict], path: Path) -> None:
    others = [one for one in verdicts if one["passed"] or one["mistake"] not in _reasons(path)]
    assert not others, _shown(others)
    for one in verdicts:
        assert "\nHint: " in one["text"], one["text"]


def _assert_accepted(verdicts: list[dict]) -> None:
    failed = [one for one in verdicts if not one["passed"]]
    assert not failed, _shown(failed)


@pytest.mark.parametrize("path", _marked(WRONG))
def test_wrong_is_rejected_for_its_reason(verdicts, path):
    assert len(verdicts[str(path)]) == FEW
    _assert_rejected(verdicts[str(path)], path)


@pytest.mark.parametrize("path", _marked(RIGHT))
def test_right_is_accepted(verdicts, path):
    assert len(verdicts[str(path)]) == FEW
    _assert_accepted(verdicts[str(path)])


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_wrong_is_rejected_for_further_seeds(further_verdicts, path):
    assert len(further_verdicts[str(path)]) == len(SEEDS) - FEW
    _assert_rejected(further_verdicts[str(path)], path)


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_right_is_accepted_for_further_seeds(further_verdicts, path):
    assert len(further_verdicts[str(path)]) == len(SEEDS) - FEW
    _assert_accepted(further_verdicts[str(path)])


@pytest.mark.gpu
def test_right_ones_stay_below_the_ceiling(verdicts, tmp_path):
    """In one process, because two would disturb each other's measurements on the GPU."""
    timed = [one for rows in _run(tmp_path, [RIGHT], SEEDS[:1], timed=True).values() for one in rows]
    assert len(timed) == len(RIGHT)
    _assert_accepted(timed)
    assert all("% of the copy ceiling" in one["speed"] for one in timed)


if __name__ == "__main__":
    mode, first, last, *files = sys.argv[1:]
    attempts([Path(name) for name in files], range(int(first), int(last)), mode == "timed")
