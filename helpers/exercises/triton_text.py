"""A Triton kernel as text: extracted from the learner's object, checked, and built into a kernel again.

The text contains the kernel, the kernels that it calls, the constants that it uses, imports of Triton, and
nothing else. A kernel runs in the interpreter as Python does, so before it is built elsewhere each name and
attribute in it must be Triton's, its own, or one of a few harmless builtins.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import importlib
import inspect
import linecache
import math
import textwrap
from types import CodeType, ModuleType
from typing import Any


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BUILTINS = _words("""
    range len int float bool min max abs sum print tuple list isinstance zip enumerate reversed
    round NotImplementedError ValueError AssertionError
""")
_FLOATS = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
_OF_TRITON = ("jit", "cdiv", "next_power_of_2", "language")
_NOT_OF_LANGUAGE = ("extern_elementwise", "extern_call", "extern", "dispatch")
_OF_VALUES = frozenset(["dtype", "shape", "type", "value", "numel", "element_ty", "scalar", "ndim", "rank"])
_NO_STATEMENTS = (
    ast.Import,
    ast.ImportFrom,
    ast.Global,
    ast.Nonlocal,
    ast.Lambda,
    ast.ClassDef,
    ast.Try,
    ast.With,
    ast.AsyncWith,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.Await,
    ast.Yield,
    ast.YieldFrom,
    ast.Delete,
    ast.NamedExpr,
    ast.Match,
)
_HEADER = "import triton\nimport triton.language as tl\n"
_MOST_LINES = 500  # blank lines added above a kernel, so that its line numbers don't change


class NoKernel(TypeError):
    """The answer isn't a Triton kernel; the message names its type."""


class NotAlone(ValueError):
    """A kernel uses something that isn't part of its text; the message names it."""


def is_kernel(value: Any) -> bool:
    """Whether it was made by `@triton.jit`."""
    return type(value).__name__ in ("JITFunction", "InterpretedFunction") and type(
        value
    ).__module__.startswith("triton.")


def text_of(kernel: Any) -> str:
    """The text of a kernel and of everything that it uses.

    Raises:
        NoKernel: it isn't a kernel.
        NotAlone: it uses something that isn't a kernel, a constant or part of Triton.
    """
    wrapped = kernel
    while not is_kernel(kernel) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    if not is_kernel(kernel):
        raise NoKernel(f"{wrapped!r:.60}, no @triton.jit function")
    lines: dict[str, str] = {}
    _describe(kernel, kernel.fn.__name__, lines)
    *others, last = lines.values()
    first = inspect.getsourcelines(kernel.fn)[1] + _decorators(inspect.getsource(kernel.fn))
    above = _HEADER + "".join(others)
    blank = first - 2 - above.count("\n")
    return above + "\n" * (blank if 0 < blank < _MOST_LINES else 1) + last


def _describe(kernel: Any, name: str, lines: dict[str, str]) -> None:
    """Add the lines that define a kernel, after those of everything that it uses."""
    if name != kernel.fn.__name__:
        raise NotAlone(f"the kernel {kernel.fn.__name__} is called {name}; use its own name")
    if name in lines:
        return
    lines[name] = ""
    function = kernel.fn
    known = {**function.__globals__}
    for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        known[free] = cell.cell_contents
    source = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(source).body[0]
    used = (
        _names(function.__code__)
        | {
            node.id
            for part in [*tree.args.args, *tree.args.kwonlyargs]
            if part.annotation
            for node in ast.walk(part.annotation)
            if isinstance(node, ast.Name)
        }
        | {
            node.id
            for default in tree.args.defaults
            for node in ast.walk(default)
            if isinstance(node, ast.Name)
        }
    )
    for one in sorted(used):
        if one in known and one not in lines:
            lines[one] = ""
            lines[one] = _definition(one, known[one], lines)
    del lines[name]  # so that it comes after what it needs
    lines[name] = "@triton.jit\n" + "\n".join(source.splitlines()[_decorators(source) :]) + "\n"


def _names(code: CodeType) -> set[str]:
    """Names that a code object reads from outside; attributes' names are among them."""
    found = {*code.co_names, *code.co_freevars}
    for one in code.co_consts:
        if isinstance(one, CodeType):
            found |= _names(one)
    return found


def _decorators(source: str) -> int:
    """How many lines precede a function's `def`."""
    return next(n for n, line in enumerate(source.splitlines()) if line.lstrip().startswith("def "))


def _definition(name: str, value: Any, lines: dict[str, str]) -> str:
    """The line that assigns a name its value."""
    import triton.language as tl

    if isinstance(value, ModuleType):
        if value.__name__ == "triton" or value.__name__.startswith("triton.language"):
            return f"import {value.__name__} as {name}\n"
        # a name of an attribute may be a module's too; whether it is used so is seen when it is looked
        # through
        return ""
    if is_kernel(value) and not value.fn.__module__.startswith("triton."):
        del lines[name]
        _describe(value, name, lines)
        return lines.pop(name)
    if isinstance(value, tl.constexpr):
        literal = _literal(value.value)
        return f"{name} = tl.constexpr({literal})\n" if literal else ""
    if isinstance(value, tl.dtype) and not value.is_ptr():
        return f"{name} = tl.{_FLOATS.get(value.name, value.name)}\n"
    if literal := _literal(value):
        return f"{name} = {literal}\n"
    of = getattr(getattr(value, "fn", value), "__module__", None) or ""
    if of.startswith("triton.language") and hasattr(tl, getattr(value, "__name__", "?")):
        return f"from triton.language import {value.__name__} as {name}\n"
    return ""


def _literal(value: Any) -> str:
    """A number or a text as Python writes it, or ""."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if type(value) is tuple and all(_literal(one) for one in value):
        return f"({''.join(_literal(one) + ', ' for one in value)})"
    return ""


# ------------------------------------------------------------------------------------------------ looked
# through


def problem(text: str) -> str:
    """What a text contains besides kernels, as the end of a sentence; "" if nothing."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"it cannot be read ({type(error).__name__})"
    modules: dict[str, ModuleType] = {}
    known: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name != "triton" and not name.name.startswith("triton.language"):
                    return f"it imports {name.name}"
                modules[name.asname or "triton"] = importlib.import_module(name.name)
        elif isinstance(node, ast.ImportFrom):
            if node.module != "triton.language" or node.level:
                return f"it imports from {node.module}"
            found = importlib.import_module("triton.language")
            for name in node.names:
                if not _is_of_language(getattr(found, name.name, None), name.name):
                    return f"it imports {name.name}"
                known.add(name.asname or name.name)
        elif isinstance(node, ast.Assign):
            if not all(isinstance(target, ast.Name) for target in node.targets):
                return "it sets something else than a name"
            if wrong := _expressions_problem(node.value, known, modules):
                return wrong
            known |= {target.id for target in node.targets}
        elif isinstance(node, ast.FunctionDef):
            known.add(node.name)
            if wrong := _function_problem(node, known, modules):
                return wrong
        else:
            return f"it holds {ast.unparse(node)[:60]!r}"
    return "" if tree.body and isinstance(tree.body[-1], ast.FunctionDef) else "it ends without a kernel"


def _function_problem(function: ast.FunctionDef, known: set[str], modules: dict[str, ModuleType]) -> str:
    if [ast.unparse(one) for one in function.decorator_list] != ["triton.jit"]:
        return f"{function.name} has another decorator than @triton.jit"
    arguments = function.args
    parameters = {arg.arg for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    if arguments.vararg or arguments.kwarg:
        return f"{function.name} takes any number of arguments"
    for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if arg.annotation and (wrong := _expressions_problem(arg.annotation, known, modules)):
            return wrong
    for default in (*arguments.defaults, *filter(None, arguments.kw_defaults)):
        if wrong := _expressions_problem(default, known, modules):
            return wrong
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, _NO_STATEMENTS):
                return f"{function.name} holds {ast.unparse(node)[:60]!r}"
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                parameters.add(node.id)
    if shadowed := parameters & modules.keys():
        return f"{function.name} gives {min(shadowed)} another value"
    for statement in function.body:
        if wrong := _expressions_problem(statement, known | parameters, modules):
            return wrong
    return ""


def _expressions_problem(tree: ast.AST, known: set[str], modules: dict[str, ModuleType]) -> str:
    for node in sorted(ast.walk(tree), key=lambda node: not isinstance(node, ast.Name)):
        if isinstance(node, ast.Name):
            if node.id.startswith("__") or not (
                node.id in known or node.id in modules or node.id in _BUILTINS
            ):
                kind = (
                    "a builtin"
                    if hasattr(builtins, node.id)
                    else "neither Triton's, nor a number, nor a kernel"
                )
                return f"it uses {node.id}, which is {kind}"
        elif isinstance(node, ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                return f"it sets {ast.unparse(node)[:60]}"
            chain = _chain(node)
            if chain and chain[0] in modules:
                if not _resolves(modules[chain[0]], chain[1:]):
                    return f"it uses {'.'.join(chain)}"
            elif node.attr not in _of_values():
                return f"it uses the attribute {node.attr}"
        elif isinstance(node, ast.keyword) and (node.arg or "").startswith("_"):
            return f"it passes {node.arg}"
    return ""


def _chain(node: ast.Attribute) -> list[str]:
    """The parts of `tl.math.exp`; empty if it doesn't begin with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return [node.id, *parts] if isinstance(node, ast.Name) else []


def _resolves(module: ModuleType, parts: list[str]) -> bool:
    """Whether a chain of attributes ends at something of Triton's language; a value's own attributes may
    follow.
    """
    found: Any = module
    for i, part in enumerate(parts):
        if part.startswith("_"):
            return False
        if not isinstance(found, ModuleType):
            return all(one in _of_values() for one in parts[i:])
        if found.__name__ == "triton" and part not in _OF_TRITON:
            return False
        found = getattr(found, part, None)
        if isinstance(found, ModuleType):
            if not found.__name__.startswith("triton.language"):
                return False
        elif not (part in _OF_TRITON or _is_of_language(found, part)):
            return False
    return True


def _is_of_language(value: Any, name: str) -> bool:
    if value is None or name.startswith("_") or name in _NOT_OF_LANGUAGE:
        return False
    of = getattr(getattr(value, "fn", value), "__module__", None) or type(value).__module__
    return of.startswith("triton.language")


@functools.cache
def _of_values() -> frozenset[str]:
    """The attributes that values of Triton's language have for kernels."""
    import triton.language as tl

    found = {name for kind in (tl.tensor, tl.dtype, tl.pointer_type, tl.block_type) for name in dir(kind)}
    return frozenset({name for name in found if not name.startswith("_")} | _OF_VALUES) - {"handle", "to_ir"}


# ------------------------------------------------------------------------------------------------ built again


def build(text: str) -> Any:
    """Build a text and return its last kernel.

    Raises:
        NotAlone: the text contains something other than kernels.
    """
    if wrong := problem(text):
        raise NotAlone(f"the kernel cannot be run by itself: {wrong}")
    # A file name that `call._line` recognizes, as it does those of notebook cells.
    file = f"<ipython-input-kernel-{hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"__name__": "kernels"}
    exec(compile(text, file, "exec"), names)
    return names[ast.parse(text).body[-1].name]
