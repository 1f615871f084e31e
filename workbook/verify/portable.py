"""Make sources that name the GPU run on a machine without one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

_DEVICE = re.compile(r"cuda(:\d+)?")
_F_STRING = re.compile(rb"([A-Za-z]+['\"]{1,3})cuda(?=[:'\"])")


class _Edit(NamedTuple):
    """Replace the bytes from `start` to `end` of a source by `text`."""

    start: int
    end: int
    text: bytes


def on_cpu(source: str, filename: str) -> str:
    """Python source in which the device is the CPU.

    It replaces the strings "cuda" and "cuda:N" by "cpu", the attribute `is_cuda` by `is_cpu`, and calls of
    the method `cuda` by `cpu()`. Every other character stays, and each statement keeps its line, so that
    tracebacks and `inspect.getsource` are right.

    Args:
        source: a module's text.
        filename: what an error calls it.

    Raises:
        SyntaxError: the source isn't Python.

    Example:
        >>> on_cpu('x = torch.ones(4, device="cuda").cuda(0)', "example.py")
        'x = torch.ones(4, device="cpu").cpu()'
    """
    tree = ast.parse(source, filename)
    text = source.encode()
    edits = sorted(set(_edits(tree, text)), key=lambda edit: (edit.start, -edit.end))
    pieces, done = [], 0
    for edit in edits:
        if edit.start < done:  # it is inside something that was replaced
            continue
        pieces += [text[done : edit.start], edit.text]
        done = edit.end
    return b"".join([*pieces, text[done:]]).decode()


def _edits(tree: ast.AST, text: bytes) -> Iterator[_Edit]:
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    in_f_strings = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant | ast.JoinedStr | ast.Call | ast.Attribute):
            continue
        start = lines[node.lineno - 1] + node.col_offset
        end = lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        segment = text[start:end]
        if isinstance(node, ast.Constant):
            is_device = isinstance(node.value, str) and _DEVICE.fullmatch(node.value)
            if is_device and id(node) not in in_f_strings and node.value.encode() in segment:
                yield _Edit(start, end, segment.replace(node.value.encode(), b"cpu"))
        elif isinstance(node, ast.JoinedStr):
            if found := _F_STRING.match(segment):
                yield _Edit(start, start + found.end(), found[1] + b"cpu")
        elif isinstance(node, ast.Attribute):
            if node.attr == "is_cuda":
                yield _Edit(end - len("is_cuda"), end, b"is_cpu")
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
            name_end = lines[(node.func.end_lineno or 0) - 1] + (node.func.end_col_offset or 0)
            breaks = b"\n" * text[name_end:end].count(b"\n")
            yield _Edit(name_end - len("cuda"), end, b"cpu(" + breaks + b")")
