"""What a build leaves behind: read from real ones, without torch's headers, so that it takes seconds."""

import time

import pytest

from helpers import cuda
from helpers.cuda import cache
from helpers.lessons import builds, failures

# it asks for pybind11, so torch's load_inline builds it
ADD = "#include <pybind11/pybind11.h>\nint add(int a, int b) { return a + b; }"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A finished extension with one function."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBOOK_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(cache, "_loaded", {})
        yield cuda.load_cpp("files_add", ADD, ["add"], torch_headers=False)


def test_flags_and_steps_of_a_build(built):
    folder = cuda.info(built).directory
    assert "-O2" in builds.flags(folder, "cflags") and "-I" not in builds.flags(folder, "cflags")
    steps = builds.steps(folder)
    assert {"main.o", "files_add.so"} <= set(steps.step) and (steps.seconds >= 0).all()
    assert builds.reading(folder)[0] > 100
    with pytest.raises(ValueError, match="nonsense"):
        builds.flags(folder, "nonsense")


def test_files_read_without_pytorchs_headers(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBOOK_CACHE", str(tmp_path))
    module = cuda.load_cpp("files_light", ADD.split("\n")[1], ["add"], torch_headers=False)
    assert 20 < builds.reading(cuda.info(module).directory)[0] < 400


def test_import_of_a_copy(built):
    assert 0 < builds.import_seconds(built) < 5


def test_write_leaves_an_unchanged_file_alone(tmp_path):
    path = tmp_path / "a.cpp"
    builds.write(path, "one")
    before = path.stat().st_mtime_ns
    time.sleep(0.02)
    assert builds.write(path, "one") == str(path) and path.stat().st_mtime_ns == before
    builds.write(path, "two")
    assert path.read_text() == "two"


def test_torchs_stale_lock_is_cleared(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b/lock").touch()
    with builds.alone_in(tmp_path / "b"):
        assert not (tmp_path / "b/lock").exists()


def test_folder_keeps_versions_apart():
    name = builds.folder_for("lesson").name
    assert name.startswith("lesson-torch") and "python3" in name and "+" not in name


SETUP = """
from setuptools import Extension, setup
setup(name="tiny", version="1", ext_modules=[Extension("tiny", ["tiny.c"])])
"""
TINY = """
#include <Python.h>
static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "tiny", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_tiny(void) { PyObject* m = PyModule_Create(&def);
    PyModule_AddIntConstant(m, "answer", 42); return m; }
"""


def test_setup_py_builds_and_reports_errors(tmp_path, capsys):
    module = builds.run_setup_py(tmp_path / "p", {"setup.py": SETUP, "tiny.c": TINY}, "tiny")
    assert module.answer == 42 and "setup.py" in capsys.readouterr().out
    with pytest.raises(cuda.BuildError, match=r"tiny\.c, line 5"):
        builds.run_setup_py(
            tmp_path / "q", {"setup.py": SETUP, "tiny.c": TINY.replace("42)", "fortytwo)")}, "tiny"
        )


def test_the_outcome_of_a_call():
    assert failures.told(lambda: 1 / 0).first_line == "division by zero"
    assert failures.told(lambda: None).first_line == "no error"


@pytest.mark.gpu
def test_sanitizer_finds_a_missing_guard():
    program = """
    __global__ void k(float* x) { x[threadIdx.x] = 1; }
    int main() { float* x; cudaMalloc(&x, 100); k<<<1, 64>>>(x); return cudaDeviceSynchronize(); }
    """
    assert "Invalid __global__ write of size 4 bytes" in failures.sanitize(program).message


def test_a_report_is_shortened_to_its_first_error():
    frames = [
        "Host Frame: launch in launcher.so",
        "Host Frame: [0x1] in python3",
        "Host Frame: run in jit.py:7",
    ]
    report = "\n".join(["========= Invalid read", *(f"========= {one}" for one in frames)])
    shortened = failures.first_error(report + "\n========= \n========= ERROR SUMMARY: 8 errors")
    assert shortened.splitlines() == [
        "========= Invalid read",
        "========= Host Frame: launch in launcher.so",
        "=========         (1 more calls)",
        "========= Host Frame: run in jit.py:7",
    ]
    assert failures.from_exception("[New Thread]\nCUDA Exception: one") == "CUDA Exception: one"
    assert failures.from_exception("no record") == failures.first_error("no record") == "no record"
