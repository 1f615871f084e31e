"""The house as a whole: imports go downwards, nobody takes what is private, a face says what is in its
package.
"""

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


def test_no_module_is_in_a_circle_of_imports():
    """Stricter than the contract: a package's face and its own modules count too."""
    graph = {name: {module for module, _, _ in imports(name) if module != name} for name in MODULES}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as circle:
        pytest.fail(" <- ".join(circle.args[1]))


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_takes_nothing_private_from_another(name):
    taken = [f"{module}.{what}" for module, what, _ in imports(name) if what.startswith("_")]
    modules = {here: module for module, what, here in imports(name) if not what}
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.value.id in modules and node.attr.startswith("_") and not node.attr.startswith("__"):
            taken.append(f"{modules[node.value.id]}.{node.attr}")
    assert not taken


@pytest.mark.parametrize("name", PACKAGES)
def test_a_face_says_what_is_in_its_package(name):
    face = importlib.import_module(name)
    inside = {module.rsplit(".", 1)[1] for module in MODULES if module.rpartition(".")[0] == name}
    named = {name.rstrip("0123456789") for name in re.findall(r"`([\w.]+)`", face.__doc__ or "")}
    unnamed = [one for one in sorted(inside) if one.rstrip("0123456789") not in named]
    assert not unnamed, "modules that the docstring does not name"
    exported = getattr(face, "__all__", [])
    assert all(hasattr(face, one) for one in exported)
    shadowed = [one for one in exported if one in inside and not isinstance(getattr(face, one), type(face))]
    assert not shadowed, "a module that the face hides behind a function of the same name"


def lint_imports(folder: Path) -> subprocess.CompletedProcess:
    command = [shutil.which("lint-imports", path=Path(sys.executable).parent), "--no-logo", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": "", "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def house(tmp_path_factory) -> Path:
    """A copy of both packages that keeps every contract."""
    folder = tmp_path_factory.mktemp("house")
    left_out = shutil.ignore_patterns("__pycache__", *records.sets())
    for package in ("helpers", "workbook"):
        shutil.copytree(ROOT / package, folder / package, ignore=left_out)
    shutil.copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")
    done = lint_imports(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize(
    ("file", "line", "contract", "told"),
    [
        ("helpers/timing/gpu.py", "from helpers import lab", "A package imports only from those below it",
         "helpers.timing.gpu -> helpers.lab"),
        ("helpers/kernels/ops.py", "from workbook import usage", "helpers never imports workbook",
         "helpers.kernels.ops -> workbook.usage"),
        ("helpers/cuda/errors.py", "from helpers.cuda import extension", "No two modules or packages import "
                                                                         "each other",
         "No cycles are allowed in helpers.cuda"),
        ("workbook/form/publish.py", "from workbook.batch import plan", "Batch, bench, book, form and grade "
                                                                        "know nothing",
         "workbook.form.publish -> workbook.batch.plan"),
        ("helpers/strangers.py", "", "A package imports only from those below it", "helpers.strangers"),
    ],
)  # fmt: skip
def test_a_broken_contract_is_told(house, file, line, contract, told):
    """The sentence names the import and the contract; a package that the map does not place is told too."""
    broken = house / file
    text = broken.read_text() if broken.exists() else None
    broken.write_text(f"{text or ''}\n{line}\n")
    done = lint_imports(house)
    if text is None:
        broken.unlink()
    else:
        broken.write_text(text)
    said = " ".join(done.stdout.split())
    assert done.returncode == 1 and f"{contract}" in said and told in said, done.stdout + done.stderr
