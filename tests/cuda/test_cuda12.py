"""In a session of CUDA 12 everything is compiled by CUDA 12's NVRTC, with CUDA 13's beside it."""

from __future__ import annotations

import json

import cuda12
import pytest

COMPILE = """
import json, re, sys
from helpers import cuda
made = {}
for where, text in json.load(sys.stdin).items():
    try:
        ptx = cuda.compile_ptx(text)
        made[where] = [re.search(r"^\\.version (\\d+\\.\\d+)$", ptx, re.MULTILINE)[1], ptx.count(".entry")]
    except cuda.BuildError as error:
        made[where] = str(error)
print(json.dumps(made))
"""
# The largest PTX ISA that a driver of CUDA 12.8 knows (PTX ISA, "Release History").
NEWEST_PTX = (8, 7)


def test_every_kernel_of_the_course_becomes_ptx_that_cuda_12_drivers_know():
    texts = cuda12.texts()
    assert sum("notebooks" in where for where in texts) > 10 and "tests/cuda_corpus/right.cu" in texts
    made = json.loads(cuda12.run(COMPILE, json.dumps(texts)))
    for where, text in texts.items():
        assert isinstance(made[where], list), f"{where}: {made[where]}"
        version, entries = made[where]
        assert tuple(map(int, version.split("."))) <= NEWEST_PTX, f"{where}: PTX {version}"
        assert entries == len(cuda12.kernels(text)), where


def test_it_is_so_whatever_was_loaded_before():
    """Numba loads the NVRTC that cuda.bindings finds, which is CUDA 13's."""
    said = cuda12.run("""
from cuda.bindings import nvrtc
print(nvrtc.nvrtcVersion()[1])
from helpers import cuda
half = "#include <cuda_fp16.h>\\n__global__ void k(__half* x) { *x = __hadd(*x, *x); }"
for torch.version.cuda in ("12.8", "13.0"):
    print(cuda.compile_ptx(half).split(".version ")[1].split(".")[0])
""")
    assert said.split() == ["13", "8", "9"]


def test_the_doctor_names_it_and_finds_nothing_wrong():
    said = cuda12.run("from helpers import device; print(device.survey().doctor())")
    assert "ok  NVRTC        12.8 (torch is built for CUDA 12.8)" in said
    assert not [line for line in said.splitlines() if line.startswith("!!") and "NVRTC" in line]


def test_a_target_that_it_does_not_know_yet_is_one_sentence():
    said = cuda12.run("""
from helpers import cuda
try:
    cuda.compile_ptx("__global__ void k() {}", target="sm_130")
except cuda.BuildError as error:
    print(error)
""")
    assert (
        said.startswith("NVRTC 12.8 does not compile for sm_130; it knows sm_50, ") and said.count("\n") == 1
    )
    assert said.endswith("A newer CUDA may: a torch that is built for one brings its NVRTC.\n")


LIVE = """
import json, sys
from helpers import cuda, device
texts, kernels = json.load(sys.stdin)
loaded = [cuda.load_kernel(texts[where], name).name for where, names in kernels.items() for name in names]
x = torch.randn(1000, device="cuda")
y = torch.empty_like(x)
square = cuda.load_kernel("__global__ void s(const float* x, float* y, int n) {"
    " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * x[i]; }", "s")
square(x, y, 1000, grid=4, block=256)
print(json.dumps([str(device.nvrtc()), len(loaded), torch.equal(y, x * x)]))
"""


@pytest.mark.gpu
def test_a_driver_takes_what_it_makes():
    """Every kernel of the course whose parameters Python can pass is loaded; one is run."""
    from helpers.cuda import kernel

    texts, kernels = cuda12.texts(), {}
    for where, text in texts.items():
        kernels[where] = []
        for name in cuda12.kernels(text):
            try:
                kernel.parameters(text, name)
            except ValueError:
                continue
            kernels[where].append(name)
    n_kernels = sum(map(len, kernels.values()))
    assert n_kernels > 60
    made = json.loads(cuda12.run(LIVE, json.dumps([texts, kernels])))
    assert made == ["NVRTC 12.8", n_kernels, True]
