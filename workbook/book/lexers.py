"""Colors for PTX, SASS and CUDA C++ that a cell printed."""

from __future__ import annotations

import re

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer, RegexLexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, Text
from pygments.util import ClassNotFound

from helpers.cuda.highlight import CudaCpp
from helpers.cuda.text import is_cuda

_PTX = re.compile(
    r"^\s*\.(?:version|target|visible|entry)\b"
    r"|^\s*(?:@!?%\w+ )?(?:ld|st|mov|mul|mad|setp|shl|add|and)\.\w+[.\w]* ",
    re.MULTILINE,
)
_SASS = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+\S"
    r"|^\s*[0-9a-f]{4,}\s+@?!?U?P?\d?\s*[A-Z][A-Z0-9]{2,}[.\w]*\s.*;\s*$",
    re.MULTILINE,
)


class SassLexer(RegexLexer):
    """Colors NVIDIA's machine code as nvdisasm prints it."""

    name = "SASS"
    aliases = ("sass",)
    filenames = ()
    tokens = {  # noqa: RUF012, pygments' own way
        "root": [
            (r"/\*[0-9a-f]+\*/", Comment),
            (r"//[^\n]*", Comment.Single),
            (r"(?:\.L_x_\d+|`\([^)]*\)):?", Name.Label),
            (r"^\s*\.[\w.]+", Keyword.Type),
            (r"\bU?R(?:\d+|Z)(?:\.\w+)*\b", Name.Variable),
            (r"[@!]+U?P(?:\d|T)\b|\bU?P(?:\d|T)\b", Name.Builtin),
            (r"\bSR_[\w.]+", Name.Constant),
            (r"\bc\s*\[|\bdesc\s*\[", Name.Constant),
            (r"\b0x[0-9a-f]+\b|-?\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b", Number),
            (r"\b[A-Z][A-Z0-9]*[0-9A-Z](?:\.[A-Z0-9_]+)*\b", Keyword),
            (r"[-+*|~&]", Operator),
            (r"[\[\](){},;:]", Punctuation),
            (r"\s+", Text),
            (r".", Text),
        ]
    }


def printed(text: str) -> str | None:
    """What a cell printed as colored HTML if it is PTX, SASS or CUDA C++; None if it is anything else."""
    language, lexer = _language(text)
    if lexer is None:
        return None
    body = highlight(text.rstrip("\n"), lexer, HtmlFormatter())
    return f'<div class="highlight-{language} notranslate">{body}</div>'


def _language(text: str) -> tuple[str, Lexer | None]:
    lines = [line for line in text.splitlines() if line.strip()]
    sass, ptx = len(_SASS.findall(text)), len(_PTX.findall(text))
    if lines and sass >= 0.6 * len(lines):
        return "sass", SassLexer()
    if lines and (ptx >= 0.6 * len(lines) or (ptx and re.search(r"^\.version ", text, re.MULTILINE))):
        try:
            return "ptx", get_lexer_by_name("ptx")
        except ClassNotFound:  # pygments before 2.16
            return "", None
    return ("cuda", CudaCpp()) if is_cuda(text) and "{" in text and len(lines) > 2 else ("", None)
