"""Parse the source of a code cell, find its questions, and count the words in it that a learner reads."""

from __future__ import annotations

import ast
import io
import re
import tokenize

from helpers.cuda.text import is_cuda

_MAGIC = re.compile(r"^([ \t]*)[%!].*$", re.MULTILINE)
_PROGRAM = re.compile(r"^\s*(?:import \w|from \w+ import|def \w+\(|@\w)", re.MULTILINE)


def python(source: str) -> str:
    """A cell's source with `pass` instead of magics and shell commands."""
    return _MAGIC.sub(r"\1pass", source)


def tree(source: str) -> ast.Module:
    """A cell's syntax tree, which is empty if the cell isn't Python (for example with `%%bash`)."""
    try:
        return ast.parse(python(source))
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


def question_call(node: ast.AST) -> str:
    """The function of `predict` that a node calls, or ""."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    owner, name = node.func.value, node.func.attr
    is_predict = isinstance(owner, ast.Name) and owner.id == "predict"
    return name if is_predict and name in ("ask", "reveal", "review") else ""


def only_questions(source: str) -> bool:
    """Whether a cell only asks or reveals, so that nobody misses its code when it is folded.

    It may import `predict` and assign the question's text or choices.
    """
    body = tree(source).body
    calls = [node for node in body if isinstance(node, ast.Expr) and question_call(node.value)]
    rest = [node for node in body if node not in calls]
    asked = {question_call(call.value) for call in calls}
    return bool(calls) and asked <= {"ask", "reveal"} and all(map(_prepares_question, rest))


def _prepares_question(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "helpers" and [alias.name for alias in node.names] == ["predict"]
    value = node.value if isinstance(node, ast.Assign) else None
    texts = value.elts if isinstance(value, ast.List) else [value]
    return all(
        isinstance(one, ast.JoinedStr) or (isinstance(one, ast.Constant) and isinstance(one.value, str))
        for one in texts
    )


def words(text: str) -> int:
    """The number of words with a letter or a digit."""
    return sum(any(c.isalnum() for c in word) for word in text.split())


def markdown_words(source: str) -> int:
    """The number of words in a text cell, without HTML tags and the addresses of links."""
    return words(re.sub(r"<!--.*?-->|<[^>]+>|\]\([^)]*\)", " ", source, flags=re.DOTALL))


def comment_words(source: str) -> int:
    """The number of words in a cell's comments."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(python(source)).readline))
    except (tokenize.TokenError, SyntaxError):
        return 0
    return sum(words(token.string) for token in tokens if token.type == tokenize.COMMENT)


def string_words(source: str) -> int:
    """The number of words in a cell's strings, without strings that have no space and programs."""
    found, inside = [], set()
    for node in ast.walk(tree(source)):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "0" for p in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            found.append(node.value)
    return sum(
        words(text) for text in found if " " in text and not is_cuda(text) and not _PROGRAM.search(text)
    )
