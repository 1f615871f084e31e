"""Runs scripts in separate processes, and extracts the kernel that torch.compile generates in one of them."""

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
# Uses Python's own debugger, and no pool of compiler processes in torch.compile: a script with one kernel
# takes 18 s with the pool and 11 s without it (32 cores, torch 2.11).
_ENVIRONMENT = {"PYTHONBREAKPOINT": "", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    """Returns the folder for kernels that were passed as text. It is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="workbook-kernels-")


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


def output_code(printed: str) -> str:
    """Returns the code that a script printed under `TORCH_LOGS=output_code`, without the logger's prefixes.

    Raises:
        ValueError: The output has no such code. The message contains the end of the output.
    """
    lines = [line.partition("[__output_code]") for line in printed.splitlines()]
    code = [text.removeprefix(" ") for _, mark, text in lines if mark]
    code = [line for line in code if not line.startswith(("Output code", "# kernel path:"))]
    if not code:
        raise ValueError(f"TORCH_LOGS=output_code printed no code. The output ends with:\n{printed[-2000:]}")
    return "\n".join(code).strip() + "\n"


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


def kernel_text(code: str) -> str:
    """Returns the decorated Triton function in the code that torch.compile generated.

    Raises:
        ValueError: The code has no Triton function.
    """
    found = re.search(r"^@triton\.jit\n(?:.+\n)+?(?=''')", code, re.MULTILINE)
    if found is None:
        raise ValueError("This code has no function decorated with @triton.jit.")
    return found.group(0)


def load_kernel(text: str) -> Any:
    """Returns the Triton kernel that a text defines with `@triton.jit` and one function.

    The function may use `triton`, `tl` and its arguments. Triton reads a kernel's source from a file, so the
    text is written to a temporary one, which is removed when the process ends.

    Raises:
        ValueError: The text defines no function.
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
