"""Splits C++ source into tokens and answers a translator's questions about them.

There is no grammar, only what the surrounding tokens reveal: whether a `*` follows a type, where an operand
ends, which brackets belong together. `types` holds every name that the source uses as a type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""(?P<skip>//(?:\\\n|[^\n])*|/\*.*?\*/|\\\n|\s+)
    |(?P<raw>R"(?P<d>[^()\s]*)\(.*?\)(?P=d)")
    |(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<include>\#[ \t]*include[ \t]*(?:<[^>\n]*>|"[^"\n]*"))
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
    |(?P<mark><<<|<<=|>>=|->|\+\+|--|&&|\|\||::|[-+*/%&|^=!<>]=|<<|.)""",
    re.DOTALL | re.VERBOSE,
)
_BUILTIN_TYPES = set(
    [
        "void",
        "bool",
        "char",
        "short",
        "int",
        "long",
        "float",
        "double",
        "signed",
        "unsigned",
        "auto",
        "size_t",
        "ptrdiff_t",
        "uintptr_t",
        "intptr_t",
        "int8_t",
        "int16_t",
        "int32_t",
        "int64_t",
        "uint8_t",
        "uint16_t",
        "uint32_t",
        "uint64_t",
        "uint",
        "uchar",
        "ushort",
        "ulong",
        "half",
        "half2",
        "__half",
        "__half2",
        "nv_bfloat16",
        "__nv_bfloat16",
        "__nv_bfloat162",
        "Half",
        "BFloat16",
        "scalar_t",
        "dim3",
        "uint3",
    ]
) | {
    f"{base}{n}"
    for base in [
        "char",
        "uchar",
        "short",
        "ushort",
        "int",
        "uint",
        "long",
        "ulong",
        "longlong",
        "ulonglong",
        "float",
        "double",
    ]
    for n in range(1, 5)
}
QUALIFIERS = {"const", "volatile"}
_NO_OPERAND = {"return", "case", "else", "do", "throw", "new", "delete", "goto", "sizeof", "co_return"}


@dataclass
class Token:
    kind: str
    text: str
    start: int
    end: int
    partner: int = -1  # of a bracket: the index of the other one


@dataclass
class CudaText:
    """A source, its tokens, and the edits to be made."""

    source: str
    tokens: list[Token] = field(default_factory=list)
    edits: list[tuple[int, int, int, str]] = field(default_factory=list)  # start, end, order, text
    types: set[str] = field(default_factory=lambda: set(_BUILTIN_TYPES))

    def __post_init__(self) -> None:
        self.tokenize()
        self.collect_types()

    def line(self, i: int) -> int:
        return self.source.count("\n", 0, self.tokens[i].start) + 1

    def text(self, i: int, j: int) -> str:
        """Returns the source from token i to token j, inclusive."""
        return self.source[self.tokens[i].start : self.tokens[j].end]

    def is_at(self, i: int, *texts: str) -> bool:
        return 0 <= i < len(self.tokens) and self.tokens[i].kind != "string" and self.tokens[i].text in texts

    def is_word(self, i: int) -> bool:
        return 0 <= i < len(self.tokens) and self.tokens[i].kind == "word"

    def replace(self, i: int, j: int, text: str) -> None:
        """Replaces tokens i to j. Newlines between them stay, so that line numbers don't change."""
        start, end = self.tokens[i].start, self.tokens[j].end
        self.edits.append((start, end, 0, text + "\n" * self.source.count("\n", start, end)))

    def insert_before(self, i: int, text: str) -> None:
        self.edits.append((self.tokens[i].start, self.tokens[i].start, len(self.edits), text))

    def insert_after(self, i: int, text: str) -> None:
        self.edits.append((self.tokens[i].end, self.tokens[i].end, -len(self.edits), text))

    def tokenize(self) -> None:
        at, stack = 0, []
        for match in _TOKEN.finditer(self.source):
            assert match.start() == at
            at = match.end()
            kind = match.lastgroup if match.lastgroup != "d" else "raw"
            if kind == "skip":
                continue
            index = len(self.tokens)
            kind = "string" if kind == "raw" else kind
            self.tokens.append(Token(kind, match.group(), match.start(), match.end()))
            text = match.group()
            if kind == "mark" and text in "([{":
                stack.append(index)
            elif kind == "mark" and text in ")]}" and stack:
                opening = stack.pop()
                self.tokens[opening].partner, self.tokens[index].partner = index, opening

    def collect_types(self) -> None:
        for i, token in enumerate(self.tokens):
            name = i + 1
            while self.is_at(name, "alignas", "__align__") and self.is_at(name + 1, "("):
                name = self.tokens[name + 1].partner + 1
            if (token.text in ("typename", "class", "struct", "enum", "union") and self.is_word(name)) or (
                token.text == "using" and self.is_word(name) and self.is_at(name + 1, "=")
            ):
                self.types.add(self.tokens[name].text)
            elif token.text == "typedef":
                end = i
                while end < len(self.tokens) and not self.is_at(end, ";"):
                    end += 1
                self.types.add(self.tokens[end - 1].text)

    def type_before(self, i: int) -> int | None:
        """Returns the first token of the type that ends before token i, or None."""
        j = i - 1
        while self.is_at(j, *QUALIFIERS):
            j -= 1
        if self.is_at(j, ">"):
            j = self.before_arguments(j)
        if not (self.is_word(j) and self.tokens[j].text in self.types) or self.is_at(j - 1, ".", "->"):
            return None
        while (
            self.is_word(j) and (self.tokens[j].text in self.types or self.is_at(j, *QUALIFIERS))
        ) or self.is_at(j, "::"):
            j -= 1
            if self.is_at(j + 1, "::") and self.is_word(j):
                j -= 1
        return j + 1

    def before_arguments(self, i: int) -> int:
        """Returns the token before the template arguments that end with token i."""
        depth = 0
        while i >= 0:
            depth += self.is_at(i, ">") - self.is_at(i, "<")
            if depth == 0:
                return i - 1
            i = self.tokens[i].partner if self.is_at(i, ")", "]", "}") else i
            i -= 1
        return i

    def operand_ends(self, i: int) -> bool:
        """Whether token i can end an operand, so that a binary operator or a subscript follows."""
        if not 0 <= i < len(self.tokens):
            return False
        token = self.tokens[i]
        if token.kind == "word":
            return token.text not in _NO_OPERAND
        return token.kind in ("number", "string") or token.text in (")", "]")

    def is_cast(self, i: int) -> bool:
        """Whether the parenthesis closed by token i contains a type."""
        opening = self.tokens[i].partner
        if opening < 0 or self.operand_ends(opening - 1):
            return False
        inside = self.tokens[opening + 1 : i]
        return bool(inside) and all(
            t.text in self.types or t.text in QUALIFIERS or t.text in ("*", "&", "::") for t in inside
        )

    def operand_after(self, i: int) -> int:
        """Returns the last token of the unary expression that begins at token i."""
        while self.is_at(i, "&", "*", "-", "+", "!", "~", "++", "--"):
            i += 1
        if self.is_at(i, "("):
            closing = self.tokens[i].partner
            if self.is_cast(closing):
                return self.operand_after(closing + 1)
            i = closing
        elif self.is_word(i):
            while self.is_at(i + 1, "::"):
                i += 2
            if self.tokens[i].text.endswith("_cast") and self.is_at(i + 1, "<"):
                while not (self.is_at(i, ">") and self.is_at(i + 1, "(")):
                    i += 1
        return self.chain_after(i)

    def chain_after(self, i: int) -> int:
        """Returns the last token of the suffixes (calls, subscripts, members, ++) after token i."""
        while True:
            if self.is_at(i + 1, "(", "["):
                i = self.tokens[i + 1].partner
            elif self.is_at(i + 1, ".", "->"):
                i += 2
            elif self.is_at(i + 1, "++", "--"):
                i += 1
            else:
                return i

    def next_declarator(self, i: int) -> bool:
        """Whether token i is another name in a declaration, such as b in `float a[4] = {0}, b[4];`."""
        if not self.is_at(i - 1, ","):
            return False
        j = i - 2
        while j >= 0 and not self.is_at(j, ";", "{", "(", "["):
            if self.is_at(j, "}") and not self.is_at(self.tokens[j].partner - 1, "="):
                break
            j = self.tokens[j].partner if self.is_at(j, ")", "]", "}") else j
            j -= 1
        if self.is_at(j, "(", "["):
            return False
        j += 1
        while self.is_at(j, "const", "volatile", "static", "constexpr", "unsigned"):
            j += 1
        return self.is_word(j) and self.tokens[j].text in self.types and self.is_word(j + 1)

    def apply_edits(self) -> str:
        """Returns the source with all edits applied."""
        out, at = [], 0
        for start, end, _, text in sorted(self.edits, key=lambda e: (e[0], e[1] > e[0], e[2])):
            out += [self.source[at:start], text]
            at = max(at, end)
        return "".join(out) + self.source[at:]
