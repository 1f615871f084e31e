"""The public corpus: frauds that a verifier must find, and honest kernels that it must accept.

Each file in tests/exploits and tests/honest begins with a docstring: what the kernel does, then fields. It
defines the same kernel for three harnesses: `ModelNew` (KernelBench), `custom_kernel(data)` with a tuple
(GPU MODE), and `run(...)` (FlashInfer-Trace, returning its outputs). `custom_kernel` and `run` get the
problem's inputs followed by the parameters of its model.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PROBLEMS = HERE / "exploits" / "problems"
ENTRY_POINTS = ("ModelNew", "custom_kernel", "run")
FIELDS = ("problem", "expects", "needs", "fools", "earns")
# The names of a verification's checks.
CHECKS = (
    "never-written", "wrong-result", "stale-result", "only-some-values", "only-some-shapes",
    "only-some-layouts", "changed-input", "aliased-output", "low-precision", "late-work", "other-stream",
    "threads", "processes", "lazy-result", "patched", "peeks", "skipped-work", "global-state", "library",
    "nondeterminism", "leak", "beyond-the-bound", "persisting-l2", "forged-answer", "raises",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One file of the corpus.

    Attributes:
        path: the file.
        problem: the problem that it claims to solve, a file in tests/exploits/problems.
        summary: what it does, in one sentence.
        expects: the checks that can find it; any one of them suffices. Empty for honest kernels.
        needs: "gpu" if it does what it describes only on a GPU, otherwise "".
        fools: "naive" if a check with one seed and one call accepts it, otherwise "".
        earns: what it earned in which published harness, with the source, or "not documented".
    """

    path: Path
    problem: str
    summary: str
    expects: tuple[str, ...] = ()
    needs: str = ""
    fools: str = ""
    earns: str = ""

    @property
    def name(self) -> str:
        """The file's name without its suffix."""
        return self.path.stem

    @property
    def problem_path(self) -> Path:
        """The problem's file, in KernelBench's format."""
        return PROBLEMS / f"{self.problem}.py"


def read(path: Path) -> Entry:
    """Parse the header of one file.

    Raises:
        ValueError: the file has no docstring, a field is unknown, or `problem` is missing.
    """
    header = ast.get_docstring(ast.parse(path.read_text(), str(path)))
    if not header:
        raise ValueError(f"{path} has no docstring with the corpus's fields.")
    summary, _, rest = header.partition("\n\n")
    fields: dict[str, str] = {}
    for line in re.split(r"\n(?!\s)", rest.strip()):
        name, colon, value = line.partition(":")
        if not colon or name not in FIELDS:
            raise ValueError(f"{path} has the unknown field {name!r}; the fields are {', '.join(FIELDS)}.")
        fields[name] = " ".join(value.split())
    if "problem" not in fields:
        raise ValueError(f"{path} doesn't say which problem it solves.")
    expects = tuple(one.strip() for one in fields.pop("expects", "").split(",") if one.strip())
    return Entry(path=path, summary=" ".join(summary.split()), expects=expects, **fields)


def _folder(name: str) -> list[Entry]:
    return [read(path) for path in sorted((HERE / name).glob("*.py"))]


def exploits() -> list[Entry]:
    """Frauds: a verification fails, and one of the expected checks has a finding."""
    return _folder("exploits")


def limits() -> list[Entry]:
    """Kernels that fail only for shapes, layouts or values that the benchmark doesn't draw: a verification
    reports them as limits."""
    return _folder("exploits/limits")


def accepted() -> list[Entry]:
    """Shortcuts and harmless side effects that a verification names and accepts."""
    return _folder("exploits/accepted")


def honest() -> list[Entry]:
    """Correct kernels that a verification must accept, some of which look suspicious."""
    return _folder("honest")


def sample() -> set[Path]:
    """A quarter of the corpus: the first fraud of each check that finds it, the first limit and the first
    shortcut of each kind, and the first honest kernel of each problem."""
    first: dict[tuple[str, ...], Path] = {}
    for entry in (*exploits(), *limits(), *accepted(), *honest()):
        first.setdefault((entry.path.parent.name, *(entry.expects[:1] or (entry.problem,))), entry.path)
    return set(first.values())


def guide_table() -> str:
    """The table in docs/guide/frauds.md."""
    rows = [
        f"| `{entry.name}` | {entry.summary} | {entry.earns or 'not documented'} | "
        f"{', '.join(f'`{one}`' for one in entry.expects)} |"
        for entry in (*exploits(), *limits(), *accepted())
    ]
    head = ["| kernel | what it does | what it earned, and where | found by |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *rows, ""])


if __name__ == "__main__":
    page = HERE.parent / "docs" / "guide" / "frauds.md"
    page.write_text(page.read_text().partition("| kernel |")[0] + guide_table())
