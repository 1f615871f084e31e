"""The parameters of a notebook: what its parameters cell assigns, and how values are parsed by the types that
it declares.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nbformat import NotebookNode


@dataclass(frozen=True)
class Parameter:
    """One assignment in the parameters cell of a notebook.

    Attributes:
        name: The variable.
        annotation: Its type as written, or "".
        default: Its default as written.
    """

    name: str
    annotation: str
    default: str

    def __str__(self) -> str:
        return f"{self.name}{f': {self.annotation}' if self.annotation else ''} = {self.default}"


def parameters_of(notebook: NotebookNode) -> dict[str, Parameter]:
    """The assignments in the cell tagged `parameters`, by name; empty if there is no such cell.

    papermill parses the cell line by line and misses `int | None` and values that contain `=`. So we parse a
    cell that is plain Python as Python, and leave other languages to papermill.
    """
    from papermill.inspection import inspect_notebook

    cell = next((c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])), None)
    if cell is None:
        return {}
    if notebook.metadata["language_info"]["name"].startswith("python"):
        try:
            tree = ast.parse(cell.source)
        except SyntaxError:
            tree = None
        if tree is not None:
            return {p.name: p for node in tree.body for p in _assigned(node)}
    return {
        name: Parameter(
            name, "" if p["inferred_type_name"] == "None" else p["inferred_type_name"], p["default"]
        )
        for name, p in inspect_notebook(notebook).items()
    }


def _assigned(node: ast.stmt) -> list[Parameter]:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return [Parameter(node.target.id, ast.unparse(node.annotation), ast.unparse(node.value))]
    if isinstance(node, ast.Assign):
        return [Parameter(t.id, "", ast.unparse(node.value)) for t in node.targets if isinstance(t, ast.Name)]
    return []


def parse_value(given: Any, parameter: Parameter) -> Any:
    """Parse a parameter's value by its annotation, or by the type of its default.

    Args:
        given: A text as on a command line, or a value.
        parameter: What the notebook declares.

    Raises:
        ValueError: It does not have that type; the message completes a sentence that begins with the name.
    """
    annotation = parameter.annotation
    if not annotation:
        try:
            default = ast.literal_eval(parameter.default)
            annotation = "Any" if default is None else type(default).__name__
        except ValueError:
            annotation = "float" if _FLOAT.fullmatch(parameter.default) else "Any"
    try:
        node = ast.parse(annotation, mode="eval").body
    except SyntaxError:
        node = ast.Name("Any")
    found, value = _convert(given, node) if isinstance(given, str) else (_fits(given, node), given)
    if not found:
        raise ValueError(f"is {annotation} (default {parameter.default}), and {given!r} is not")
    try:
        return _plain(value)
    except TypeError as error:
        raise ValueError(
            f"is {annotation} (default {parameter.default}), and {given!r} is {error}, which can't be passed "
            "to a notebook: give None, a bool, a number, a text, or a list or dict of these"
        ) from None


def default_values(notebook: NotebookNode) -> dict[str, Any]:
    """The defaults in the parameters cell, by name: constants and their arithmetic as values, such as 2**20
    as 1048576, and everything else as written.
    """
    return {name: _evaluated(parameter.default) for name, parameter in parameters_of(notebook).items()}


def _evaluated(default: str) -> Any:
    try:
        return _plain(_constant(ast.parse(default, mode="eval").body))
    except (ValueError, TypeError, SyntaxError, KeyError, ArithmeticError):
        return default


def _constant(node: ast.expr) -> Any:
    if not isinstance(node, ast.BinOp):
        return ast.literal_eval(node)
    left, right = _constant(node.left), _constant(node.right)
    if isinstance(node.op, (ast.Pow, ast.LShift)) and not abs(right) < _LARGEST_EXPONENT:
        raise ValueError("too large")
    return _OPERATORS[type(node.op)](left, right)


def for_json(value: Any) -> Any:
    """A value for JSON: nan, inf and -inf, which JSON can't represent, become these words."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: for_json(inner) for key, inner in value.items()}
    return [for_json(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    """A value that JSON can represent, or nan or inf. Tuples become lists, because papermill would write a
    tuple as a text.

    Raises:
        TypeError: JSON has no such type; the message names it.
    """
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, dict):
        if others := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"a dict with the key {others[0]!r}")
        return {key: _plain(inner) for key, inner in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(type(value).__name__)


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}
_LARGEST_EXPONENT = 1024  # so that a typo can't fill the memory
# Defaults that are floats but not literals.
_FLOAT = re.compile(r"-?(float\(.*\)|(math|np|numpy|torch)\.(inf|nan))")
_TRUE_FALSE = {"true": True, "false": False}
_CONTAINERS = {"list": list, "tuple": (list, tuple), "dict": dict}


def _parts(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """Split an annotation into its name and its arguments: `int | None` is ("Union", [int, None])."""
    if isinstance(node, ast.Constant):
        return ("None", []) if node.value is None else _parts(ast.parse(str(node.value), mode="eval").body)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return "Union", [node.left, node.right]
    if isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        name = _parts(node.value)[0]
        return ("Union", [*inner, ast.Constant(None)]) if name == "Optional" else (name.capitalize(), inner)
    if isinstance(node, ast.Attribute):
        return node.attr, []
    return (node.id if isinstance(node, ast.Name) else "Any"), []


def _convert(text: str, node: ast.expr) -> tuple[bool, Any]:
    """Whether a text is a value of the annotated type, and the value."""
    name, inner = _parts(node)
    if name == "Union":
        # Any text is a str, so str is tried last: "512" for `str | int` is a number.
        for option in sorted(inner, key=lambda n: _parts(n)[0] == "str"):
            fits, value = _convert(text, option)
            if fits:
                return True, value
        return False, None
    if name == "str":
        return True, _unquoted(text)
    if name == "bool":
        return text.lower() in _TRUE_FALSE, _TRUE_FALSE.get(text.lower())
    if name == "Literal":
        choices = [ast.literal_eval(choice) for choice in inner]
        return next(((True, c) for c in choices if str(c) in (text, _unquoted(text))), (False, None))
    try:
        value = float(text) if name == "float" else ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # how literal_eval fails
        # Without a known type, a bare word is a text, as in -p dtype=float16.
        return name not in ("int", "float", "None", *_CONTAINERS, "List", "Tuple", "Dict"), text
    return _fits(value, node), value


def _unquoted(text: str) -> str:
    """Parse a text in quotes as Python does, so that it can contain commas or other quotes."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text
        return value if isinstance(value, str) else text
    return text


def _fits(value: Any, node: ast.expr) -> bool:
    """Whether a value has the annotated type; an unknown type accepts everything."""
    name, inner = _parts(node)
    if name == "Union":
        return any(_fits(value, option) for option in inner)
    if name == "Literal":
        return value in [ast.literal_eval(choice) for choice in inner]
    if name == "None":
        return value is None
    if name in ("int", "float"):
        return isinstance(value, int if name == "int" else (int, float)) and not isinstance(value, bool)
    if name in ("str", "bool"):
        return isinstance(value, str if name == "str" else bool)
    if name.lower() in _CONTAINERS:
        if not isinstance(value, _CONTAINERS[name.lower()]):
            return False
        if name.lower() == "dict":
            return True
        items = [n for n in inner if not (isinstance(n, ast.Constant) and n.value is ...)]
        if name.lower() == "tuple" and len(items) == len(inner) > 0:
            return len(items) == len(value) and all(map(_fits, value, items))
        return not items or all(_fits(v, items[0]) for v in value)
    return True
