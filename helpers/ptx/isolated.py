"""Compile a Triton kernel in this process, or in a second Python process without TRITON_INTERPRET=1.

With that variable, every `@triton.jit` function, including those of Triton's own library, is defined for the
interpreter and cannot be compiled. So the kernel's source is sent to a process without the variable: its text
with its line numbers, and the globals that it uses (modules, numbers, other kernels), which are recreated
there.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import helpers


def compile_here(kernel: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Compiles a `JITFunction` in this process.

    Args:
        kernel: the kernel.
        request: a dict with "signature" and "constexprs" in the form that Triton's `ASTSource` expects,
            "divisible" (the paths of the arguments that are multiples of 16: `(1,)` is the second argument,
            `(1, 0)` the first element of a tuple there), "capability" and "options".

    Returns:
        {"asm": texts and cubin, "metadata": plain values, "capability": int}, or {"error": one sentence}.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler.errors import CompilationError

    attrs = {path: [["tt.divisibility", 16]] for path in request["divisible"]}
    source = ASTSource(kernel, request["signature"], request["constexprs"], attrs)
    try:
        compiled = triton.compile(
            source, target=GPUTarget("cuda", request["capability"], 32), options=request["options"]
        )
    except CompilationError as error:
        return {"error": error_summary(error, kernel)}
    except Exception as error:  # Triton's passes, ptxas and option checks raise many types
        text = " ".join(str(error).split()) or type(error).__name__
        return {"error": text if len(text) < 400 else text[:400] + " …"}
    return plain(compiled)


def plain(compiled: Any) -> dict[str, Any]:
    """Returns the stages and metadata of a compiled Triton kernel as plain values."""
    kinds = ("ttir", "ttgir", "llir", "ptx", "cubin")
    simple = (int, float, str, bool, tuple, type(None))
    metadata = {k: v for k, v in compiled.metadata._asdict().items() if isinstance(v, simple)}
    capability = int(compiled.metadata.target.arch)
    return {"asm": {k: compiled.asm[k] for k in kinds}, "metadata": metadata, "capability": capability}


def error_summary(error: Any, kernel: Any = None) -> str:
    """Returns Triton's multi-line error as one sentence: the kernel's line, its text, and the problem.

    Args:
        error: Triton's `CompilationError`.
        kernel: the kernel; without it the line number is omitted.
    """
    cause = error
    while type(cause.__cause__).__name__ in ("CompilationError", "CompileTimeAssertionFailure"):
        cause = cause.__cause__
    # The exception from Triton's own library is the clearest; the CompilationError around it only contains
    # its repr.
    message = " ".join(str(cause.__cause__ or getattr(cause, "error_message", None) or cause).split())
    message = re.sub(r"^\w+\((['\"])(.*)\1\)$", r"\2", message)
    node, text = getattr(error, "node", None), getattr(error, "src", None)
    if node is None or not text:
        return message
    lines = text.split("\n")
    code = lines[node.lineno - 1].strip() if 0 < node.lineno <= len(lines) else ""
    if kernel is None:
        return f"`{code}`: {message}"
    # Triton counts lines from the `def`, below the decorators.
    source, start = inspect.getsourcelines(kernel.fn)
    start += next((n for n, line in enumerate(source) if line.lstrip().startswith("def ")), 0)
    return f"line {start + node.lineno - 1}, `{code}`: {message}"


def compile_in_subprocess(function: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Compiles the kernel around `function` in a second Python process without the interpreter.

    Returns the same values as `compile_here`.
    """
    modules: dict[str, int | None] = {}
    job = {"kernel": describe(function, {}, modules), "request": request}
    with _lock:
        try:
            return _compiler(modules).compile(job)
        except _CompilerExited as error:
            return {
                "error": f"the second Python process, which compiles without the interpreter, failed: {error}"
            }


class _CompilerExited(RuntimeError):
    """The second Python process has ended; the message is the last line that it printed."""


class _Compiler:
    """A persistent second Python process: it imports Triton once and then compiles a kernel in about 0.1 s.

    It ends with this process, because its standard input is closed then.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment, self.owner = environment, os.getpid()
        self.modules: dict[str, int | None] = {}
        root = str(Path(helpers.__file__).resolve().parents[1])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - stays open while the process runs
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from helpers.ptx import isolated; isolated.serve()"],
            env={**environment, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
        )

    def fits(self, environment: dict[str, str], modules: dict[str, int | None]) -> bool:
        """Whether this process may use the compiler, and no module that it imported has changed."""
        same = all(self.modules.get(name, stamp) == stamp for name, stamp in modules.items())
        belongs_here = self.owner == os.getpid() and self.environment == environment
        return belongs_here and same and self.process.poll() is None

    def compile(self, job: dict[str, Any]) -> dict[str, Any]:
        """Sends one job and returns the answer.

        Raises:
            _CompilerExited: the process did not answer.
        """
        try:
            pickle.dump(job, self.process.stdin)
            self.process.stdin.flush()
            return pickle.load(self.process.stdout)
        except (EOFError, OSError):
            self.end()
            self.errors.seek(0)
            lines = self.errors.read().decode(errors="replace").strip().splitlines()
            raise _CompilerExited((lines or ["it printed nothing"])[-1]) from None
        except BaseException:  # after an interrupt, the answer to this job must not be read as the next one
            self.end()
            raise

    def end(self) -> None:
        """Stops the process. In a forked child, only closes the pipes."""
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


_lock = threading.Lock()
_running: list[_Compiler] = []


def _compiler(modules: dict[str, int | None]) -> _Compiler:
    """Returns the running second process, or a new one if it cannot be used."""
    environment = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "PYTHONPATH")}
    if _running and not _running[0].fits(environment, modules):
        _running.pop().end()
    if not _running:
        _running.append(_Compiler(environment))
    _running[0].modules.update(modules)
    return _running[0]


def serve() -> None:
    """Runs in the second process: reads jobs, compiles and answers until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the notebook handles interrupts
    jobs, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of a kernel during compilation must not mix with the answers
    while True:
        try:
            job = pickle.load(jobs)
        except EOFError:
            return
        pickle.dump(compile_here(_rebuild(job["kernel"], {}), job["request"]), answers)
        answers.flush()


def describe(
    function: Any, seen: dict[str, Any], modules: dict[str, int | None] | None = None
) -> dict[str, Any]:
    """Returns a function's source and the globals that it uses as plain values.

    Args:
        function: the function.
        seen: functions that have already been described, by full name; it is updated.
        modules: filled with the modules that the function uses, and the times when their files last changed.
    """
    modules = {} if modules is None else modules
    key = f"{function.__module__}.{function.__qualname__}"
    if key in seen:
        return {"again": key}
    seen[key] = function
    lines, first = inspect.getsourcelines(function)
    source = textwrap.dedent("".join(lines))
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    names -= set(function.__code__.co_varnames)  # a notebook may have a global with the same name as a local
    return {
        "key": key,
        "name": function.__name__,
        "file": function.__code__.co_filename,
        # Padded, so that line numbers match the file or cell that the learner sees.
        "text": "\n" * (first - 1) + source,
        "line": first,
        "globals": {
            n: _describe_value(n, known[n], seen, modules)
            for n in sorted(names)
            if n in known and n != function.__name__
        },
    }


def _describe_value(
    name: str, value: Any, seen: dict[str, Any], modules: dict[str, int | None]
) -> tuple[str, Any]:
    if isinstance(value, ModuleType):
        file = getattr(value, "__file__", None)
        modules[value.__name__] = os.stat(file).st_mtime_ns if file and os.path.exists(file) else None
        return "module", (value.__name__, modules[value.__name__])
    function = getattr(value, "fn", value)
    module = getattr(function, "__module__", None) or ""
    if module.split(".")[0] == "triton" and hasattr(function, "__name__"):
        return "attribute", (module, function.__name__)
    if type(value).__name__ in ("InterpretedFunction", "JITFunction"):
        return "function", describe(function, seen, modules)
    if type(value).__name__ == "constexpr":
        return "constexpr", value.value
    if isinstance(value, (bool, int, float, str, tuple, type(None))):
        return "value", value
    raise ValueError(
        f"The kernel names {name!r}, a {type(value).__name__} that cannot be sent to the second Python "
        "process, which compiles without the interpreter. Pass it as an argument, or start without "
        "TRITON_INTERPRET=1."
    )


def _rebuild(description: dict[str, Any], kernels: dict[str, Any]) -> Any:
    """Recreates the kernel from its description as a `JITFunction`."""
    import importlib

    import triton
    import triton.language as tl

    if "again" in description:
        return kernels[description["again"]]
    namespace: dict[str, Any] = {"__name__": "kernel"}
    for name, (kind, value) in description["globals"].items():
        if kind == "module":
            namespace[name] = importlib.import_module(value[0])
        elif kind == "attribute":
            namespace[name] = getattr(importlib.import_module(value[0]), value[1])
        elif kind == "function":
            namespace[name] = _rebuild(value, kernels)
        else:
            namespace[name] = tl.constexpr(value) if kind == "constexpr" else value
    text = description["text"]
    linecache.cache[description["file"]] = (
        len(text),
        None,
        text.splitlines(keepends=True),
        description["file"],
    )
    tree = ast.parse(text)
    tree.body[0].decorator_list = []
    exec(compile(tree, description["file"], "exec"), namespace)
    function = namespace[description["name"]]
    # Triton finds the source by its first line (of the decorators), and that line is part of its cache key.
    function.__code__ = function.__code__.replace(co_firstlineno=description["line"])
    kernel = triton.jit(function)
    kernels[description["key"]] = kernel
    namespace[description["name"]] = kernel
    return kernel
