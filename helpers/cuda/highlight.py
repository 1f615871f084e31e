"""Syntax highlighting of CUDA C++: `show` for notebooks, `InPython` for Python code with CUDA in strings."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from IPython.lib.lexers import IPython3Lexer
from pygments.lexer import Lexer
from pygments.lexers import CppLexer, CudaLexer, PythonLexer, TextLexer, get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from pygments.util import ClassNotFound

from helpers.cuda.text import is_cuda

Tokens = Iterator[tuple[int, Any, str]]

_PTX = re.compile(
    r"^\s*\.(?:version|target|visible|entry|reg)\b|^\s*(?:ld|st)\.(?:global|param)\.", re.MULTILINE
)
_PYTHON = re.compile(r"^\s*(?:def \w+\(|import \w|from \w[\w.]* import|@\w)", re.MULTILINE)
_QUOTES = (String.Double, String.Single)

# The style of each kind of token: the name of JupyterLab's color, a color that is readable on white and on
# black for pages without that theme, such as Colab, and more CSS. The first kind that contains a token wins.
_TOKEN_STYLES = (
    (Comment.PreprocFile, "string", "#c9584c", ""),
    (Comment.Preproc, "keyword", "#8e63ce", ""),
    (Comment, "comment", "#5f8b8f", "font-style:italic"),
    (Keyword.Type, "builtin", "#2f8a3c", ""),
    (Keyword, "keyword", "#2f8a3c", "font-weight:bold"),
    (Name.Builtin, "builtin", "#2f8a3c", ""),
    (Name.Function, "def", "#3b7bd9", ""),
    (Name.Decorator, "meta", "#8e63ce", ""),
    (Number, "number", "#2f8a3c", ""),
    (String, "string", "#c9584c", ""),
    (Operator, "operator", "#a160c9", ""),
)

_FRAME = (
    "font-family:var(--jp-code-font-family, monospace);font-size:var(--jp-code-font-size, 13px);"
    "line-height:1.4;white-space:pre;overflow-x:auto"
)


@dataclass(frozen=True)
class Listing:
    """Source text: highlighted in a notebook, plain in a terminal."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        spans = "".join(_span(kind, piece) for kind, piece in _lexer(self.text).get_tokens(self.text))
        return f'<pre style="{_FRAME}">{spans.rstrip()}</pre>'


def show(text: str) -> Listing:
    """Displays source text with syntax highlighting: C++ and CUDA, PTX, or Python such as Triton's.

    In a checked cell use `print` instead, because highlighting shouldn't be part of what is compared.
    """
    return Listing(text.strip("\n"))


class CudaCpp(CudaLexer, CppLexer):
    """C++ plus the words of CUDA. The CUDA lexer of Pygments only knows those of C."""

    name = "CUDA C++"
    aliases = ()
    filenames = ()
    mimetypes = ()


class InPython(IPython3Lexer):
    """A notebook's Python, with CUDA C++ inside strings highlighted as such."""

    name = "Python with CUDA C++"
    aliases = ()
    filenames = ()

    def get_tokens_unprocessed(self, text: str, *more: Any) -> Tokens:
        """Yields position, kind and text of each token, as every lexer does."""
        prefix: list[tuple[int, Any, str]] = []
        literal: list[tuple[int, Any, str]] = []  # from its opening quote on
        for token in super().get_tokens_unprocessed(text, *more):
            _, kind, piece = token
            if literal:
                literal.append(token)
                if kind in _QUOTES and piece == literal[0][2]:
                    yield from prefix
                    yield from _read_literal(literal)
                    prefix, literal = [], []
            elif kind is String.Affix:
                prefix.append(token)
            elif kind in _QUOTES:
                literal.append(token)
            else:
                yield from prefix
                prefix = []
                yield token
        yield from prefix
        yield from literal  # never closed


def _read_literal(literal: list[tuple[int, Any, str]]) -> Tokens:
    """Yields the tokens of one string literal; CUDA inside it is highlighted as such."""
    body = "".join(piece for _, _, piece in literal[1:-1])
    if not is_cuda(body):
        yield from literal
        return
    yield literal[0]
    start = literal[1][0]
    for place, kind, piece in CudaCpp().get_tokens_unprocessed(body):
        yield start + place, kind, piece
    yield literal[-1]


def _lexer(text: str) -> Lexer:
    """Returns the lexer for a source."""
    if _PTX.search(text) and not is_cuda(text):
        try:
            return get_lexer_by_name("ptx")
        except ClassNotFound:  # pygments before 2.16
            return TextLexer()
    return PythonLexer() if _PYTHON.search(text) and not is_cuda(text) else CudaCpp()


def _span(kind: Any, piece: str) -> str:
    """Returns one token as HTML."""
    for parent, name, color, extra_style in _TOKEN_STYLES:
        if kind in parent:
            style = ";".join(
                filter(None, [f"color:var(--jp-mirror-editor-{name}-color, {color})", extra_style])
            )
            return f'<span style="{style}">{html.escape(piece, quote=False)}</span>'
    return html.escape(piece, quote=False)
