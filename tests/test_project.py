"""The project as a whole: its three lists of dependencies, its documents, its notebooks' form, its sizes."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import colab
import nbformat
import pytest
import typer
import yaml
from commands import CORE, LESSONS, ROOT, environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from workbook.cli import app
from workbook.form import canonical, files

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/decisions.md")),
    *GUIDE,
]
EXTRAS = PYPROJECT["optional-dependencies"]


def pins() -> dict[str, Version]:
    found = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        text = line.split("#")[0].strip()
        if text:
            requirement = Requirement(text)
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", f"constraints.txt: {text} is no exact pin"
            name = canonicalize_name(requirement.name)
            assert name not in found, f"constraints.txt pins {name} twice"
            found[name] = Version(specifier.version)
    return found


# ---------------------------------------------------------------------------------------------- dependencies


@pytest.mark.parametrize(
    "text", [*PYPROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)]
)
def test_every_requirement_has_a_pin_that_satisfies_it(text):
    requirement = Requirement(text)
    assert pins()[canonicalize_name(requirement.name)] in requirement.specifier


def test_in_colab_pip_replaces_nothing():
    """So a session keeps its torch, triton, IPython and CUDA, and the setup cell needs no pins."""
    there = set(colab.versions())
    assert {"torch", "triton", "ipython", "ipywidgets", "plotly", "anywidget", "numpy", "pandas"} <= there
    assert SpecifierSet(PYPROJECT["requires-python"]).contains(colab.PYTHON)
    installed = colab.resolve(PYPROJECT["dependencies"], pins())
    assert set(installed) == {"jedi", "ncu-report", "ninja", "papermill"}


@pytest.mark.parametrize(
    ("requirement", "installed"),
    [
        ("ipywidgets>=8", "ipywidgets"),  # replaces Colab's 7.7.1
        # CUDA 13 next to CUDA 12
        ("cuda-toolkit[cudart,nvrtc]>=13", "nvidia-cuda-nvrtc"),
    ],
)
def test_changes_to_colab_are_detected(requirement, installed):
    assert installed in colab.resolve([requirement], pins())


def test_every_import_is_a_requirement():
    """Every third-party module that helpers imports belongs to a distribution that pyproject names, or is
    optional.
    """
    distributions = {
        "IPython": "ipython",
        "cuda": "cuda-bindings",
        "pynvml": "nvidia-ml-py",
        "jinja2": "nbconvert",
        "nbclient": "nbclient",
        "jupyter_client": "nbclient",
        "numba": "numba-cuda",
        "ncu_report": "ncu-report",
        "tritonparse": "tritonparse",
        "traitlets": "ipython",
        "pygments": "ipython",
        "yaml": "pyyaml",
        "docutils": "sphinx",
    }
    named = {canonicalize_name(Requirement(r).name) for r in PYPROJECT["dependencies"]}
    cluster, book = ({canonicalize_name(Requirement(r).name) for r in EXTRAS[e]} for e in ("cluster", "book"))
    for path in [*(ROOT / "helpers").rglob("*.py"), *(ROOT / "workbook").rglob("*.py")]:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
        for module in {name.partition(".")[0] for name in names}:
            if module in sys.stdlib_module_names or module in ("helpers", "workbook", "__future__"):
                continue
            extra = cluster if path.stem.startswith("cluster") else set()
            if path.parent.name == "book":
                extra = book
            if path.name == "wide_rows.py":
                extra = {"quack"}  # a peer that is counted where it is installed
            assert canonicalize_name(distributions.get(module, module)) in named | extra, (
                f"{path.name} imports {module}"
            )


def test_environment_yml_agrees_with_pyproject():
    assert set(CONDA["channels"]) <= {"conda-forge", "nodefaults"} and "conda-forge" in CONDA["channels"]
    (pip,) = [part["pip"] for part in CONDA["dependencies"] if isinstance(part, dict)]
    conda = {re.match(r"[\w-]+", d)[0]: d for d in CONDA["dependencies"] if isinstance(d, str)}
    assert set(conda) == {"python", "pip", "cxx-compiler", "ninja", "cuda-nvcc", "nsight-compute"}
    python = Version(conda["python"].split("=")[1])
    assert python in SpecifierSet(PYPROJECT["requires-python"])
    assert pip == ["-c constraints.txt", f"-e .[{','.join(sorted(EXTRAS, reverse=True))}]"]
    makefile = (ROOT / "Makefile").read_text()
    assert "'.[lab,dev,cluster,book]'" in makefile and "-c constraints.txt" in makefile
    # nvcc builds against the headers that torch's CUDA build asks for: one major and minor version.
    nvrtc = pins()["nvidia-cuda-nvrtc"]
    assert conda["cuda-nvcc"] == f"cuda-nvcc={nvrtc.major}.{nvrtc.minor}"


def test_the_wheel_has_every_file_of_the_packages(tmp_path):
    """A wheel, which is what Colab's pip installs, has every module, kernel, header and record."""
    kept = subprocess.run(
        ["git", "ls-files", "helpers", "workbook"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    source = tmp_path / "source"
    for name in [*kept.stdout.split("\n"), "pyproject.toml", "README.md", "LICENSE"]:
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    pip = f"-m pip wheel . --no-deps --no-build-isolation -w {tmp_path}"
    done = subprocess.run([sys.executable, *pip.split()], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    packed = {name for name in names if name.startswith(("helpers/", "workbook/"))}
    sources = [p for package in ("helpers", "workbook") for p in (source / package).rglob("*") if p.is_file()]
    assert packed == {str(p.relative_to(source)) for p in sources}


def test_ci_runs_all_tests():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines[-2:] == ["make test", "make test-slow"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100


# ---------------------------------------------------------------------------------------------- documents


@pytest.mark.parametrize(("name", "most"), [("README.md", 1_450), ("CONTRIBUTING.md", 1_650)])
def test_a_document_is_short(name, most):
    assert len((ROOT / name).read_text().split()) <= most


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_files_that_documents_name_exist(path):
    """File names in backticks that look like a path in the checkout."""
    for name in re.findall(r"`([a-z][\w./-]+/[\w.-]+\.\w+)`", path.read_text()):
        if not name.startswith("build/"):
            assert (ROOT / name).exists(), f"{path.name} names {name}"


def commands_in(path: Path) -> str:
    """What a document shows as code, except the removed features in CHANGELOG."""
    text = path.read_text().split("**Removed**")[0]
    text = re.sub(r"^\|.*\|$", "", text, flags=re.MULTILINE) if path.name == "CHANGELOG.md" else text
    return "\n".join(a or b for a, b in re.findall(r"```\w*\n(.*?)```|`([^`\n]+)`", text, re.DOTALL))


def options_of_commands() -> dict[str, set[str]]:
    """The options of each `workbook` command."""
    commands = typer.main.get_command(app).commands
    return {name: {o for p in command.params for o in p.opts} for name, command in commands.items()}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_commands_in_the_documents_exist(path):
    code = commands_in(path)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)\b", code)) <= targets
    options = options_of_commands()
    for line in re.findall(r"\bworkbook ([a-z]+\b[^\n`]*)", code):
        name = line.split()[0]
        assert set(re.findall(r"(?<=\s)--?[a-z][\w-]*", line)) <= options[name], line


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_the_readme_lists_every_lesson_and_lab(path):
    """With the minutes that the lesson itself names."""
    lines = (ROOT / "README.md").read_text().splitlines()
    (row,) = [line for line in lines if f"](notebooks/{path.name})" in line]
    title = nbformat.read(path, as_version=4).cells[0].source
    parts = re.findall(r"\*\*Part \w, about (\d+) minutes", title) or re.findall(r"(\d+) minutes", title)[:1]
    minutes = sum(map(int, parts))
    assert f"| {minutes} |" in row and f"](labs/{path.name})" in row


def test_the_guide_lists_its_pages():
    index = (ROOT / "docs" / "guide" / "index.md").read_text()
    assert set(re.findall(r"\]\((\w+\.md)\)", index)) == {path.name for path in GUIDE} - {"index.md"}


@pytest.mark.parametrize("name", ["README.md", "docs/guide/sliders.md"])
def test_the_slider_examples_run_without_a_gpu(name, tmp_path):
    """Pasted into a script as they are, the examples show sliders over their launch parameters."""
    examples = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    assert examples
    for example, axes in zip(
        examples, ("BLOCK_SIZE, num_warps", "n_parts", "BLOCK_M, num_warps"), strict=False
    ):
        *before, last = example.strip().splitlines()
        # Triton reads a kernel's source from its file.
        script = tmp_path / "example.py"
        script.write_text("\n".join([*before, f"made = {last}", "print(made)", "print(made.html)"]))
        env = {**environment(), "CUDA_VISIBLE_DEVICES": ""}
        ran = subprocess.run([sys.executable, script], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert f"Sliders over {axes}" in ran.stdout and "torch." in ran.stdout
        assert "refused" not in ran.stdout


# ------------------------------------------------------------------------------------- notebooks and sizes


def test_lessons_are_numbered_and_the_course_comes_first():
    stems = [path.stem for path in LESSONS]
    assert stems[: len(CORE)] == list(CORE)
    numbers = [stem[:2] for stem in stems]
    assert numbers == [f"{i:02}" for i in range(1, len(numbers) + 1)]


def test_every_notebook_is_in_canonical_form(monkeypatch):
    """Also: the lessons keep their limits, and the starters and the list of questions are up to date."""
    monkeypatch.chdir(ROOT)
    assert files.form([], check=True) == ([], [], [])


def headlines(cell: nbformat.NotebookNode) -> Iterator[ast.Call]:
    """The calls of `records.headline` in a cell."""
    for node in ast.walk(ast.parse(cell.source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "records.headline":
            yield node


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_what_every_lesson_has(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = {cell["id"]: cell for cell in notebook.cells}
    assert cells["setup"].metadata.tags == ["setup"] and cells["parameters"].metadata.tags == ["parameters"]
    annotated = [line for line in cells["parameters"].source.splitlines() if re.match(r"\w+\s*[:=]", line)]
    assert annotated and all(re.match(r"\w+: [\w\[\], |]+ = ", line) for line in annotated), annotated
    checked = [cell for cell in notebook.cells if canonical.CHECKED in canonical.tags(cell)]
    assert len(checked) >= 3
    source = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    calls = [
        call for cell in cells.values() if "records.headline(" in cell.source for call in headlines(cell)
    ]
    assert calls
    for call in calls:
        (of,) = [keyword.value.value for keyword in call.keywords if keyword.arg == "of"]
        record = of.split("/")[-1]  # helpers/lessons may add the folder
        assert re.search(rf'["\s/]{record}["\s].*records\.headline\(', source, re.DOTALL), (
            f"{of} is not read before"
        )
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", source)


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_lessons_have_no_formulas(path):
    """Pages are offline and have no MathJax."""
    formula = re.compile(r"\$\$|\\\(|(?<![\w$`])\$[^$`\n]*\\[a-z]+[^$`\n]*\$")
    cells = nbformat.read(path, as_version=4).cells
    assert not [c["id"] for c in cells if c.cell_type == "markdown" and formula.search(c.source)]


def test_sizes():
    for path in LESSONS:
        assert path.stat().st_size < 200_000, path.name


def test_no_file_names_a_personal_folder():
    folders = ("helpers", "workbook", "notebooks", "tests", "benchmarks")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    for path in [*DOCUMENTS, *(p for p in paths if p.suffix in {".py", ".ipynb", ".cu", ".json", ".md"})]:
        if path != Path(__file__):
            assert not re.search(r"(?<![\w.])/(?:root|home/\w+|work)/", path.read_text()), path
    for path in (ROOT / "helpers" / "records").rglob("*.ncu-rep"):
        assert not re.search(rb"/(?:root|home|work)/[a-z]", path.read_bytes()), path


# ---------------------------------------------------------------------------------------------- make


@pytest.fixture
def bare(tmp_path) -> Path:
    """The Makefile with what its environment depends on, and none yet made."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    return tmp_path


def make(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    # `make test ARGS=…` exports its variables to the tests.
    outer = {"CXX", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "ARGS", "PYTHON", "SEED", "WITH"}
    inherited = {k: v for k, v in os.environ.items() if k not in outer}
    command, env = [shutil.which("make"), *arguments], {**inherited, **environment}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def test_make_reports_a_python_that_is_missing_or_too_old(bare):
    (bare / "python2").write_text("#!/bin/sh\nexit 1\n")
    (bare / "python2").chmod(0o755)
    for python in ("no-such-python", "./python2"):
        result = make(bare, "run", f"PYTHON={python}")
        assert result.returncode == 2 and f"'{python}'" in result.stderr
    assert not (bare / ".venv").exists()


def test_make_reports_a_missing_compiler(bare):
    (bare / "bin").mkdir()
    for tool in ("sh", "touch"):
        (bare / "bin" / tool).symlink_to(shutil.which(tool))
    result = make(bare, "test", f"PYTHON={sys.executable}", PATH=str(bare / "bin"))
    assert result.returncode == 2 and "C++ compiler" in result.stderr, result.stderr
    assert not (bare / ".venv").exists()


def test_only_make_latest_ignores_the_pins(bare):
    latest = make(bare, "-n", "latest", "WITH=torch==2.11.* numpy<2.4").stdout
    assert "-c constraints.txt" not in latest and "--upgrade" in latest and "tests/latest.py  -- -n" in latest
    assert "-e '.[lab,dev,cluster,book]' 'torch==2.11.*' 'numpy<2.4'" in latest
    assert "tests/latest.py --part -- " in make(bare, "-n", "latest", "ARGS=tests/ptx").stdout
    assert "-c constraints.txt" in make(bare, "-n", "run").stdout
    result = make(bare, "latest", "PYTHON=no-such-python")
    assert result.returncode == 2 and "make latest PYTHON=" in result.stderr
    assert not list(bare.glob("build*"))


def test_make_record_refuses_without_a_gpu():
    stamp = f"{sys.prefix}/.installed"
    result = make(ROOT, "-o", stamp, "record", f"VENV={sys.prefix}", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 2 and "NVIDIA GPU" in result.stderr and result.stdout == ""


def test_make_alone_lists_its_targets(bare):
    result = make(bare)
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert result.returncode == 0 and all(f"make {t}" in result.stdout for t in targets if t != "help")


def test_make_ignores_an_active_environment(bare):
    """IPython in .venv warns of another one, in the middle of what a command prints."""
    said = subprocess.run(
        ["make", "--eval", "shown: ; @echo active: $${VIRTUAL_ENV-none}", "shown"],
        cwd=bare, env={**os.environ, "VIRTUAL_ENV": "/elsewhere"}, capture_output=True, text=True,
    )  # fmt: skip
    assert "active: none" in said.stdout.splitlines(), said
