"""NVRTC: CUDA C++ to PTX and to machine code, without nvcc and without a GPU."""

import dataclasses
import re

import pytest
import torch

from helpers import cuda, device, toolkit

SQUARE = """
extern "C" __global__ void square(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i];
}
"""


def test_ptx_without_nvcc():
    for target in ("sm_75", "sm_90", "sm_100"):
        ptx = cuda.compile_ptx(SQUARE, target=target)
        assert f".target {target}" in ptx and "setp" in ptx and "mul.f32" in ptx
    assert cuda.compile_cubin(SQUARE)[:4] == b"\x7fELF"


def test_ptx_with_cudas_own_headers():
    source = (
        "#include <cuda_fp16.h>\n" + 'extern "C" __global__ void f(__half* x) { x[0] = __hadd(x[0], x[1]); }'
    )
    assert "f16" in cuda.compile_ptx(source)


def test_ptx_error_and_bad_target():
    with pytest.raises(cuda.BuildError, match=r"kernel.cu, line 4: identifier .j. is undefined"):
        cuda.compile_ptx(SQUARE.replace("y[i] = x[i]", "y[i] = x[j]"))
    with pytest.raises(ValueError, match="sm_90"):
        cuda.compile_ptx(SQUARE, target="hopper")


def test_an_outdated_target_is_an_error_that_lists_the_known_ones():
    with pytest.raises(cuda.BuildError, match=r"NVRTC \d+\.\d+ .*sm_30.* sm_\d+, .*\.$"):
        cuda.compile_ptx(SQUARE, target="sm_30")


@pytest.mark.parametrize(
    ("torch_cuda", "line"),
    [
        ("12.8", r'pip install "cuda-toolkit\[cudart,nvrtc\]==12\.8\.\*"$'),
        (None, r'pip install "cuda-toolkit\[cudart,nvrtc\]"$'),
    ],
)
def test_without_nvrtc_the_error_has_the_command_to_install_it(monkeypatch, torch_cuda, line):
    """`compile_ptx` and the doctor say the same line; a lesson could not run."""
    monkeypatch.setattr(toolkit, "find_nvrtc", lambda *_: None)
    monkeypatch.setattr(torch.version, "cuda", torch_cuda)
    with pytest.raises(device.Missing, match="^NVRTC .*" + line):
        cuda.compile_ptx(SQUARE)
    survey = device.survey()
    assert not survey.ok
    assert re.search(r"--  NVRTC +missing\n.*\n +to install: " + line, survey.doctor(), re.MULTILINE)


def test_another_nvrtc_version_compiles_and_the_doctor_names_it(monkeypatch):
    """To read PTX any NVRTC will do."""
    found = dataclasses.replace(device.nvrtc(), torch_cuda=f"{device.nvrtc().version[0] - 1}.8")
    monkeypatch.setattr(toolkit, "find_nvrtc", lambda *_: found)
    assert ".entry" in cuda.compile_ptx(SQUARE)
    survey = device.survey()
    assert survey.ok and f"!!  {found.problem}" in survey.doctor() and found.problem in repr(survey)


def test_missing_headers_are_named_if_a_kernel_includes_one(monkeypatch):
    found = dataclasses.replace(device.nvrtc(), include=None)
    monkeypatch.setattr(toolkit, "find_nvrtc", lambda *_: found)
    with pytest.raises(
        cuda.BuildError, match=r'"cuda_fp16\.h"[^$]*\nCUDA\'s headers .* are missing: pip install'
    ):
        cuda.compile_ptx(f"#include <cuda_fp16.h>\n{SQUARE}")
