"""Scripts that run in a process of their own, and the kernel that torch.compile writes in one of them."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

_TIMEOUT_S = 180
# The debugger is Python's own. torch.compile does without its pool of compilers: with it a script of one kernel takes 18 s,
# without it 11 (32 cores, torch 2.11).
_ENVIRONMENT = {"PYTHONBREAKPOINT": "", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    """Where kernels that came as text lie; it is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="workbook-kernels-")


def run_script(text: str, typed: str = "", **environment: str) -> str:
    """Run a Python text in a process of its own, as `NAME=value python script.py` does in a terminal.

    Args:
        text: the script; it may be indented.
        typed: what is typed at its keyboard, a line each. It is shown after the debugger's prompts, as a terminal would.
        **environment: variables of the process, such as `TRITON_INTERPRET="1"`.

    Returns:
        What it printed, errors too. Paths of Python files are cut to the file's name.

    Raises:
        subprocess.TimeoutExpired: it was not done after three minutes.
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


def output_code(printed: str) -> str:
    """The code in what a script prints under `TORCH_LOGS=output_code`: its lines without the logger's prefix.

    Raises:
        ValueError: there is no such line; the message has the end of what was printed.
    """
    lines = [line.partition("[__output_code]") for line in printed.splitlines()]
    code = [text.removeprefix(" ") for _, mark, text in lines if mark]
    code = [line for line in code if not line.startswith(("Output code", "# kernel path:"))]
    if not code:
        raise ValueError(f"TORCH_LOGS=output_code printed no code, but this:\n{printed[-2000:]}")
    return "\n".join(code).strip() + "\n"


def debug_lines(printed: str, most: int = 4) -> list[dict[str, str]]:
    """What a script's `device_print` and `device_assert` printed on a GPU, and the error that followed.

    Args:
        printed: all that the script printed.
        most: lines of each kind that are kept; threads print in any order, so they are sorted first.

    Returns:
        `by` ("device_print", "device_assert" or "then") and `printed`, for each line.
    """
    patterns = {
        "device_print": r"pid \(.*",
        "device_assert": r".*[Aa]ssertion .*",
        "then": r"[\w.]*Error: .*",
    }
    return [
        {"by": who, "printed": line}
        for who, pattern in patterns.items()
        for line in sorted({m.strip() for m in re.findall(rf"^{pattern}$", printed, re.MULTILINE)})[:most]
    ]


def kernel_text(code: str) -> str:
    """The decorated Triton function in what torch.compile wrote.

    Raises:
        ValueError: there is none.
    """
    found = re.search(r"^@triton\.jit\n(?:.+\n)+?(?=''')", code, re.MULTILINE)
    if found is None:
        raise ValueError("There is no function under @triton.jit in this code.")
    return found.group(0)


def load_kernel(text: str) -> Any:
    """The Triton kernel that a text defines: `@triton.jit` and one function that uses `triton`, `tl` and its arguments.

    Triton reads a kernel's source from a file, so the text is written to one; the file is gone with the process.

    Raises:
        ValueError: the text defines no function.
    """
    found = re.search(r"^def (\w+)", text, re.MULTILINE)
    if found is None:
        raise ValueError("This text defines no function.")
    name = found.group(1)
    source = "import triton\nimport triton.language as tl\n\n" + text
    path = Path(_folder().name, f"{name}_{hashlib.sha256(source.encode()).hexdigest()[:12]}.py")
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)
