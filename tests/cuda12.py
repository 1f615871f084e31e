"""A CUDA 12 session: Colab's cuda-bindings, NVRTC and headers laid over this environment, and the course's
CUDA texts.

The packages go into build/cuda12 once (pip, without their dependencies). A Python process started with that
folder first on its path, which takes torch for a build for CUDA 12.8, is such a session; this environment's
CUDA 13 lies beside it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import colab
import nbformat
from commands import ROOT

from helpers.exercises.lab04 import sass

FOLDER = ROOT / "build" / "cuda12"
PACKAGES = ("cuda-bindings", "cuda-pathfinder", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12")
# What nvcc's host headers bring and NVRTC has not.
HOST_HEADERS = """#define INT_MIN (-2147483647 - 1)
#define INFINITY __int_as_float(0x7f800000)
"""
# What a text that is a pattern leaves open.
OPEN = re.compile(r"\b(FORMULA|BODY)\b")
# torch.version.cuda is the one thing that a CPU build cannot have.
BEGIN = 'import torch; torch.version.cuda = "12.8"\n'


def install() -> Path:
    """The folder with Colab's CUDA 12 packages; it is kept."""
    versions = colab.versions()
    wanted = [f"{name}=={versions[name]}" for name in PACKAGES]
    done = FOLDER / "installed.json"
    if not done.exists() or json.loads(done.read_text()) != wanted:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--upgrade",
            "--target",
            str(FOLDER),
        ]
        result = subprocess.run([*pip, *wanted], capture_output=True, text=True)
        assert result.returncode == 0, f"pip could not get CUDA 12's packages: {result.stderr[-500:]}"
        done.write_text(json.dumps(wanted))
    return FOLDER


def run(code: str, given: str = "") -> str:
    """What Python code prints in a CUDA 12 session, which gets `given` as its standard input."""
    path = os.pathsep.join([str(install()), str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [sys.executable, "-c", BEGIN + code]
    environment = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


def texts() -> dict[str, str]:
    """Where it stands -> device code, of each CUDA text: lessons, labs' solutions, `helpers`, the corpus."""
    found = {}
    for path in sorted([*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "labs/solutions").glob("*.ipynb")]):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                code = re.sub(r"^\s*(\w+\s*=\s*)?[%!].*$", "pass", cell.source, flags=re.MULTILINE)
                found |= _strings(code, f"{path.relative_to(ROOT)}, {cell.id}")
    for path in sorted((ROOT / "helpers").rglob("*.py")):
        found |= _strings(path.read_text(), str(path.relative_to(ROOT)))
    found |= {f"helpers/exercises/lab04/sass.py, {name}": sass.source(f) for name, f in sass.FORMULAS.items()}
    for path in (ROOT / "helpers/kernels").glob("*.cu"):
        found[str(path.relative_to(ROOT))] = path.read_text()
    for path in (ROOT / "tests/cuda_corpus").glob("*.cu"):
        found[str(path.relative_to(ROOT))] = HOST_HEADERS + path.read_text()
    return {where: device_code(text) for where, text in found.items()}


def kernels(text: str) -> list[str]:
    """The names of the kernels in a text that are no templates."""
    plain = re.sub(r"//[^\n]*|/\*.*?\*/|__launch_bounds__\s*\([^)]*\)", " ", text, flags=re.DOTALL)
    return [
        match[1]
        for match in re.finditer(r"__global__[^;{(]*?(\w+)\s*\([^;{]*\{", plain)
        if not re.search(r"template\s*<[^;{}]*$", plain[: match.start()])
    ]


def device_code(text: str) -> str:
    """A text without its host functions and the headers that only they need: what NVRTC takes."""
    kept = []
    for item in _items(text):
        header = re.search(r"^\s*#\s*include\s*<([\w/.]+)>", item, re.MULTILINE)
        if "<<<" in item or "torch::" in item or (header and not header[1].startswith("cuda_")):
            continue
        kept.append(item)
    return "".join(kept)


def _strings(code: str, where: str) -> dict[str, str]:
    """The kernels in Python code: its strings but for docstrings, and where one is a pattern, what the code
    makes of it.
    """
    tree = ast.parse(code)
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in documents]
    constants = [(node.value, node.lineno) for node in nodes]
    whole = {f"{where}, line {n}": v for v, n in constants if isinstance(v, str) and kernels(v)}
    found = {place: text for place, text in whole.items() if not OPEN.search(text)}
    if found.keys() != whole.keys() and where.startswith("notebooks"):
        names: dict = {}
        assigned = [n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]).isupper()]
        exec(compile(ast.Module(assigned, []), where, "exec"), names)
        found |= {f"{where}, {name}": text for name, text in names["SOURCES"].items()}
    return found


def _items(text: str) -> list[str]:
    """A text's top-level parts: a line of the preprocessor, a declaration, a function with its body."""
    items, current, depth = [], "", 0
    for line in text.splitlines(keepends=True):
        code = line.split("//")[0].rstrip()
        current += line
        if line.lstrip().startswith("#") and depth == 0 and not line.rstrip().endswith("\\"):
            items.append(current)
            current = ""
            continue
        depth += code.count("{") - code.count("}")
        if depth == 0 and code.endswith(("}", ";")):
            items.append(current)
            current = ""
    return [*items, current]
