"""The IPython magics `%ncu …`, which runs `ncu …` as in a terminal, and `%%ncu`, which profiles a cell.

`%%ncu` shows the summary table and the advice. A profiled cell runs in its own process, because ncu has to
start the process that it profiles. Whatever the cell uses from the notebook is copied there as source code:
modules as imports, functions and Triton kernels together with everything they use, and plain values as
literals. Tensors are not copied, so the cell has to create its own.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import inspect
import os
import shlex
import symtable
import textwrap
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from helpers import device
from helpers.ncu import charts, runner
from helpers.ncu.reader import Report, load_report
from helpers.ncu.rules import advice_html

COMPANION = "from_notebook.py"
_last: Report | None = None


def last() -> Report:
    """Returns the report of the last `%%ncu` cell.

    Raises:
        RuntimeError: no `%%ncu` cell has run yet.
    """
    if _last is None:
        raise RuntimeError(
            "No %%ncu cell has run in this notebook yet; run one, or call ncu.load_report(path)."
        )
    return _last


@dataclass
class Brought:
    """The source that a cell needs from the notebook.

    Attributes:
        lines: the lines of the companion file.
        names: the names that the file defines.
        kernels: the Triton kernels among them.
        values: the individual plain values by name; the measurement depends on them.
        launching: the source of everything else that determines what is launched: functions and tables of
            values.
    """

    lines: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    kernels: list[Any] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    launching: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Returns the text of the companion file."""
        return "\n".join(self.lines) + "\n"


def free_names(code: str) -> list[str]:
    """Returns the names that `code` uses but does not define, without builtins, in alphabetical order.

    Raises:
        SyntaxError: the code is not valid Python.
    """
    top = symtable.symtable(code, "<cell>", "exec")
    defined = {
        s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()
    }
    used: set[str] = set()

    def walk(table: symtable.SymbolTable) -> None:
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (table is top or symbol.is_global()):
                used.add(symbol.get_name())
            # `global x; x = …` inside a function defines a module-level name.
            if table is not top and symbol.is_declared_global() and symbol.is_assigned():
                defined.add(symbol.get_name())
        for child in table.get_children():
            walk(child)

    walk(top)
    return sorted(used - defined - set(dir(builtins)))


def bring(code: str, namespace: Mapping[str, Any]) -> Brought:
    """Collects the source of everything that `code` needs from a notebook's namespace.

    Raises:
        ValueError: the code uses something that cannot be copied, such as a tensor.
    """
    brought = Brought()
    for name in free_names(code):
        if name in namespace:
            _copy_one(name, namespace, brought, "The cell")
    return brought


def _copy_one(name: str, namespace: Mapping[str, Any], brought: Brought, user: str) -> None:
    if name in brought.names:
        return
    value = namespace[name]
    if isinstance(value, types.ModuleType):
        brought.lines.append(f"import {value.__name__} as {name}")
    elif type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        brought.lines.append(f"import torch; {name} = {value!r}")
    elif _is_plain(value):
        brought.lines.append(f"{name} = {value!r}")
        if isinstance(value, str) and "\n" in value:
            brought.kernels.append(value)  # CUDA text: a source of the record, not one of its parameters
        elif isinstance(value, (bool, int, float, str)):
            brought.values[name] = value
        else:
            brought.launching.append(brought.lines[-1])
    else:
        function = value
        while not inspect.isroutine(function) and hasattr(function, "fn"):
            function = function.fn  # Triton's JITFunction, InterpretedFunction and Autotuner keep it in .fn
        module = getattr(function, "__module__", None)
        if not (inspect.isfunction(function) or inspect.isclass(function) or inspect.isbuiltin(function)):
            raise ValueError(
                f"{user} uses {name}, which is a {type(value).__name__} in your notebook. A profiled cell "
                "runs in its own process, and only modules, functions, kernels and plain values can be "
                f"copied there: create {name} inside the cell."
            )
        if function is not value:
            brought.kernels.append(value)
        if module != "__main__":
            brought.lines.append(f"from {module} import {function.__name__} as {name}")
        else:
            try:
                source = textwrap.dedent(inspect.getsource(function))
            except (OSError, TypeError) as error:
                raise ValueError(
                    f"{user} uses {name}, whose source Python cannot find; define it inside the cell."
                ) from error
            brought.names.append(name)  # added before its dependencies, because it may use itself
            for inner in free_names(source):
                if inner in namespace:
                    _copy_one(inner, namespace, brought, name)
            brought.lines.append(source.rstrip())
            if function is value:
                brought.launching.append(source.rstrip())
            return
    brought.names.append(name)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (bool, int, float, str, type(None))):
        return True
    if not isinstance(value, (tuple, list, dict, set)):
        return False
    try:
        return ast.literal_eval(repr(value)) == value
    except (ValueError, SyntaxError):
        return False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise ValueError(f"%%ncu: {message}. Options: {' '.join(self.format_usage().split()[2:])}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%ncu", add_help=False, allow_abbrev=False)
    parser.add_argument("--kernel", metavar="REGEX", help="profile only kernels whose name matches this")
    parser.add_argument("--nvtx", metavar="RANGE", help="profile only launches inside this NVTX range")
    parser.add_argument("--record", metavar="LESSON/WHAT", help="replay this record if ncu cannot run")
    parser.add_argument(
        "--any-launch", action="store_true", help="replay it no matter what this cell launches; never record"
    )
    parser.add_argument("--name", metavar="VARIABLE", help="also assign the report to this variable")
    parser.add_argument("--set", default="full", help="ncu's set of sections (default: full)")
    parser.add_argument(
        "--section",
        action="append",
        default=[],
        dest="sections",
        help="sections to collect instead of a set; separate with commas or repeat the option",
    )
    parser.add_argument("--metrics", default="", help="individual counters, separated by commas")
    parser.add_argument("--launch-skip", type=int)
    parser.add_argument("--launch-count", type=int)
    parser.add_argument(
        "--no-source", action="store_false", dest="import_source", help="leave the source files out"
    )
    parser.add_argument(
        "--no-sass", action="store_false", dest="import_sass", help="leave the machine code out"
    )
    parser.add_argument(
        "--from-percent", type=float, default=10.0, help="hide advice with a lower estimate (default: 10)"
    )
    parser.add_argument("--titles", action="store_true", help="show the advice without its texts")
    parser.add_argument("--timeout", type=float, default=300, help="time limit in seconds (default: 300)")
    parser.add_argument("--out", help="also save the report to this file, for the desktop UI")
    parser.add_argument("--quiet", action="store_true", help="create the report without showing it")
    return parser


def run_cell(line: str, cell: str, namespace: dict[str, Any]) -> Report:
    """Runs a cell under `%%ncu LINE`: profiles it or replays its record, and shows the result.

    `ncu.last()` then returns the report. A record belongs to the kernels, the text of the cell and the values
    it uses. If one of them has changed, the recorded report is not shown. The option `--any-launch` turns
    this check off, for lab cells that show a lesson's report but launch the learner's own kernel.

    Raises:
        ValueError: an option is wrong, or the cell uses something that cannot be copied.
        NcuError: ncu cannot run here and no record is named, or the cell failed.
        helpers.records.KernelChanged: ncu cannot run here, and the record was made with a different kernel or
            different launches.
    """
    global _last
    options = _parser().parse_args(shlex.split(line))
    if options.name is not None and not options.name.isidentifier():
        raise ValueError(f"%%ncu: --name needs the name of a variable; {options.name!r} is not a valid one.")
    brought = bring(cell, namespace)
    # One line replaces the line of the magic, so that line numbers in the report match the cell's.
    first = (
        f"from {COMPANION.removesuffix('.py')} import {', '.join(brought.names)}" if brought.names else "#"
    )
    call = {
        "files": {COMPANION: brought.text},
        "kernel": options.kernel,
        "nvtx": options.nvtx,
        "set": options.set,
        "sections": [s for several in options.sections for s in several.split(",") if s],
        "metrics": [m for m in options.metrics.split(",") if m],
        "launch_skip": options.launch_skip,
        "launch_count": options.launch_count,
        "import_source": options.import_source,
        "import_sass": options.import_sass,
        "timeout_s": options.timeout,
        "echo": True,
    }
    code = f"{first}\n{cell}"
    recording = os.environ.get("WORKBOOK_RECORD") == "1"
    if options.record and not (options.any_launch and recording):
        launches = [] if options.any_launch else ["\n".join([*brought.launching, cell])]
        report = runner.profile(
            options.record, code, sources=[*brought.kernels, *launches], params=brought.values, **call
        )
    else:
        path = device.cache_folder() / "ncu" / f"{options.name or 'last'}.ncu-rep"
        report = load_report(runner.run(code, out=path, **call))
    if options.out:
        import shutil

        shutil.copyfile(report.path, options.out)
    _last = report
    if options.name:
        namespace[options.name] = report
    if not options.quiet:
        _show(report, options.from_percent, titles=options.titles)
    return report


def _show(report: Report, from_percent: float, *, titles: bool) -> None:
    from IPython.display import HTML, display

    display(charts.summary_table(report))
    display(HTML(f"<p>Advice with an estimate of {from_percent:g} % or more:</p>"))
    display(HTML(advice_html(report, from_percent=from_percent, titles=titles)))


def register(shell: Any) -> None:
    """Registers the magics with an IPython shell."""

    def ncu_magic(line: str, cell: str | None = None) -> None:
        """Runs `ncu …` as in a terminal with `%ncu …`, or runs a cell under Nsight Compute with `%%ncu`.

        `%%ncu --help` lists the options.
        """
        if cell is None:
            runner.terminal(line)
        elif "--help" in line.split():
            print(_parser().format_help())
        else:
            run_cell(line, cell, shell.user_ns)

    shell.register_magic_function(ncu_magic, "line_cell", "ncu")
