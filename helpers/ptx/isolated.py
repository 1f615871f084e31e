"""Compile a Triton kernel, here or in a second Python that was not started with TRITON_INTERPRET=1.

Under that switch every `@triton.jit` function, those of Triton's own library too, is made for the interpreter, and the
compiler cannot use them. So the kernel's source goes to a process without the switch: its text with its line numbers,
and the globals it names (modules, numbers, other kernels), rebuilt there.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import pickle
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import helpers


def compile_here(kernel: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Compile a `JITFunction` in this process.

    Returns:
        {"asm": texts and cubin, "metadata": plain values, "capability": int}, or {"error": one sentence}.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler.errors import CompilationError

    attrs = {(n,): [["tt.divisibility", 16]] for n in request["divisible"]}
    source = ASTSource(kernel, request["signature"], request["constexprs"], attrs)
    try:
        compiled = triton.compile(
            source, target=GPUTarget("cuda", request["capability"], 32), options=request["options"]
        )
    except CompilationError as error:
        return {"error": _sentence(error, kernel)}
    except (
        Exception
    ) as error:  # Triton's passes, ptxas and option checks raise many kinds; all become one sentence
        text = " ".join(str(error).split()) or type(error).__name__
        return {"error": text if len(text) < 400 else text[:400] + " …"}
    return plain(compiled)


def plain(compiled: Any) -> dict[str, Any]:
    """The stages and notes of a compiled Triton kernel as plain values."""
    kinds = ("ttir", "ttgir", "llir", "ptx", "cubin")
    simple = (int, float, str, bool, tuple, type(None))
    metadata = {k: v for k, v in compiled.metadata._asdict().items() if isinstance(v, simple)}
    capability = int(compiled.metadata.target.arch)
    return {"asm": {k: compiled.asm[k] for k in kinds}, "metadata": metadata, "capability": capability}


def _sentence(error: Any, kernel: Any) -> str:
    """One sentence from Triton's several lines: the line of the kernel, its text, and what is wrong with it."""
    cause = error
    while type(cause.__cause__).__name__ in ("CompilationError", "CompileTimeAssertionFailure"):
        cause = cause.__cause__
    # What Triton's own library raised says it best; the CompilationError around it holds no more than its repr.
    message = " ".join(str(cause.__cause__ or getattr(cause, "error_message", None) or cause).split())
    message = re.sub(r"^\w+\((['\"])(.*)\1\)$", r"\2", message)
    node, text = getattr(error, "node", None), getattr(error, "src", None)
    if node is None or not text:
        return message
    lines = text.split("\n")
    shown = lines[node.lineno - 1].strip() if 0 < node.lineno <= len(lines) else ""
    # Triton counts from the `def`; decorators stand above it.
    source, start = inspect.getsourcelines(kernel.fn)
    start += next((n for n, line in enumerate(source) if line.lstrip().startswith("def ")), 0)
    return f"line {start + node.lineno - 1}, `{shown}`: {message}"


def compile_elsewhere(function: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Compile the kernel around `function` in a Python without the interpreter. Returns what `compile_here` does."""
    order = {"kernel": describe(function, {}), "request": request}
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    root = str(Path(helpers.__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [environment.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "order.pickle")
        path.write_bytes(pickle.dumps(order))
        command = [sys.executable, "-c", "from helpers.ptx import isolated; isolated.serve()", str(path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            return {"error": f"the second Python, which compiles outside the interpreter, failed: {last}"}
        return pickle.loads(path.read_bytes())


def serve() -> None:
    """What the second Python does: read the request, compile, write the result."""
    path = Path(sys.argv[1])
    order = pickle.loads(path.read_bytes())
    path.write_bytes(pickle.dumps(compile_here(_rebuild(order["kernel"], {}), order["request"])))


def describe(function: Any, seen: dict[str, Any]) -> dict[str, Any]:
    """A function's source and the globals that it names, as plain values."""
    key = f"{function.__module__}.{function.__qualname__}"
    if key in seen:
        return {"again": key}
    seen[key] = function
    lines, first = inspect.getsourcelines(function)
    source = textwrap.dedent("".join(lines))
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    names -= set(function.__code__.co_varnames)  # a notebook may have a global of the same name as a local
    return {
        "key": key,
        "name": function.__name__,
        "file": function.__code__.co_filename,
        # Padded, so that line numbers are those of the file or cell that the learner sees.
        "text": "\n" * (first - 1) + source,
        "line": first,
        "globals": {
            n: _describe_value(n, known[n], seen)
            for n in sorted(names)
            if n in known and n != function.__name__
        },
    }


def _describe_value(name: str, value: Any, seen: dict[str, Any]) -> tuple[str, Any]:
    if isinstance(value, ModuleType):
        return "module", value.__name__
    function = getattr(value, "fn", value)
    module = getattr(function, "__module__", None) or ""
    if module.split(".")[0] == "triton" and hasattr(function, "__name__"):
        return "attribute", (module, function.__name__)
    if type(value).__name__ in ("InterpretedFunction", "JITFunction"):
        return "function", describe(function, seen)
    if type(value).__name__ == "constexpr":
        return "constexpr", value.value
    if isinstance(value, (bool, int, float, str, tuple, type(None))):
        return "value", value
    raise ValueError(
        f"The kernel names {name!r}, a {type(value).__name__} that cannot be carried to the Python that compiles "
        "outside the interpreter; pass it as an argument, or start without TRITON_INTERPRET=1."
    )


def _rebuild(order: dict[str, Any], made: dict[str, Any]) -> Any:
    """The kernel from its description: a `JITFunction` again."""
    import importlib

    import triton
    import triton.language as tl

    if "again" in order:
        return made[order["again"]]
    namespace: dict[str, Any] = {"__name__": "kernel"}
    for name, (kind, value) in order["globals"].items():
        if kind == "module":
            namespace[name] = importlib.import_module(value)
        elif kind == "attribute":
            namespace[name] = getattr(importlib.import_module(value[0]), value[1])
        elif kind == "function":
            namespace[name] = _rebuild(value, made)
        else:
            namespace[name] = tl.constexpr(value) if kind == "constexpr" else value
    text = order["text"]
    linecache.cache[order["file"]] = (len(text), None, text.splitlines(keepends=True), order["file"])
    tree = ast.parse(text)
    tree.body[0].decorator_list = []
    exec(compile(tree, order["file"], "exec"), namespace)
    function = namespace[order["name"]]
    # Triton finds the source by its first line, that of the decorators, and keys its cache by that line.
    function.__code__ = function.__code__.replace(co_firstlineno=order["line"])
    kernel = triton.jit(function)
    made[order["key"]] = kernel
    namespace[order["name"]] = kernel
    return kernel
