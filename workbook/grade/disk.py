"""How much of the disk a learner's processes hold."""

from __future__ import annotations

import contextlib
import glob
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import psutil


def held(folder: Path, family: Sequence[psutil.Process]) -> tuple[int, int]:
    """Bytes and number of the files in a folder, and of those that have no name any more and are open in
    these processes.
    """
    found: dict[tuple[int, int], int] = {}
    for above, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                _count(os.lstat(os.path.join(above, name)), found)
    device = folder.stat().st_dev
    for process in family:
        for path in glob.iglob(f"/proc/{process.pid}/fd/*"):
            with contextlib.suppress(OSError):
                about = os.stat(path)
                if not about.st_nlink and about.st_dev == device:
                    _count(about, found)
    return sum(found.values()), len(found)


def _count(about: os.stat_result, found: dict[tuple[int, int], int]) -> None:
    if stat.S_ISREG(about.st_mode):
        found[about.st_dev, about.st_ino] = about.st_blocks * 512
