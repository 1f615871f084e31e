"""Check that an answer in CUDA text contains kernels and nothing else.

The grader builds the text for the host and runs it in a process that judges nothing, but it trusts what that
process reports about memory accesses. So the text may compute but not call the system: it may only call what
it defines, CUDA's own functions and mathematics, and it may not include anything. This module checks that,
token by token, before anything is built.
"""

from __future__ import annotations

import itertools
import re

_TOKEN = re.compile(
    r"""
    (?P<line>^[ \t]*\#[^\n]*)
    |(?P<space>\n|[^\S\n]+|//[^\n]*|/\*.*?\*/)
    |(?P<text>"(?:\\.|[^"\\\n])*")
    |(?P<char>'(?:\\.|[^'\\\n])+')
    |(?P<number>\.?\d(?:[\w.']|(?<=[eEpP])[+-])*)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<sign>\#\#|::|\[\[|->|.)
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEYWORDS = _words("""
    if for while switch return sizeof alignof case else do and or not const constexpr volatile
""")
_CASTS = frozenset(["static_cast", "reinterpret_cast", "const_cast"])
_TYPES = _words("""
    void bool char short int long unsigned signed float double size_t ptrdiff_t auto dim3 uint3
    struct union half int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uint uchar
    ushort ulong
""") | {
    f"{kind}{n}"
    for kind in _words("char uchar short ushort int uint long ulong longlong float double")
    for n in (1, 2, 3, 4)
}
_MATHS = _words("""
    abs fabs fmin fmax min max exp exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt cbrt rcbrt pow
    fma fmod floor ceil trunc round rint nearbyint sin cos tan asin acos atan atan2 sinh cosh tanh
    asinh acosh atanh erf erfc hypot copysign isnan isinf isfinite signbit lround llround lrint
    llrint ldexp frexp remainder nextafter sincos fdim saturate fdividef normcdf tgamma lgamma
""")
_CALLED = (
    _MATHS | {f"{name}f" for name in _MATHS} | {f"make_{kind}" for kind in _TYPES} | {"printf", "assert"}
)
_OF_CUDA = re.compile(
    r"__(global|device|shared|constant|restrict|forceinline|noinline|inline|launch_bounds|align|host|grid_constant|syncthreads\w*|syncwarp"
    r"|threadfence\w*|shfl\w*|ballot_sync|any_sync|all_sync|activemask|match\w*|reduce\w*|ld\w+|st\w+|f\w+|d\w+|u\w+|s\w+|i\w+|h\w+|ll\w+"
    r"|popc\w*|clz\w*|brev\w*|mul\w*|byte_perm|nanosleep|expf|exp10f|logf|log2f|log10f|powf|sinf|cosf|tanf|vadd\w*)(__)?|atomic[A-Z]\w*"
)
_FORBIDDEN = _words("""
    asm namespace using extern operator new delete throw try catch goto typeid decltype friend
    virtual std
""")
_DEFINE = re.compile(r"#\s*define\s+(\w+)(\([\w\s,]*\))?(.*)", re.DOTALL)
_HARMLESS_LINE = re.compile(
    r"#\s*(pragma\s+(unroll|once)\b.*|error\b.*|undef\s+\w+\s*|if\b.*|ifdef\b.*|ifndef\b.*|else\b.*|endif\b.*|elif\b.*|include\s*<(cuda_runtime|cuda_fp16|cuda_bf16|math_constants|vector_types|device_launch_parameters|cmath|math|stdint|cstdint)(\.h)?>\s*)?$"
)


def problem(text: str) -> str:
    """What a text contains besides kernels, as a sentence; "" if nothing."""
    spliced = re.sub(r"\\[ \t]*\r?\n", " ", text)
    if "??/" in spliced or "%:" in spliced:
        return "The text has trigraphs or digraphs; write the characters themselves."
    tokens: list[tuple[str, str]] = []
    macros: dict[str, bool] = {}  # name -> whether it takes arguments
    for found in _TOKEN.finditer(spliced):
        kind, token = found.lastgroup, found[0]
        if kind == "line" or (kind == "sign" and token == "#"):
            line = re.sub(r"//.*|/\*.*?\*/", "", token).strip()
            define = _DEFINE.fullmatch(line)
            if define:
                macros[define[1]] = define[2] is not None
                body = [(m.lastgroup, m[0]) for m in _TOKEN.finditer(define[3]) if m.lastgroup != "space"]
                if wrong := _macro_problem(define[1], define[2] is not None, body):
                    return wrong
                tokens += [*body, ("sign", ";")]
            elif not _HARMLESS_LINE.fullmatch(line):
                return f"The text has the line {line[:60]!r}, but the check only accepts kernels."
        elif kind != "space":
            tokens.append((kind, token))
    return _tokens_problem(tokens, macros)


def _macro_problem(name: str, takes_arguments: bool, body: list[tuple[str, str]]) -> str:
    depth = 0
    for _, token in body:
        depth += token in ("(", "{", "[")
        depth -= token in (")", "}", "]")
        if depth < 0:
            break
    if depth:
        return f"The macro {name} opens a parenthesis that it doesn't close."
    words = [token for kind, token in body if kind == "word"]
    if not takes_arguments and words and body[0][1] == "(":
        return (
            f"The macro {name} begins with a parenthesis. Use a constant instead: constexpr int {name} = …;"
        )
    return ""


def _tokens_problem(tokens: list[tuple[str, str]], macros: dict[str, bool]) -> str:
    defined = _defined(tokens) | {name for name, takes in macros.items() if takes}
    types = _TYPES | {
        b
        for (_, a), (kind, b) in itertools.pairwise(tokens)
        if a in ("struct", "union", "typename", "class", "enum") and kind == "word"
    }
    for i, (kind, token) in enumerate(tokens):
        before = tokens[i - 1] if i else ("", "")
        after = tokens[i + 1][1] if i + 1 < len(tokens) else ""
        if kind == "text":
            if "%n" in token.replace("%%", "") or not _in_printf(tokens, i):
                return f"The text has the string {token[:40]}; only printf takes one."
        elif token in ("##", "::", "[[", "\\", "#", "`", "@"):
            return f"The text has {token!r}, which no kernel of this lab needs."
        elif kind == "word":
            if token in _FORBIDDEN or token.lower().startswith("wb_"):
                return f"The text has {token!r}, but the check only accepts kernels."
            if token.startswith("__") and not _OF_CUDA.fullmatch(token):
                return f"The text uses {token}, which the check doesn't know."
            if after == "(" and not (
                token in defined
                or token in _KEYWORDS
                or token in _CALLED
                or token in types
                or _OF_CUDA.fullmatch(token)
            ):
                # a variable may begin with its value in parentheses: `float4 v(…)`
                if before[0] == "word" and before[1] in types - {"auto"}:
                    continue
                return f"The text calls {token}(…), which is defined neither in the text nor by CUDA."
            if token in defined and after != "(":
                return (
                    f"The text has {token!r} both as a function and as something else; give one another name."
                )
            if (
                token in macros
                and macros[token]
                and before[0] == "word"
                and before[1] not in _KEYWORDS | types
            ):
                return f"The text has {before[1]!r} directly before the macro {token}."
        elif token == "(" and before[1] in (")", "]") and not _is_cast(tokens, i - 1, types):
            return "The text calls the result of an expression. Call functions by their names."
    return ""


def _defined(tokens: list[tuple[str, str]]) -> set[str]:
    """The functions that the text itself defines: a name, parameters and a body, outside of every body."""
    found, depth, i = set(), 0, 0
    while i < len(tokens):
        token = tokens[i][1]
        depth += (token == "{") - (token == "}")
        if depth == 0 and tokens[i][0] == "word" and i + 1 < len(tokens) and tokens[i + 1][1] == "(":
            end = _partner(tokens, i + 1, 1)
            if end + 1 < len(tokens) and tokens[end + 1][1] == "{":
                found.add(token)
                i = end
        i += 1
    return found


def _partner(tokens: list[tuple[str, str]], i: int, step: int) -> int:
    """The index of the parenthesis that matches the one at i; outside the tokens if there is none."""
    depth = 0
    while 0 <= i < len(tokens):
        depth += (tokens[i][1] == "(") - (tokens[i][1] == ")")
        if depth == 0:
            return i
        i += step
    return i


def _is_cast(tokens: list[tuple[str, str]], closing: int, types: frozenset[str]) -> bool:
    """Whether the parentheses that end here contain a type, or belong to an if, a for, a loop's head or an
    attribute.
    """
    if tokens[closing][1] != ")":
        return False
    i = _partner(tokens, closing, -1)
    owner = tokens[i - 1][1] if i else ""
    if owner in ("if", "for", "while", "switch", "__launch_bounds__", "__align__", "alignas"):
        return True
    return (
        owner not in _CASTS
        and all(
            token in types or token in ("*", "&", "const", "volatile", "__restrict__")
            for _, token in tokens[i + 1 : closing]
        )
        and closing - i > 1
    )


def _in_printf(tokens: list[tuple[str, str]], i: int) -> bool:
    while i > 0 and tokens[i - 1][0] == "text":
        i -= 1
    return i > 1 and tokens[i - 1][1] == "(" and tokens[i - 2][1] in ("printf", "static_assert")
