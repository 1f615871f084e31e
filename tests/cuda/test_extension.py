"""Builds: cached, locked, readable. Each test uses a build folder of its own and no torch header, so it takes
seconds.
"""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from helpers import cuda
from helpers.cuda import cache

ADD = "int add(int a, int b) { return a + b; }"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBOOK_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_loaded", {})
    return tmp_path


def start(code: str) -> subprocess.Popen:
    """A Python process that runs `code` with the same build folder."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


BUILD_IN_PROCESS = f"""
    from helpers import cuda
    m = cuda.load_cpp("slow_add", {ADD!r}, ["add"], torch_headers=False)
    print(m.add(20, 22), cuda.info(m).cached)
"""


def test_build_then_cache():
    module = cuda.load_cpp("add_one", ADD, ["add"], torch_headers=False)
    assert module.add(1, 2) == 3
    first = cuda.info(module)
    assert not first.cached and first.seconds > 0.1 and first.directory.is_dir()
    cache._loaded.clear()  # as in a new process
    again = cuda.info(cuda.load_cpp("add_one", ADD, ["add"], torch_headers=False))
    assert again.cached and again.seconds == first.seconds and again.directory == first.directory


def test_changed_source_and_flags_are_other_builds():
    module = cuda.load_cpp("add_two", ADD, ["add"], torch_headers=False)
    other = cuda.load_cpp("add_two", ADD.replace("a + b", "a + b + 1"), ["add"], torch_headers=False)
    assert (module.add(1, 1), other.add(1, 1)) == (2, 3)
    flagged = cuda.load_cpp("add_two", ADD, ["add"], torch_headers=False, flags=["-O0"])
    assert len({cuda.info(m).directory for m in (module, other, flagged)}) == 3


def test_error_names_the_learners_line():
    with pytest.raises(cuda.BuildError) as caught:
        cuda.load_cpp("broken", "int add(int a, int b) {\n  return a + c;\n}", ["add"], torch_headers=False)
    text = str(caught.value)
    assert "broken.cpp, line 2" in text and "'c' was not declared" in text and "return a + c;" in text
    assert len(text.splitlines()) < 8 and "Traceback" not in text
    assert not list(cuda.build_folder().glob("broken*/built.json"))


TYPES = """
#include <vector>
int64_t wide(int64_t a, uint8_t b) { return a + b; }
double half(float a, bool twice) { return twice ? a : a / 2; }
std::string greet(const std::string& name, const char* end) { return "Hello " + name + end; }
const char* said(bool well) { return well ? "no error" : nullptr; }
void fail(int how) {
  if (how == 0) throw std::runtime_error("a runtime_error");
  if (how == 1) throw std::invalid_argument("an invalid_argument");
  std::vector<int>().at(1);
}
int none() { return 7; }
"""


@pytest.fixture(scope="module")
def types(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBOOK_CACHE", str(tmp_path_factory.mktemp("types")))
        names = ["wide", "half", "greet", "said", "fail", "none"]
        yield cuda.load_cpp("types", TYPES, names, torch_headers=False)


def test_arguments_and_results_without_pybind11(types):
    assert types.wide(-(2**62), 255) == -(2**62) + 255 and types.wide(True, 0) == 1
    assert types.half(3, False) == 1.5 and types.half(0.1, True) == float.fromhex("0x1.99999ap-4")
    assert types.greet("kérnel", "!") == "Hello kérnel!"
    assert types.said(True) == "no error" and types.said(False) is None
    assert types.none() == 7 and types.fail.__name__ == "fail"
    assert sys.modules["types"] is not types  # a learner's module may be called like one of Python's


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.fail(0), RuntimeError, "a runtime_error"),
        (lambda m: m.fail(1), ValueError, "an invalid_argument"),
        (lambda m: m.fail(2), IndexError, "vector"),
        (lambda m: m.wide(1), TypeError, r"wide\(\) takes 2 arguments"),
        (lambda m: m.wide(1.5, 0), TypeError, "argument 1 .*float"),
        (lambda m: m.wide(2**63, 0), TypeError, "argument 1 .*9223372036854775808.*64 bits"),
        (lambda m: m.wide(0, 256), TypeError, "argument 2 .*256.*unsigned 8 bits"),
        (lambda m: m.wide(0, -1), TypeError, "argument 2 .*-1"),
        (lambda m: m.half("x", True), TypeError, "argument 1 .*str"),
        (lambda m: m.greet(1, ""), TypeError, "argument 1 .*int"),
    ],
)
def test_errors_cross_into_python(types, call, error, message):
    with pytest.raises(error, match=message):
        call(types)


def test_an_unsupported_type_is_an_error():
    source = "#include <map>\nint total(std::map<int, int> x) { return x.size(); }"
    with pytest.raises(cuda.BuildError, match="include <pybind11"):
        cuda.load_cpp("maps", source, ["total"], torch_headers=False)
    with_pybind11 = f"#include <pybind11/stl.h>\n{source}"
    assert cuda.load_cpp("maps", with_pybind11, ["total"], torch_headers=False).total({1: 2, 3: 4}) == 2


def test_an_undefined_function_is_an_error():
    with pytest.raises(cuda.BuildError, match="defined nowhere"):
        cuda.load_cpp("undefined", "int add(int a, int b);", ["add"], torch_headers=False)


def test_bad_arguments():
    with pytest.raises(ValueError, match="identifier"):
        cuda.load_cpp("two words", ADD, ["add"])
    with pytest.raises(ValueError, match="at least one function"):
        cuda.load_cpp("none", ADD, [])
    with pytest.raises(ValueError, match="was not built by"):
        cuda.info(os)


def test_killed_build_never_blocks_the_next(own_cache):
    process = start(BUILD_IN_PROCESS)
    for _ in range(600):
        if list((own_cache / "build").glob("slow_add-*.[0-9]*/main.cpp")):
            break
        time.sleep(0.1)
    else:
        pytest.fail("the build never began")
    process.send_signal(signal.SIGKILL)
    process.wait()
    begin = time.monotonic()
    assert cuda.load_cpp("slow_add", ADD, ["add"], torch_headers=False).add(20, 22) == 42
    assert time.monotonic() - begin < 60
    assert not list((own_cache / "build").glob("slow_add-*.[0-9]*")), "the killed build's folder is left"


def test_two_processes_build_once_and_agree():
    outputs = [p.communicate(timeout=120)[0].split() for p in [start(BUILD_IN_PROCESS) for _ in range(2)]]
    assert [o[0] for o in outputs] == ["42", "42"]
    assert sorted(o[1] for o in outputs) == ["False", "True"], "one built, the other waited and loaded"


def test_lock_timeout_names_the_holder(own_cache, monkeypatch):
    home = cuda.build_folder() / "held-0123"
    process = start(f"""
        import pathlib, time
        from helpers.cuda import cache
        with cache.build_lock(pathlib.Path({str(home)!r})):
            print("held", flush=True)
            time.sleep(60)
    """)
    assert process.stdout.readline().strip() == "held"
    try:
        with pytest.raises(cuda.BuildError, match=str(process.pid)), cache.build_lock(home, timeout_s=0.3):
            pass
    finally:
        process.kill()
        process.wait()
    with cache.build_lock(home, timeout_s=5):
        pass


def test_nvcc_errors_are_shortened():
    """What nvcc prints around the two lines that matter."""
    output = """FAILED: [code=2] cuda.cuda.o
/usr/local/cuda/bin/nvcc --generate-dependencies-with-compile -c cuda.cu -o cuda.cuda.o
square.cu(3): error: identifier "j" is undefined
    y[i] = x[j];
             ^

1 error detected in the compilation of "cuda.cu".
ninja: build stopped: subcommand failed.
"""
    text = cuda.readable_errors(output, {"square.cu": "// one\n// two\n  y[i] = x[j];\n"})
    assert text == 'The build failed:\nsquare.cu, line 3: identifier "j" is undefined\n      y[i] = x[j];'
