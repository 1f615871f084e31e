"""The reference: every public function is on its page, its docstring fits its signature, and its examples run."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from commands import ROOT, environment

from helpers.workshop.book import reference

PUBLIC = [(package, name, one) for package in reference.PACKAGES for name, one in reference.public(package)]
FUNCTIONS = [(package, name, one) for package, name, one in PUBLIC if not inspect.isclass(one)]
# Functions without an example, and why.
NO_EXAMPLE = {
    "it times or profiles on a GPU": {
        "timing.compare", "timing.profiler_overhead", "timing.sweep", "timing.time_gpu", "trace.capture", "trace.profile_table",
        "ncu.last", "ncu.profile", "ncu.run", "ncu.terminal", "ncu.why_not", "device.measure_copy", "ptx.launches",
        "records.measured_file", "records.headline",
    },
    "it builds C++ or CUDA for seconds": {
        "cuda.load", "cuda.load_cpp", "cuda.load_cuda", "cuda.load_inline", "cuda.load_kernel", "cuda.info", "cuda.build_folder",
    },
    "what it shows is for a notebook": {
        "cuda.show", "lab.check", "lab.progress", "lab.reset", "ncu.advice_html", "ncu.load_ipython_extension", "plots.contrast",
        "plots.layout", "plots.log_axis", "plots.roofline", "plots.text_on", "plots.theme", "predict.ask", "predict.reveal",
        "predict.review", "ptx.draw_layout", "ptx.side_by_side", "trace.timeline", "trace.call_tree", "widgets.explorable",
        "widgets.explore", "widgets.explore_grid", "widgets.explore_ptx", "widgets.frontend",
    },
    "another example needs the same setup and calls it": {
        "check.empty_allocations", "ncu.occupancy_curves", "ncu.over_time", "ncu.outcome", "ptx.ASTSource", "ptx.complaint",
        "ptx.from_compiled", "ptx.interpreted", "ptx.layout_of", "ptx.read_sass",
    },
    "it depends on the machine alone": {
        "device.counters_allowed", "device.find_tool", "device.gpu_spec", "device.has_gpu", "device.nvml_handle", "device.cuda_toolkit", "device.driver_version", "device.left_to_eager", "device.nvrtc",
        "device.prepare", "device.require", "device.survey", "records.folder", "records.gpu_specs",
    },
    "its command is described in README": {
        "workshop.batch.load_results", "workshop.batch.run_course", "workshop.bench.bench", "workshop.grade.grade",
    },
}  # fmt: skip


def test_every_package_has_a_page_and_every_public_name_stands_on_it():
    pages = reference.pages(ROOT)
    assert list(pages) == ["reference.md", *(f"reference/{package}.md" for package in reference.PACKAGES)]
    for package, name, _ in PUBLIC:
        assert f"\n## {name}\n" in pages[f"reference/{package}.md"]
        assert f'href="reference/{package}.html"' in pages["reference.md"]


def test_the_learner_s_first_imports_are_among_them():
    for name in (
        "check.assert_matches",
        "timing.time_gpu",
        "records.measured",
        "widgets.explore",
        "ptx.stages",
    ):
        package, _, function = name.rpartition(".")
        assert (package, function) in {(p, n) for p, n, _ in PUBLIC}


@pytest.mark.parametrize(
    "package, name, one", FUNCTIONS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_arguments_that_are_described_exist(package, name, one):
    parameters = set(inspect.signature(one).parameters)
    described = {
        argument.strip("*")
        for names, _ in reference.documented(one).items("Args")
        for argument in names.split(", ")
    }
    assert described <= parameters, "described, and not in the signature"


def test_a_function_has_an_example_or_a_reason():
    has = {f"{package}.{name}" for package, name, one in FUNCTIONS if ">>>" in (inspect.getdoc(one) or "")}
    excused = set().union(*NO_EXAMPLE.values())
    every = {f"{package}.{name}" for package, name, _ in FUNCTIONS}
    of_tensors = {
        name for name in every if name.startswith("kernels.ops.")
    }  # lessons 03 and 06 are their examples
    assert not every - of_tensors - has - excused, "no example, and no reason in NO_EXAMPLE"
    assert not excused & has, "an example, and a reason why there is none"
    assert not excused - every, "a reason for a function that is not there"


RUN = """
import doctest, inspect
from helpers.workshop.book import reference

failed = tried = 0
for package in reference.PACKAGES:
    for name, one in reference.public(package):
        if ">>>" in (inspect.getdoc(one) or ""):
            test = doctest.DocTestParser().get_doctest(inspect.getdoc(one), {}, f"{package}.{name}", None, 0)
            result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
            failed, tried = failed + result.failed, tried + 1
print(f"{tried} examples, {failed} failed")
raise SystemExit(failed > 0)
"""


def test_the_examples_run():
    """In a process without a GPU and without a notebook, so that they print the same everywhere."""
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        env={**environment(), "CUDA_VISIBLE_DEVICES": "", "WORKBOOK_REPLAY": "h200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 40


def test_a_docstring_is_read_in_its_parts():
    def square(x, *others, kind="a"):
        """Square a tensor.

        It is quick, and `x * x` too.

        Args:
            x: the tensor, of any shape;
                two lines.
            others, kind: what else.

        Returns:
            A tensor like `x`.

        Raises:
            ValueError: it is no tensor.

        Example:
            >>> 3 * 3
            9
        """

    parts = reference.documented(square)
    assert parts.text == "Square a tensor.\n\nIt is quick, and `x * x` too."
    assert parts.items("Args") == [
        ("x", "the tensor, of any shape;\n    two lines."),
        ("others, kind", "what else."),
    ]
    assert parts.items("Raises") == [("ValueError", "it is no tensor.")]
    assert parts.sections["Example"] == ">>> 3 * 3\n9"
    assert reference.signature("square", square) == "square(x, *others, kind='a')"
