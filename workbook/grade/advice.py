"""What a teacher may want to look at: code that seems to reach for the grader, and code that learners have in
common.

It is advice and no verdict, and changes no mark. Both are easy to evade, and both may name somebody who did
nothing wrong.
"""

from __future__ import annotations

import ast
import io
import itertools
import keyword
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from helpers.aliases import MODULES
from helpers.exercises import ADAPTERS
from workbook.grade.marks import Graded

_NAMES = {
    *("_getframe", "_current_frames", "currentframe", "f_back", "f_locals", "f_globals", "tb_frame"),
    *("gi_frame", "settrace", "setprofile", "get_objects", "get_referrers", "get_referents", "__code__"),
    *("__closure__", "__globals__", "__subclasses__", "__builtins__"),
    # What computes where `torch_work` does not see it.
    *("_C", "_python_dispatch", "TorchDispatchMode", "__torch_dispatch__", "redispatch", "lift_fresh"),
    *("_disable_current_modes", "_pop_mode_temporarily", "set_stance", "cpp_extension", "load_inline"),
    *("from_dlpack", "to_dlpack", "frombuffer", "untyped_storage", "memoryview"),
}
_CUDA_LABS = {"cpp_extension", "load_inline", "untyped_storage"}  # where there is no Triton kernel
_OUT_OF_TORCH = {"numpy", "tolist", "__array__", "asarray", "from_numpy"}  # in the functions of a Triton lab
_MODULES = re.compile(
    r"helpers\.(exercises|lab\.)|workbook\b|(ctypes|cffi|gc|inspect|subprocess)$|_?thread|multiprocessing\b"
    r"|concurrent\b|numba\b|torch\._C\b|torch\.utils\._python_dispatch"
)
# What the labs' own cells import, or imported before a module was renamed.
_OF_LABS = {
    "helpers.exercises.recorded_data",
    *(f"helpers.exercises.{lab}.{module}" for lab, modules in ADAPTERS.items() for module in modules),
    *MODULES,
}
_PLACES = re.compile(r"/proc/|helpers[./]exercises|workbook[./]grade|labs/solutions")
_MOST, _LONGEST = 30, 200
_ALIKE, _FEWEST_LINES = 0.8, 6  # a pair's lines that match; a learner's own lines below which nothing is said
_LONGEST_CODE, _MOST_LEARNERS = 40_000, 1_000
_COMMON = 0.5  # what more of the class than this has is no sign of anything


def reaching(cells: Iterable[tuple[str, str]]) -> list[str]:
    """What in a notebook's cells looks like reaching for the grader.

    Args:
        cells: The name and source of each.

    Returns:
        A clause for each thing found, such as "fill: names sys._getframe (line 3)".
    """
    found: dict[str, None] = {}
    cells = list(cells)
    has_kernels = any("triton.jit" in source for _, source in cells)
    for name, source in cells:
        plain = "\n".join("pass" if line.startswith(("%", "!")) else line for line in source.splitlines())
        try:
            tree = ast.parse(plain)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        imported = _imported(tree)
        for node in ast.walk(tree):
            for what in (*_of(node, imported, has_kernels), *(_out_of_torch(node) if has_kernels else ())):
                found[f"{name}: {what} (line {getattr(node, 'lineno', 0)})"[:_LONGEST]] = None
    return list(found)[:_MOST]


def _imported(tree: ast.AST) -> set[str]:
    """The names that stand for modules."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    return {(alias.asname or alias.name).partition(".")[0] for node in nodes for alias in node.names}


def _out_of_torch(node: ast.AST) -> list[str]:
    """What a function, other than a cell's top level, takes values out of torch with."""
    if not isinstance(node, ast.FunctionDef):
        return []
    inside = [one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)]
    return [f"names {name} in {node.name}" for name in inside if name in _OUT_OF_TORCH]


def _of(node: ast.AST, imported: set[str], has_kernels: bool) -> list[str]:
    names = _NAMES if has_kernels else _NAMES - _CUDA_LABS
    if isinstance(node, ast.Attribute) and node.attr in names:
        return [f"names {node.attr}"]
    if isinstance(node, ast.Name) and node.id in names:
        return [f"names {node.id}"]
    if isinstance(node, ast.ImportFrom) and (other := sorted({a.name for a in node.names} & names)):
        return [f"imports {', '.join(other)} from {node.module}"]
    if isinstance(node, ast.Import):
        return [f"imports {alias.name}" for alias in node.names if _MODULES.match(alias.name)]
    if isinstance(node, ast.ImportFrom) and _MODULES.match(node.module or ""):
        names = [alias.name for alias in node.names if f"{node.module}.{alias.name}" not in _OF_LABS]
        return [f"imports {', '.join(names)} from {node.module}"] if names else []
    if isinstance(node, ast.ImportFrom) and node.module == "helpers":
        return [f"imports helpers.{a.name}" for a in node.names if a.name == "exercises"]
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (seen := _PLACES.search(node.value))
    ):
        return [f"has the text {seen[0]!r}"]
    if isinstance(node, ast.Assign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [
            f"sets {ast.unparse(t)}" for t in targets if isinstance(t, ast.Attribute) and _root(t) in imported
        ]
    return []


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


# ------------------------------------------------------------------------------------------------ alike


@dataclass(frozen=True)
class Alike:
    """Learners whose code of a lab is alike.

    Attributes:
        lab: The lab.
        learners: Two; or more, whose code is the same.
        share: Which part of their own lines both have, 0 to 1.
        n_lines: How many lines that is.
    """

    lab: str
    learners: tuple[str, ...]
    share: float
    n_lines: int


@dataclass(frozen=True)
class Compared:
    """What a comparison of a class's code found.

    Attributes:
        groups: Groups with the same code, and pairs that are nearly alike, the most alike first.
        cut: Learners of whose code only the first 40,000 characters were compared.
        left_out: Learners whose code was not compared, because a lab has more than 1,000.
    """

    groups: tuple[Alike, ...]
    cut: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def alike(graded: Sequence[Graded], given: Iterable[str] = ()) -> Compared:
    """Compare the code of a class.

    Lines are compared without comments, spaces and the names and values that a learner chose, and in any
    order. Lines that the starters have, and lines that more than half of the class have, do not count: an
    exercise has few right answers. Of each notebook, 40,000 characters are compared, and of each lab 1,000
    learners, so that nobody delays the report.

    Args:
        graded: The class.
        given: The starters' code.
    """
    starters = {line for text in given for line in lines(text)}
    labs: dict[str, dict[str, list[str]]] = defaultdict(dict)
    cut: dict[str, None] = {}
    missing: dict[str, None] = {}
    for one in graded:
        own = labs[one.lab]
        if one.learner not in own and len(own) == _MOST_LEARNERS:
            missing[one.learner] = None
            continue
        if sum(len(mark.code) for mark in one.marks) > _LONGEST_CODE:
            cut[one.learner] = None
        found = [line for line in _lines_of(one) if line not in starters]
        own[one.learner] = max(own.get(one.learner, []), found, key=len)
    groups = [found for lab in sorted(labs) for found in _alike(lab, labs[lab])]
    return Compared(tuple(groups), tuple(cut), tuple(missing))


def _lines_of(one: Graded) -> list[str]:
    found, left = [], _LONGEST_CODE
    for mark in one.marks:
        found += lines(mark.code[:left])
        left -= len(mark.code[:left])
    return found


def _alike(lab: str, own: dict[str, list[str]]) -> list[Alike]:
    same: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for learner, code in own.items():
        if len(code) >= _FEWEST_LINES:
            same[tuple(code)].append(learner)
    found = [Alike(lab, tuple(of), 1.0, len(code)) for code, of in same.items() if len(of) > 1]
    n_with = Counter(line for code in same for line in set(code))
    most = max(_COMMON * len(same), 2)
    rare = {of[0]: [line for line in code if n_with[line] <= most] for code, of in same.items()}
    rare = {learner: code for learner, code in rare.items() if len(code) >= _FEWEST_LINES}
    bits: dict[tuple[str, int], int] = {}  # a line's first time, second time, …
    have = {}
    for learner, code in rare.items():
        seen: Counter[str] = Counter()
        have[learner] = 0
        for line in code:
            seen[line] += 1
            if n_with[line] > 1:
                have[learner] |= 1 << bits.setdefault((line, seen[line]), len(bits))
    for first, second in itertools.combinations(rare, 2):
        n_lines = (have[first] & have[second]).bit_count()
        share = 2 * n_lines / (len(rare[first]) + len(rare[second]))
        if share >= _ALIKE:
            found.append(Alike(lab, (first, second), share, n_lines))
    return sorted(found, key=lambda one: (-one.share, -one.n_lines, one.learners))


def lines(source: str) -> list[str]:
    """The lines of a text without comments, spaces, docstrings and the names and values that its author
    chose.
    """
    found: list[list[str]] = [[]]
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in (tokenize.NEWLINE, tokenize.NL):
                found.append([])
            elif token.type == tokenize.NAME:
                found[-1].append(token.string if keyword.iskeyword(token.string) else "n")
            elif token.type in (tokenize.NUMBER, tokenize.STRING):
                found[-1].append("v")
            elif token.type == tokenize.OP:
                found[-1].append(token.string)
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return [re.sub(r"\s+", "", line) for line in source.splitlines() if line.strip()]
    # A line that is a name, a text or a bracket says nothing.
    return [" ".join(line) for line in found if len(line) > 3]
