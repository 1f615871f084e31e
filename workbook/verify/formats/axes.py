"""The axes of a FlashInfer definition: constants, variables and expressions, and the sizes they admit."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workbook.usage import UsageError
from workbook.verify.formats.files import field_of

Sizes = dict[str, int]

_SEARCHED = 256  # sizes that are tried before the nearest one that the constraints admit is given up
_NO_BUILTINS: dict[str, Any] = {"__builtins__": {}}


@dataclass(frozen=True)
class Axes:
    """The axes of a definition.

    Attributes:
        constants: axis -> size.
        variables: the axes whose sizes a workload chooses.
        expressions: axis -> an expression of other axes.
        constraints: expressions of axes that must be true.
        unknown: constraints that also name something else, such as an input's contents.
    """

    constants: Mapping[str, int]
    variables: tuple[str, ...]
    expressions: Mapping[str, str]
    constraints: tuple[str, ...]
    unknown: tuple[str, ...]

    def resolved(self, sizes: Mapping[str, Any], where: str) -> Sizes:
        """The sizes of all axes.

        Args:
            sizes: the variables' sizes.
            where: what a message calls the workload.

        Raises:
            UsageError: a variable has no size, or an expression can't be evaluated.
        """
        for name in self.variables:
            size = sizes.get(name)
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                given = f"is {size!r}" if name in sizes else "is missing"
                raise UsageError(f'The size of axis "{name}" {given} in {where}; give it as an integer.')
        known: Sizes = {**self.constants, **{name: sizes[name] for name in self.variables}}
        waiting = dict(self.expressions)
        while waiting:
            ready = [name for name, text in waiting.items() if _names(text) <= known.keys()]
            if not ready:
                raise UsageError(
                    f'Axis "{next(iter(waiting))}" of the definition is an expression of unknown axes: '
                    f"{next(iter(waiting.values()))}."
                )
            for name in ready:
                known[name] = _size(name, waiting.pop(name), known)
        return known

    def admits(self, sizes: Sizes) -> bool:
        """Whether sizes of all variables satisfy the constraints, and expressions are whole numbers."""
        try:
            known = self.resolved(sizes, "the definition")
            return min(known.values(), default=1) > 0 and all(
                eval(text, _NO_BUILTINS, dict(known)) for text in self.constraints
            )
        except (UsageError, ArithmeticError, TypeError):
            return False

    def with_size(self, sizes: Sizes, name: str, size: int) -> Sizes | None:
        """The sizes with another one of a variable, or None if the constraints don't admit it.

        Constraints such as "a == 4 * b" change other variables too.
        """
        changed = {**sizes, name: size}
        for text in self.constraints:
            for target, value in _equalities(text):
                if target in self.variables and target != name and target not in _names(value):
                    try:
                        known = self.resolved(changed, "the definition")
                        changed[target] = int(eval(value, _NO_BUILTINS, dict(known)))
                    except (UsageError, ArithmeticError, TypeError):
                        return None
        return changed if self.admits(changed) else None

    def around(self, sizes: Sizes) -> Iterator[tuple[str, Sizes]]:
        """Other sizes that the definition admits: per variable the smallest one, and the next ones.

        Yields:
            The name of the variable, and the sizes of all variables.
        """
        seen = [sizes]
        for name in self.variables:
            if any(name in _names(text) for text in self.unknown):
                continue
            old = sizes[name]
            smaller, larger = range(old - 1, max(0, old - _SEARCHED), -1), range(old + 1, old + _SEARCHED)
            for tried in (range(1, min(old, _SEARCHED)), smaller, larger):
                found = next((one for size in tried if (one := self.with_size(sizes, name, size))), None)
                if found is not None and found not in seen:
                    seen.append(found)
                    yield name, found


def axes_of(definition: Mapping[str, Any], where: str) -> Axes:
    """The axes of a definition.

    Raises:
        UsageError: an axis or a constraint is malformed.
    """
    constants: Sizes = {}
    variables, expressions = [], {}
    for name, axis in field_of(definition, "axes", dict, where).items():
        kind = axis.get("type") if isinstance(axis, dict) else None
        if kind == "const" and isinstance(axis.get("value"), int):
            constants[name] = axis["value"]
        elif kind == "var":
            variables.append(name)
        elif kind == "expr" and isinstance(axis.get("expression"), str):
            _parsed(axis["expression"], where)
            expressions[name] = axis["expression"]
        else:
            raise UsageError(
                f'Axis "{name}" of {where} is {axis!r}; it must have the type "const" with a value, "var", '
                'or "expr" with an expression.'
            )
    constraints = tuple(
        field_of({"constraints": definition.get("constraints") or []}, "constraints", list, where)
    )
    for text in constraints:
        _parsed(text, where)
    known = {*constants, *variables, *expressions}
    unknown = tuple(text for text in constraints if not _names(text) <= known)
    checked = tuple(text for text in constraints if text not in unknown)
    return Axes(constants, tuple(variables), expressions, checked, unknown)


def _parsed(text: Any, where: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, TypeError, ValueError):
        raise UsageError(f"{text!r} in {where} isn't an expression of axes.") from None


def _names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}


def _equalities(text: str) -> Iterator[tuple[str, str]]:
    """The (name, expression) of a constraint "name == expression" or "expression == name"."""
    node = ast.parse(text, mode="eval").body
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        left, right = node.left, node.comparators[0]
        for one, other in ((left, right), (right, left)):
            if isinstance(one, ast.Name):
                yield one.id, ast.unparse(other)


def _size(name: str, text: str, known: Sizes) -> int:
    try:
        value = eval(text, _NO_BUILTINS, dict(known))
    except (ArithmeticError, TypeError) as error:
        raise UsageError(f'Axis "{name}" of the definition, {text}, fails: {error}.') from None
    if value != int(value):
        raise UsageError(f'Axis "{name}" of the definition, {text}, is {value}, which isn\'t an integer.')
    return int(value)
