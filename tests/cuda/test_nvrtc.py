"""NVRTC: CUDA C++ to PTX and to machine code, without nvcc and without a GPU."""

import pytest

from helpers import cuda

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
