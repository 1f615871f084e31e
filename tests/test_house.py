"""The packages as a whole: imports go downwards, private names stay private, docstrings name the modules."""

from __future__ import annotations

import ast
import graphlib
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ROOT

from helpers import records

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ("helpers", "workbook")
    for path in (ROOT / package).rglob("*.py")
    if path.relative_to(ROOT).parts[:2] != ("helpers", "records")
}
PACKAGES = sorted(
    name
    for name, path in MODULES.items()
    if path.name == "__init__.py" and name not in ("helpers", "workbook")
)


def imports(name: str) -> Iterator[tuple[str, str, str]]:
    """What a module imports from helpers, late imports too: (module, name in it or "", name here)."""
    tree = ast.parse(MODULES[name].read_text())
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in for_types:
            continue
        if (node.module or "").split(".")[0] not in ("helpers", "workbook"):
            continue
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            here = alias.asname or alias.name
            yield (inner, "", here) if inner in MODULES else (node.module, alias.name, here)


def test_there_is_no_cycle_of_imports():
    """Stricter than the contract: a package and its own modules count too."""
    graph = {name: {module for module, _, _ in imports(name) if module != name} for name in MODULES}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as circle:
        pytest.fail(" <- ".join(circle.args[1]))


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_module_uses_a_private_name_of_another(name):
    taken = [f"{module}.{what}" for module, what, _ in imports(name) if what.startswith("_")]
    modules = {here: module for module, what, here in imports(name) if not what}
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.value.id in modules and node.attr.startswith("_") and not node.attr.startswith("__"):
            taken.append(f"{modules[node.value.id]}.{node.attr}")
    assert not taken


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_docstring_names_its_modules(name):
    package = importlib.import_module(name)
    inside = {module.rsplit(".", 1)[1] for module in MODULES if module.rpartition(".")[0] == name}
    named = {name.rstrip("0123456789") for name in re.findall(r"`([\w.]+)`", package.__doc__ or "")}
    unnamed = [one for one in sorted(inside) if one.rstrip("0123456789") not in named]
    assert not unnamed, "modules that the docstring does not name"
    exported = getattr(package, "__all__", [])
    assert all(hasattr(package, one) for one in exported)
    shadowed = [
        one for one in exported if one in inside and not isinstance(getattr(package, one), type(package))
    ]
    assert not shadowed, "a module that the package hides behind a function of the same name"


def lint_imports(folder: Path) -> subprocess.CompletedProcess:
    command = [shutil.which("lint-imports", path=Path(sys.executable).parent), "--no-logo", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": "", "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


# A contract, a line of a file that breaks it, and what the report names.
BROKEN = (
    ("only from those below", "helpers/timing/gpu.py", "from helpers import lab",
     "helpers.timing.gpu -> helpers.lab"),
    ("helpers never imports workbook", "helpers/kernels/ops.py", "from workbook import usage",
     "helpers.kernels.ops -> workbook.usage"),
    ("import each other", "helpers/cuda/errors.py", "from helpers.cuda import extension", "in helpers.cuda"),
    ("know nothing of one another", "workbook/form/publish.py", "from workbook.batch import plan",
     "workbook.form.publish -> workbook.batch.plan"),
    ("only from those below", "helpers/strangers.py", "", "helpers.strangers"),
)  # fmt: skip


def test_broken_contracts_are_reported(tmp_path):
    """`make test` runs lint-imports on the packages; this is its proof, on a copy."""
    left_out = shutil.ignore_patterns("__pycache__", *records.sets())
    for package in ("helpers", "workbook"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=left_out)
    shutil.copyfile(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    for _, file, line, _ in BROKEN:
        with (tmp_path / file).open("a") as module:
            module.write(f"\n{line}\n")
    done = lint_imports(tmp_path)
    broken = [line for line in done.stdout.splitlines() if line.endswith("BROKEN")]
    for contract, *_, named in BROKEN:
        assert contract in str(broken) and named in done.stdout, done.stdout + done.stderr
