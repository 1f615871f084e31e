"""A hash of what a kernel's source does, whatever its comments, docstrings and layout are.

Python is compared by its syntax tree and C++ by its tokens. Where a module of this project lives doesn't
count either, so that a module can be renamed without making its records stale.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

UNNAMED = "source"  # the name of a source that defines no kernel
OWN_PACKAGES = ("helpers", "workbook")
# Fields of a syntax tree that differ between Python versions or carry no meaning.
_IGNORED_FIELDS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_CPP_TOKEN = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*.*?\*/ )
    | (?P<directive> ^[ \t]*\#(?:[^\n\\]|\\.|\\\n)* )
    | (?P<literal> R"(?P<end>[^(\s]*)\(.*?\)(?P=end)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+' )
    | (?P<word> [\w$.]+ )
    | (?P<operator> <<<|>>>|<<=|>>=|<=>|->\*|\.\.\.|\+\+|--|->|<<|>>|&&|\|\||::|[-+*/%&|^=!<>]= )
    | (?P<space> \s+ )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def fingerprint(source: Any) -> tuple[str, str]:
    """Returns the name of a kernel and a sha256 of its source.

    Comments, docstrings, formatting and the paths of this project's modules don't change the hash. Anything
    that can change what the kernel computes does.

    Args:
        source: a Triton kernel, a Python function, a module, or source text (CUDA C++ or Python).

    Returns:
        The name, `UNNAMED` for a text that defines no CUDA kernel, and the hash as 64 hexadecimal digits.

    Example:
        >>> from helpers import records
        >>> name, sha256 = records.fingerprint("__global__ void square(float* x) {}")
        >>> name, len(sha256)
        ('square', 64)
        >>> records.fingerprint("__global__ void square(float *x) { /* nothing */ }") == (name, sha256)
        True
    """
    name, text = name_and_text(source)
    return name, hashlib.sha256(normalized(text).encode()).hexdigest()


def name_and_text(source: Any) -> tuple[str, str]:
    """Returns a kernel's name and its source text."""
    target = getattr(source, "fn", source)  # Triton's JITFunction and Autotuner keep the function in .fn
    target = getattr(target, "fn", target)
    if isinstance(target, str):
        name = re.search(r"__global__[^(]*?(\w+)\s*\(", target)
        return (name.group(1) if name else UNNAMED), target
    return target.__name__, inspect.getsource(target)


def normalized(text: str) -> str:
    """Returns the parts of a source that decide what it does: a syntax tree for Python, else the tokens of
    C++.
    """
    if "__global__" not in text:
        try:
            return "\n".join(_tree(ast.parse(textwrap.dedent(text))))
        except SyntaxError:
            pass
    return " ".join(_cpp_tokens(text))


def _cpp_tokens(text: str) -> Iterator[str]:
    for match in _CPP_TOKEN.finditer(text):
        if match.lastgroup == "directive" or match["directive"]:
            line = re.sub(r"//.*|/\*.*?\*/", "", match["directive"].replace("\\\n", " "))
            yield "\n" + " ".join(line.split()) + "\n"
        elif not match["comment"] and not match["space"]:
            yield match.group()


def _tree(node: ast.AST) -> Iterator[str]:
    """Yields a syntax tree in lines that are the same in every Python version that the workbook admits."""
    yield type(node).__name__
    for field, value in ast.iter_fields(node):
        if field in _IGNORED_FIELDS or value is None or value == []:
            continue
        yield f".{field}"
        if field == "body" and isinstance(value, list):
            value = _without_docstring(node, value)
        if isinstance(node, ast.ImportFrom | ast.alias) and field in ("module", "name"):
            value = _without_own_path(value)
        if isinstance(node, ast.JoinedStr):
            value = _joined(value)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST):
                yield from _tree(one)
            else:
                yield repr(one)
    yield "end"


def _without_docstring(node: ast.AST, body: list[ast.stmt]) -> list[ast.stmt]:
    documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    return body[1:] if documented and ast.get_docstring(node, clean=False) is not None else body


def _without_own_path(module: str) -> str:
    """`helpers.kernels.softmax` becomes `softmax`, wherever the module lives."""
    return module.rpartition(".")[2] if module.partition(".")[0] in OWN_PACKAGES else module


def _joined(values: list[ast.expr]) -> list[ast.expr]:
    """The parts of an f-string, with neighboring constants joined: splitting a literal changes nothing."""
    joined: list[ast.expr] = []
    for value in values:
        last = joined[-1] if joined else None
        if isinstance(value, ast.Constant) and isinstance(last, ast.Constant):
            joined[-1] = ast.Constant(last.value + value.value)
        else:
            joined.append(value)
    return joined
