"""The checkout under test, and how tests start processes in it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# The core course; the later lessons go deeper.
CORE = ("01_profiling", "02_load_inline", "03_triton", "04_ptx", "05_ncu", "06_fusion")


def processes() -> int:
    """How many child processes a test starts at once.

    Two, but only one if several pytest workers share the machine or if the tests measure on a GPU.
    """
    from helpers import device

    beside = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return 1 if device.has_gpu() or beside > 1 else min(2, os.cpu_count() or 1)


def command(*arguments: object) -> list[str]:
    """The command line of `workbook` in this environment."""
    return [sys.executable, "-m", "workbook", *map(str, arguments)]


def environment() -> dict[str, str]:
    """The environment for child processes: `helpers` can be imported from any folder, and this Python's tools
    (such as ninja) come first on PATH.
    """
    modules = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PYTHONPATH": modules, "PATH": tools, "COLUMNS": "200", "NO_COLOR": "1"}


def cells(notebook: str) -> dict[str, str]:
    """The sources of a notebook's cells by id; its path starts at the checkout."""
    found = json.loads((ROOT / notebook).read_text(encoding="utf-8"))["cells"]
    return {cell["id"]: "".join(cell["source"]) for cell in found}


def recorded(name: str) -> dict:
    """The first case of a stored record, from the first set in replay order that has it."""
    from helpers.records.sets import replay_order

    path = next(path for gpu in replay_order() if (path := gpu / f"{name}.json").is_file())
    return json.loads(path.read_text())["cases"][0]
