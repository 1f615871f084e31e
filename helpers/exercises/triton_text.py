"""A Triton kernel as text: extracted from the learner's object, checked, and built into a kernel again.

The text contains the kernel, the kernels that it calls, the constants that it uses, and nothing else. A
kernel runs in the interpreter as Python does, and Triton's compiler evaluates parts of it. So before it is
built elsewhere, every attribute in it must be one of Triton's language, and every name its own or one of a
few harmless builtins.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import inspect
import linecache
import math
import textwrap
from typing import Any

_FUNCTIONS = (range, len, min, max, abs, sum, print, isinstance, zip, enumerate, reversed, round)
_TYPES = (int, float, bool, tuple, list, NotImplementedError, ValueError, AssertionError)
_BUILTINS = {one.__name__: one for one in (*_FUNCTIONS, *_TYPES)}
_OF_TRITON = frozenset(["jit", "cdiv", "next_power_of_2", "language"])
_OF_VALUES = frozenset(["dtype", "shape", "type", "value", "numel", "element_ty", "scalar", "ndim", "rank"])
# Modules with more in them than a kernel needs, and methods with a builder.
_NOT_FOR_KERNELS = frozenset(["extra", "target_info", "handle", "to_ir"])
# A class has methods that Python calls by itself, and a pattern reads attributes without naming them as such.
_NO_STATEMENTS = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Match)
_HEADER = "import triton\nimport triton.language as tl\n"
_MOST_LINES = 500  # blank lines added above a kernel, so that its line numbers don't change


class NoKernel(TypeError):
    """The answer isn't a Triton kernel; the message names its type."""


class NotAlone(ValueError):
    """A kernel uses something that isn't part of its text; the message names it."""


def is_kernel(value: Any) -> bool:
    """Whether it was made by `@triton.jit`."""
    kind = type(value)
    return kind.__name__ in ("JITFunction", "InterpretedFunction") and kind.__module__.startswith("triton.")


# ----------------------------------------------------------------------------------------------- extracted


def text_of(kernel: Any) -> str:
    """The text of a kernel and of everything that it uses.

    Raises:
        NoKernel: it isn't a kernel.
        NotAlone: it calls a kernel by another name than its own.
    """
    wrapped = kernel
    while not is_kernel(kernel) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    if not is_kernel(kernel):
        raise NoKernel(f"{wrapped!r:.60}, not a @triton.jit function")
    texts: dict[str, str] = {}
    _add(kernel.fn.__name__, kernel, texts)
    *others, last = texts.values()
    first = inspect.getsourcelines(kernel.fn)[1] + _n_decorators(inspect.getsource(kernel.fn))
    above = _HEADER + "".join(others)
    blank = first - 2 - above.count("\n")
    return above + "\n" * (blank if 0 < blank < _MOST_LINES else 1) + last


def _add(name: str, value: Any, texts: dict[str, str]) -> None:
    """Add the text that defines a name, after those of everything that it uses."""
    if name not in texts:
        texts[name] = ""  # a kernel may use itself
        text = _definition(name, value, texts)
        del texts[name]
        texts[name] = text


def _definition(name: str, value: Any, texts: dict[str, str]) -> str:
    """The lines that define a name; "" for what can't be part of a kernel's text, which `problem` reports."""
    import triton
    import triton.language as tl

    if literal := _literal(value):
        return f"{name} = {literal}\n"
    of_triton = {"triton": triton, "tl": tl} | {f"tl.{one}": getattr(tl, one) for one in tl.__all__}
    for path, found in of_triton.items():
        if value is found:
            return "" if name == path else f"{name} = {path}\n"
    if isinstance(value, tl.constexpr):
        literal = _literal(value.value)
        return f"{name} = tl.constexpr({literal})\n" if literal else ""
    return _definition_of_kernel(name, value.fn, texts) if is_kernel(value) else ""


def _definition_of_kernel(name: str, function: Any, texts: dict[str, str]) -> str:
    if name != function.__name__:
        raise NotAlone(f"the kernel {function.__name__} is called {name}; use its own name")
    source = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(source).body[0]
    tree.decorator_list.clear()
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    known = function.__globals__ | inspect.getclosurevars(function).nonlocals
    for one in sorted((used & known.keys()).difference(function.__code__.co_varnames)):
        _add(one, known[one], texts)
    return "@triton.jit\n" + "\n".join(source.splitlines()[_n_decorators(source) :]) + "\n"


def _n_decorators(source: str) -> int:
    """How many lines precede a function's `def`."""
    return next(n for n, line in enumerate(source.splitlines()) if line.lstrip().startswith("def "))


def _literal(value: Any) -> str:
    """A number or a text as Python writes it, or ""."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if type(value) is tuple and all(map(_literal, value)):
        return f"({''.join(_literal(one) + ', ' for one in value)})"
    return ""


# ----------------------------------------------------------------------------------- checked and built again


def problem(text: str) -> str:
    """What a text contains besides kernels, as the end of a sentence; "" if nothing."""
    try:
        tree = ast.parse(text.removeprefix(_HEADER))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"it can't be read ({type(error).__name__})"
    attributes, implicit = _attributes(), _implicit_names()
    nodes = sorted(ast.walk(tree), key=lambda node: not isinstance(node, ast.Name))
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    known = {"triton", "tl", *_BUILTINS} | {name for name in own if not name.startswith("__")} - implicit
    for node in nodes:
        name = getattr(node, "id", None) or (isinstance(node, ast.FunctionDef) and node.name)
        if name and name not in known:
            kind = "a builtin" if hasattr(builtins, name) else "neither Triton's, nor a number, nor a kernel"
            return f"it uses {name}, which is {kind}"
        if isinstance(node, _NO_STATEMENTS):
            return f"it contains {ast.unparse(node)[:60]!r}"
        if isinstance(node, ast.Attribute) and node.attr not in attributes:
            return f"it uses {ast.unparse(node)[:60]}"
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            return f"it sets {ast.unparse(node)[:60]}"
        if isinstance(node, ast.keyword) and (node.arg or "").startswith("_"):
            return f"it passes {node.arg}"
    return "" if tree.body and isinstance(tree.body[-1], ast.FunctionDef) else "it ends without a kernel"


@functools.cache
def _attributes() -> frozenset[str]:
    """The names of what Triton's language has for kernels, and of the attributes of its values.

    None of them leads from `triton`, `tl` or `tl.math` to another module.
    """
    import triton.language as tl

    kinds = (tl.tensor, tl.dtype, tl.pointer_type, tl.block_type)
    found = {name for kind in kinds for name in dir(kind) if not name.startswith("_")}
    return (found | _OF_TRITON | _OF_VALUES).union(tl.__all__) - _NOT_FOR_KERNELS


@functools.cache
def _implicit_names() -> frozenset[str]:
    """Names that a kernel can use without defining them, which a local variable doesn't always hide: those of
    Triton's compiler, and those of the interpreter's module, which it adds to a kernel's globals.
    """
    from triton.compiler.code_generator import CodeGenerator
    from triton.runtime import interpreter

    return frozenset([*CodeGenerator.builtin_namespace, *vars(interpreter)])


def build(text: str) -> Any:
    """Build a text and return its last kernel.

    Raises:
        NotAlone: the text contains something other than kernels.
        NoKernel: its last function isn't one.
    """
    import triton
    import triton.language as tl

    if wrong := problem(text):
        raise NotAlone(f"the kernel cannot be run by itself: {wrong}")
    # A file name that `call._line` recognizes, as it does those of notebook cells.
    file = f"<ipython-input-kernel-{hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {"__name__": "kernels", "__builtins__": _BUILTINS, "triton": triton, "tl": tl}
    without_header = text.replace(_HEADER, "\n" * _HEADER.count("\n"), 1)
    exec(compile(without_header, file, "exec"), names)
    kernel = names[ast.parse(text).body[-1].name]
    if not is_kernel(kernel):
        raise NoKernel(f"{kernel!r:.60}, not a @triton.jit function")
    return kernel
