"""What a candidate's Python files mention: names by which code recognizes who runs it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from workbook.verify.problem import Candidate
from workbook.verify.verdict import DISHONEST, Finding

# Names that no kernel needs: of this verifier, of the profiler's state, of the modes in which PyTorch records
# operators, and of the file to which GPU MODE's harness writes its verdict.
_TELLTALES = (
    "workbook", "_profiler_enabled", "_is_profiler_enabled", "_len_torch_dispatch_stack",
    "_get_current_dispatch_mode", "_get_dispatch_stack_at", "_len_torch_function_stack", "POPCORN_FD",
)  # fmt: skip
# Modules of harnesses. A candidate that asks whether they are loaded wants to know who runs it.
_HARNESSES = ("__main__", "eval", "kernelbench", "flashinfer_bench", "reference", "src", "workbook")


def findings(candidate: Candidate) -> Iterator[Finding]:
    """At most one for each file."""
    for file, text in candidate.sources.items():
        try:
            nodes = list(ast.walk(ast.parse(text))) if file.endswith(".py") else []
        except SyntaxError:
            nodes = []
        found = next(((node, name) for node in nodes for name in _suspicious(node)), None)
        if found:
            node, name = found
            says = f"It recognizes who runs it, such as a verifier or a profiler: its code mentions {name}."
            yield Finding("peeks", DISHONEST, says, f"{file}, line {getattr(node, 'lineno', '?')}")


def _suspicious(node: ast.AST) -> Iterator[str]:
    """The names in one node that only code needs that recognizes its harness."""
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names if _root(one.name) in ("workbook", "__main__"))
    elif isinstance(node, ast.ImportFrom):
        yield from [node.module] if node.module and _root(node.module) in ("workbook", "__main__") else []
    elif isinstance(node, ast.Compare) and any(map(_is_sys_modules, node.comparators)):
        yield from _harness(node.left)
    elif isinstance(node, ast.Subscript) and _is_sys_modules(node.value):
        yield from _harness(node.slice)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if _is_sys_modules(node.func.value) and node.args:
            yield from _harness(node.args[0])
    else:
        name = getattr(node, "attr", None) or getattr(node, "id", None) or getattr(node, "value", None)
        if isinstance(name, str) and (name in _TELLTALES or name.startswith("workbook.verify")):
            yield name


def _is_sys_modules(node: ast.AST) -> bool:
    return ast.unparse(node) in ("sys.modules", "modules")


def _harness(node: ast.AST) -> Iterator[str]:
    """The name of a harness's module, if the node is one."""
    name = node.value if isinstance(node, ast.Constant) else None
    if isinstance(name, str) and _root(name) in _HARNESSES:
        yield name


def _root(name: str) -> str:
    return name.partition(".")[0]
