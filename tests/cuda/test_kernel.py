"""A kernel to call: on a GPU by the driver, elsewhere as the host's build of the same text."""

import dataclasses
from pathlib import Path

import pytest
import torch

from helpers import cuda, device, toolkit
from helpers.cuda import cache, kernel, nvrtc


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBOOK_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_loaded", {})


SCALE = """
// __global__ void scale(int not_this_one)
__global__ void __launch_bounds__(256) scale(const float* __restrict__ x, float* y, double factor,
                                             /* how many */ const long long n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * factor;
}
extern "C" __global__ void other(unsigned int a) {}
"""


def test_a_kernel_to_call():
    """On a machine without a GPU the same call runs the host's build."""
    where = "cuda" if device.has_gpu() else "cpu"
    scale = cuda.load_kernel(SCALE, "scale")
    assert [f"{p.type} {p.name}" for p in scale.parameters] == [
        "const float* x",
        "float* y",
        "double factor",
        "const long long n",
    ]
    assert scale.where == where and scale.seconds > 0
    x = torch.randn(1000, device=where)
    for factor in (2.5, -1):
        y = torch.empty_like(x)
        scale(x, y, factor, x.numel(), grid=4, block=(256,))
        assert torch.equal(y, x * factor)


@pytest.mark.parametrize(
    ("arguments", "launch", "error", "message"),
    [
        ((1,), {}, TypeError, r"scale takes 4 arguments \(const float\* x, .*it was given 1"),
        (("x", None, 1, 1), {}, TypeError, "takes a tensor, an address or None; it was given 'x'"),
        (
            (torch.zeros(1, dtype=torch.float64), None, 1, 1),
            {},
            TypeError,
            "torch.float64 tensor; pass torch.float32",
        ),
        ((torch.zeros(1, device="meta"), None, 1, 1), {}, TypeError, "tensor on meta"),
        ((None, None, "2", 1), {}, TypeError, "double factor takes a number; it was given '2'"),
        ((None, None, 2, 1.5), {}, TypeError, "const long long n takes an integer; it was given 1.5"),
        ((None, None, 2, 2**63), {}, TypeError, "was given 9223372036854775808, which does not fit"),
        ((None, None, 2, 0), {"grid": 0}, ValueError, "grid must be one to three positive integers"),
        ((None, None, 2, 0), {"block": (1024, 2)}, ValueError, "at most 1,024 threads"),
    ],
)
def test_what_a_kernel_cannot_take(arguments, launch, error, message):
    def never(*_):
        raise AssertionError("it was launched")

    scale = kernel.LoadedKernel("scale", kernel.parameters(SCALE, "scale"), "cpu", 0.0, never)
    with pytest.raises(error, match=message):
        scale(*arguments, **{"grid": 1, "block": 1, **launch})


def test_kernels_that_cannot_be_loaded():
    with pytest.raises(ValueError, match=r"no kernel 'square' in this source; it has scale, other"):
        cuda.load_kernel(SCALE, "square")
    with pytest.raises(ValueError, match="is a template"):
        cuda.load_kernel("template <typename T>\n__global__ void f(T* x) {}", "f")
    with pytest.raises(ValueError, match=r"'Pair p' cannot be passed from Python"):
        cuda.load_kernel("struct Pair { int a, b; };\n__global__ void f(Pair p) {}", "f")
    with pytest.raises(cuda.BuildError, match="line 6"):
        cuda.load_kernel(SCALE.replace("* factor", "* fact"), "scale")
    with pytest.raises(ValueError, match='"auto", "cuda" or "emulator"; it was given'):
        cuda.load_kernel(SCALE, "scale", device="tpu")


def test_learners_notebooks_may_still_say_host():
    kernel = cuda.load_kernel(SCALE, "scale", device="host")
    assert kernel.where == "cpu"


@pytest.mark.parametrize(
    ("made_by", "torch_cuda", "here", "says"),
    [
        (
            (13, 5),
            "12.8",
            "sm_75",
            "torch is built for CUDA 12.8, but only NVRTC 13.5 is installed, and a driver for that CUDA may "
            "refuse its output: "
            'pip install "cuda-toolkit[cudart,nvrtc]==12.8.*"',
        ),
        (
            (12, 9),
            "12.9",
            "sm_75",
            'Update the driver, or take its CUDA\'s NVRTC: pip install "cuda-toolkit[cudart,nvrtc]==12.8.*"',
        ),
        ((12, 8), "12.8", "sm_75", "Update the driver."),
        (
            (12, 8),
            "12.8",
            "sm_90",
            "This GPU is sm_90: a kernel runs on the kind of GPU that it was loaded for.",
        ),
    ],
)
def test_a_driver_that_refuses_a_kernel_gets_one_sentence(made_by, torch_cuda, here, says):
    library = toolkit.Nvrtc(Path("libnvrtc.so"), Path("builtins.so"), made_by, Path("include"), torch_cuda)
    said = kernel.refusal("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", library, "sm_75", here, 12080)
    assert said == (
        f"The driver, which knows CUDA up to 12.8, refused what NVRTC {made_by[0]}.{made_by[1]} made for "
        "sm_75 "
        f"(CUDA_ERROR_UNSUPPORTED_PTX_VERSION). {says}"
    )


@pytest.mark.gpu
def test_what_this_driver_refuses_is_said_in_that_sentence():
    target = device.gpu_spec().target
    right = nvrtc.compile_kernel(SCALE, "scale", target=target)
    future = dataclasses.replace(
        right, code=f".version 99.9\n.target {target}\n.address_size 64\n\0".encode()
    )
    with pytest.raises(RuntimeError, match=r"refused what NVRTC .*CUDA_ERROR_UNSUPPORTED_PTX_VERSION"):
        kernel._GpuLaunch(future, target).function()
    other = "sm_75" if target != "sm_75" else "sm_90"
    with pytest.raises(RuntimeError, match=rf"made for {other} .*This GPU is {target}:"):
        kernel._GpuLaunch(nvrtc.compile_kernel(SCALE, "scale", target=other), other).function()
