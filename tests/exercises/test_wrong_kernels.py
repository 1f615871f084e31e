"""Every solution in wrong_kernels/ is rejected for its own reason and every one in wrong_kernels/right/ accepted, 20 seeds in a row.

Whether Triton kernels are interpreted is decided when Triton is imported, so the attempts are made in processes of their
own: without a GPU in two, interpreted; with one in four on the GPU, and then in one that measures the right ones' speed.
Where pytest itself runs in several processes, one after the other. This file is also the script they run.
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

import interpreter
import pytest
import seeds
from commands import ROOT, environment, processes

from helpers import device

FOLDER = Path(__file__).parents[1] / "wrong_kernels"
WRONG = sorted(path for path in FOLDER.glob("*.py") if path.stem != "targets")
RIGHT = sorted((FOLDER / "right").glob("*.py"))
SEEDS = seeds.several(20)
pytestmark = pytest.mark.seeded
# What every course on GPU kernels sees learners do.
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
    """A fresh import, so that nothing is remembered from the seed before."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attempts(paths: list[Path], numbers: Iterable[int], timed: bool) -> None:
    """Attempt each file with each seed and print a line of JSON for it. Runs in a process of its own."""
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
            told = {"file": str(path), "seed": seed, "passed": verdict.passed, "mistake": verdict.mistake}
            print(json.dumps({**told, "speed": verdict.speed, "text": repr(verdict)}), flush=True)


def _run(folder: Path, shards: list[list[Path]], timed: bool = False) -> dict[str, list[dict]]:
    """File -> its verdicts, from one process a shard."""
    surroundings = environment()
    modules = os.pathsep.join([str(ROOT / "tests"), surroundings["PYTHONPATH"]])
    surroundings |= {"PYTHONPATH": modules, "OMP_NUM_THREADS": "1"}
    if not device.has_gpu():
        surroundings["TRITON_INTERPRET"] = "1"
    running = []
    for i, shard in enumerate(shards):
        out, err = (folder / f"out{i}").open("w+"), (folder / f"err{i}").open("w+")
        command = [sys.executable, __file__, "timed" if timed else "untimed", *map(str, shard)]
        running.append((subprocess.Popen(command, env=surroundings, stdout=out, stderr=err), out, err))
    found: dict[str, list[dict]] = {}
    for process, out, err in running:
        status = process.wait(timeout=3600)
        for file in (out, err):
            file.seek(0)
        assert status == 0, err.read()[-3000:]
        for line in out:
            told = json.loads(line)
            found.setdefault(told["file"], []).append(told)
    return found


@pytest.fixture(scope="module")
def verdicts(request, tmp_path_factory) -> dict[str, list[dict]]:
    """File -> its verdicts, one a seed, of the files whose tests were selected."""
    tests = [
        item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")
    ]
    selected = [test.callspec.params["path"] for test in tests]
    n = 4 if device.has_gpu() else processes()
    shards = [selected[i::n] for i in range(n)]
    return _run(tmp_path_factory.mktemp("verdicts"), [shard for shard in shards if shard])


def test_there_are_enough_of_them():
    reasons = {_reason(path) for path in WRONG}
    assert len(WRONG) >= 40 and len(RIGHT) >= 15
    assert reasons >= CLASSICS, CLASSICS - reasons


def _shown(verdicts: list[dict]) -> str:
    some = "\n\n".join(f"seed {one['seed']}: {one['mistake']}\n{one['text']}" for one in verdicts[:2])
    return f"{len(verdicts)} of {len(SEEDS)} seeds:\n{some}"


def _reason(path: Path) -> str:
    line = next(line for line in path.read_text().splitlines() if line.startswith("REASON = "))
    return line.split('"')[1]


def _reasons(path: Path) -> set[str]:
    """The reason that must be given; on a GPU also others, for what shows itself there by chance."""
    also = re.search(r"^ALSO_ON_A_GPU = \((.*)\)", path.read_text(), re.MULTILINE)
    return {_reason(path), *(re.findall(r'"([^"]+)"', also[1]) if also and device.has_gpu() else ())}


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_wrong_is_rejected_for_its_reason(verdicts, path):
    told = verdicts[str(path)]
    assert len(told) == len(SEEDS)
    others = [one for one in told if one["passed"] or one["mistake"] not in _reasons(path)]
    assert not others, _shown(others)
    # A learner who makes this mistake is told something about it, in a sentence.
    for one in told:
        assert "\nHint: " in one["text"] and one["text"].rstrip().endswith((".", "?")), one["text"]


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_right_is_accepted(verdicts, path):
    told = verdicts[str(path)]
    assert len(told) == len(SEEDS)
    failed = [one for one in told if not one["passed"]]
    assert not failed, _shown(failed)


@pytest.mark.gpu
def test_right_ones_stay_below_the_ceiling(verdicts, tmp_path):
    """Alone on the GPU: two processes at once would each measure the other."""
    told = _run(tmp_path, [RIGHT], timed=True)
    failed = [one for path in RIGHT for one in told[str(path)] if not one["passed"]]
    assert not failed, _shown(failed)
    assert all("% of the copy ceiling" in one["speed"] for path in RIGHT for one in told[str(path)])


if __name__ == "__main__":
    timed, files = sys.argv[1] == "timed", [Path(name) for name in sys.argv[2:]]
    attempts(files, SEEDS[:1] if timed else SEEDS, timed)
