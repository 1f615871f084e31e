"""The shell in which a learner's cells run, what it says of errors, and how what cells replace is
put back.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def make_shell() -> Any:
    """An IPython shell as a kernel has, with neither the teacher's profile nor a history file."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.text import LSString, SList
    from traitlets.config import Config

    class Shell(InteractiveShell):
        """What a kernel's shell does where IPython's base class raises."""

        def enable_gui(self, gui: object = None) -> None:
            """Nothing: figures go nowhere."""

        # A kernel gives a command a terminal of its own; here it writes into the log as all else does.
        system = InteractiveShell.system_raw

        def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> object:
            """What a command prints, for `x = !command`."""
            ran = subprocess.run(
                self.var_expand(cmd, depth=depth + 1),
                shell=True,
                text=True,
                errors="replace",
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            return SList(ran.stdout.splitlines()) if split else LSString(ran.stdout)

        def ask_exit(self) -> None:
            """Nothing: the cells below `exit()` run too."""

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.xmode = "Plain"
    return Shell.instance(config=config)


def line_of(error: BaseException) -> int:
    """The line of the cell in which it was raised, or 0."""
    if isinstance(error, SyntaxError):
        return error.lineno or 0
    line, trace = 0, error.__traceback__
    while trace is not None:
        if (
            "ipython-input" in trace.tb_frame.f_code.co_filename
            or "ipykernel_" in trace.tb_frame.f_code.co_filename
        ):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


class Originals:
    """The functions and classes of the workbook and of torch as they were before the learner's first cell."""

    def __init__(self) -> None:
        import torch

        modules = [
            m for name, m in list(sys.modules.items()) if name.partition(".")[0] in ("helpers", "workbook")
        ]
        modules.append(sys.modules.get("further_exercises"))
        modules = [module for module in modules if module is not None]
        classes = [
            value
            for module in modules
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__ == module.__name__
        ]
        kinds = (staticmethod, classmethod, property)
        self._kept = [
            (holder, name, value)
            for holder in (*modules, *classes, torch, torch.Tensor, torch.nn.functional)
            for name, value in vars(holder).items()
            if callable(value) or isinstance(value, kinds)
        ]

    def put_back(self) -> None:
        """Undo what cells replaced."""
        for holder, name, value in self._kept:
            if vars(holder).get(name) is not value:
                setattr(holder, name, value)
