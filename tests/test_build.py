"""Builds: cached, locked, readable. Each test uses a build folder of its own and no torch header, so it takes seconds."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from helpers import build

ADD = "int add(int a, int b) { return a + b; }"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBOOK_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "_loaded", {})
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
    from helpers import build
    m = build.load_cpp("slow_add", {ADD!r}, ["add"], torch_headers=False)
    print(m.add(20, 22), build.info(m).cached)
"""


def test_build_then_cache():
    module = build.load_cpp("add_one", ADD, ["add"], torch_headers=False)
    assert module.add(1, 2) == 3
    first = build.info(module)
    assert not first.cached and first.seconds > 0.1 and first.directory.is_dir()
    build._loaded.clear()  # as in a new process
    again = build.info(build.load_cpp("add_one", ADD, ["add"], torch_headers=False))
    assert again.cached and again.seconds == first.seconds and again.directory == first.directory


def test_changed_source_and_flags_are_other_builds():
    module = build.load_cpp("add_two", ADD, ["add"], torch_headers=False)
    other = build.load_cpp("add_two", ADD.replace("a + b", "a + b + 1"), ["add"], torch_headers=False)
    assert (module.add(1, 1), other.add(1, 1)) == (2, 3)
    flagged = build.load_cpp("add_two", ADD, ["add"], torch_headers=False, flags=["-O0"])
    assert len({build.info(m).directory for m in (module, other, flagged)}) == 3


def test_error_names_the_learners_line():
    with pytest.raises(build.BuildError) as caught:
        build.load_cpp("broken", "int add(int a, int b) {\n  return a + c;\n}", ["add"], torch_headers=False)
    text = str(caught.value)
    assert "broken.cpp, line 2" in text and "'c' was not declared" in text and "return a + c;" in text
    assert len(text.splitlines()) < 8 and "Traceback" not in text
    assert not list(build.build_folder().glob("broken*/built.json"))


def test_undefined_function_is_said():
    with pytest.raises(build.BuildError, match="defined nowhere"):
        build.load_cpp("undefined", "int add(int a, int b);", ["add"], torch_headers=False)


def test_bad_arguments():
    with pytest.raises(ValueError, match="identifier"):
        build.load_cpp("two words", ADD, ["add"])
    with pytest.raises(ValueError, match="at least one function"):
        build.load_cpp("none", ADD, [])
    with pytest.raises(ValueError, match="was not built by"):
        build.info(os)


def test_killed_build_never_blocks_the_next(own_cache):
    process = start(BUILD_IN_PROCESS)
    for _ in range(600):
        if list((own_cache / "build").glob("slow_add-*.[0-9]*/build.ninja")):
            break
        time.sleep(0.1)
    else:
        pytest.fail("the build never began")
    process.send_signal(signal.SIGKILL)
    process.wait()
    begin = time.monotonic()
    assert build.load_cpp("slow_add", ADD, ["add"], torch_headers=False).add(20, 22) == 42
    assert time.monotonic() - begin < 60
    assert not list((own_cache / "build").glob("slow_add-*.[0-9]*")), (
        "the killed build's folder was not removed"
    )


def test_two_processes_build_once_and_agree():
    outputs = [p.communicate(timeout=120)[0].split() for p in [start(BUILD_IN_PROCESS) for _ in range(2)]]
    assert [o[0] for o in outputs] == ["42", "42"]
    assert sorted(o[1] for o in outputs) == ["False", "True"], "one built, the other waited and loaded"


def test_lock_timeout_names_the_holder(own_cache, monkeypatch):
    home = build.build_folder() / "held-0123"
    process = start(f"""
        import pathlib, time
        from helpers import build
        with build._lock(pathlib.Path({str(home)!r})):
            print("held", flush=True)
            time.sleep(60)
    """)
    assert process.stdout.readline().strip() == "held"
    try:
        with (
            pytest.raises(build.BuildError, match=rf"process {process.pid} on"),
            build._lock(home, timeout_s=0.3),
        ):
            pass
    finally:
        process.kill()
        process.wait()
    with build._lock(home, timeout_s=5):
        pass


SQUARE = """
extern "C" __global__ void square(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i];
}
"""


def test_ptx_without_nvcc():
    for target in ("sm_75", "sm_90", "sm_100"):
        ptx = build.compile_ptx(SQUARE, target=target)
        assert f".target {target}" in ptx and "setp" in ptx and "mul.f32" in ptx
    assert build.compile_cubin(SQUARE)[:4] == b"\x7fELF"


def test_ptx_with_cudas_own_headers():
    source = (
        "#include <cuda_fp16.h>\n" + 'extern "C" __global__ void f(__half* x) { x[0] = __hadd(x[0], x[1]); }'
    )
    assert "f16" in build.compile_ptx(source)


def test_ptx_error_and_bad_target():
    with pytest.raises(build.BuildError, match=r"kernel.cu, line 4: identifier .j. is undefined"):
        build.compile_ptx(SQUARE.replace("y[i] = x[i]", "y[i] = x[j]"))
    with pytest.raises(ValueError, match="sm_90"):
        build.compile_ptx(SQUARE, target="hopper")


def test_nvcc_errors_are_cut():
    """What nvcc prints around the two lines that matter."""
    output = """FAILED: [code=2] cuda.cuda.o
/usr/local/cuda/bin/nvcc --generate-dependencies-with-compile -c cuda.cu -o cuda.cuda.o
square.cu(3): error: identifier "j" is undefined
    y[i] = x[j];
             ^

1 error detected in the compilation of "cuda.cu".
ninja: build stopped: subcommand failed.
"""
    text = build.readable_errors(output, {"square.cu": "// one\n// two\n  y[i] = x[j];\n"})
    assert text == 'The build failed:\nsquare.cu, line 3: identifier "j" is undefined\n      y[i] = x[j];'
