"""Old names of exercises, lessons, modules and devices that have been renamed.

Learners keep their progress folders, submissions and edited copies of notebooks for longer than a release.
Everything that reads those also accepts the old names in these tables. Each table maps an old name to the
current one.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

EXERCISES = {
    "mend-the-guard": "fix-the-guard",
    "mend-the-index": "fix-the-index",
    "mend-the-race": "fix-the-race",
    "mend-the-unset": "fix-the-unset",
}
LESSONS = {"08_failures": "08_builds"}
# Only modules that the cells of a lesson or a lab import.
MODULES = {
    "helpers.cuda.host": "helpers.cuda.emulator",
    "helpers.exercises.shipped": "helpers.exercises.recorded_data",
    "helpers.kernels.places": "helpers.kernels.cooperative_simulator",
    "helpers.lessons.another": "helpers.lessons.cross_gpu",
    "helpers.lessons.resident": "helpers.lessons.occupancy",
    "helpers.lessons.waiting": "helpers.lessons.deadlock",
    "helpers.ncu.figures": "helpers.ncu.charts",
}
# Keys of the dicts that lab 08's exercises take.
ANSWER_KEYS = {"mended": "kernel"}
# What `load_kernel` and `load_cuda` take as `device`.
DEVICES = {"host": "emulator"}


def current(name: str) -> str:
    """Replace every old exercise or lesson name in `name` with the current one.

    Args:
        name: The name itself, or a longer one that contains it, such as the cell id "check-mend-the-guard".
    """
    for old, new in {**EXERCISES, **LESSONS}.items():
        name = name.replace(old, new)
    return name


class RenamedModules(MetaPathFinder, Loader):
    """Imports the current module when a notebook imports it by its old name."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Take responsibility for the old names in `MODULES`, and for nothing else."""
        return ModuleSpec(fullname, self) if fullname in MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        """Put the current module in the place of the empty one that the import system has made."""
        sys.modules[module.__name__] = importlib.import_module(MODULES[module.__name__])
