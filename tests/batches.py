"""What tests of batches share: waiting for a running batch, and reading what its notebooks printed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil


def printed(path: Path) -> str:
    """Everything that the cells of an executed notebook printed."""
    notebook = nbformat.read(path, as_version=4)
    return "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", []))


def has_ended(pid: int) -> bool:
    """Whether a process has ended; its parent may not have noticed yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_for(what: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    """Wait until `what` returns something true, for as long as the process runs."""
    until = time.monotonic() + 120
    while not what():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < until, "what the test waits for did not happen"
        time.sleep(0.02)
