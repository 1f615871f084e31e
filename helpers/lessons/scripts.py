"""Runs scripts in separate processes, and reads what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

_TIMEOUT_S = 180
_ENVIRONMENT = {"PYTHONBREAKPOINT": ""}  # Python's own debugger


def run_script(text: str, typed: str = "", **environment: str) -> str:
    """Runs Python code in a separate process, as `NAME=value python script.py` does in a terminal.

    Args:
        text: The script, which may be indented.
        typed: The keyboard input, one line per prompt. It's shown after the debugger's prompts as in a
            terminal.
        **environment: Environment variables of the process, such as `TRITON_INTERPRET="1"`.

    Returns:
        The output, including errors. Paths of Python files are shortened to the file name.

    Raises:
        subprocess.TimeoutExpired: The script didn't end within three minutes.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "script.py").write_text(textwrap.dedent(text))
        done = subprocess.run(
            [sys.executable, "script.py"],
            cwd=folder,
            env={**os.environ, **_ENVIRONMENT, **environment},
            input=typed,
            timeout=_TIMEOUT_S,
            **pipes,
        )
    for line in typed.splitlines():
        done.stdout = done.stdout.replace("(Pdb) ", f"[pdb] {line}\n", 1)
    return re.sub(r"[^\s\"']*/(\w+\.py)", r"\1", done.stdout)


def debug_lines(printed: str, most: int = 4) -> list[dict[str, str]]:
    """Returns what a script's `device_print` and `device_assert` printed on a GPU, and the error that
    followed.

    Args:
        printed: The complete output of the script.
        most: How many lines of each kind to return. They are sorted first, because threads print in any
            order.

    Returns:
        A dictionary per line: `by` ("device_print", "device_assert" or "then") and `printed`.
    """
    patterns = {
        "device_print": r"pid \(.*",
        "device_assert": r".*[Aa]ssertion .*",
        "then": r"[\w.]*Error: .*",
    }
    return [
        {"by": source, "printed": line}
        for source, pattern in patterns.items()
        for line in sorted({m.strip() for m in re.findall(rf"^{pattern}$", printed, re.MULTILINE)})[:most]
    ]
