"""Programs that tests need and that come as Debian packages: apt-get installs them where root runs tests."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def program(package: str, *names: str, needed_by: str) -> str:
    """The path of the first of these programs that is there; the package is installed if none is.

    Raises:
        RuntimeError: It is missing and could not be installed. The message has the command to run.
    """
    get = ["apt-get", "install", "-y", package]
    with open(Path(tempfile.gettempdir()) / f"workbook-tests-{package}", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several pytest processes may want it at once
        found = _first(names)
        if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
            print(f"{package} is missing; installing it with apt-get.", file=sys.stderr)
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for words in (["apt-get", "update"], get):
                subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=False, timeout=900)
            found = _first(names)
    if found is None:
        raise RuntimeError(
            f"{needed_by} need {package}, which is not installed. Install it with: sudo {' '.join(get)}"
        )
    return found


def _first(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)
