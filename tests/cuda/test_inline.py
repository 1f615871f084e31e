"""`load_inline` and `load`: torch's calls, on a machine without a GPU. Each build takes a second or two."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch
from torch.utils import cpp_extension

from helpers import cuda
from helpers.cuda import inline

ROOT = Path(__file__).parents[2]

SQUARE = r"""
#include <c10/cuda/CUDAException.h>
#include <torch/types.h>

__global__ void square_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}

torch::Tensor square(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    square_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""
DECLARED = "torch::Tensor square(torch::Tensor x);"


@pytest.fixture(scope="module", autouse=True)
def on_the_host(tmp_path_factory):
    """A build folder of this file's own, and no GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBOOK_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(inline.device, "has_gpu", lambda: False)
        yield


@pytest.fixture(scope="module")
def square(on_the_host):
    module = cuda.load_inline(
        name="inline_square", cpp_sources=DECLARED, cuda_sources=SQUARE, functions=["square"]
    )
    return module.square


def test_the_wrapper_runs_as_it_is_written(square):
    assert torch.equal(square(torch.tensor([1.0, 2.0, 3.0])), torch.tensor([1.0, 4.0, 9.0]))
    m = torch.arange(12.0).reshape(3, 4)
    assert torch.equal(square(m.t()), m.t().square())  # empty_like keeps the strides
    assert square(m[:, ::2]).flatten()[1] == 1  # m[0, 1], which is not the second of the view


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (torch.ones(3, dtype=torch.float64), RuntimeError, "expected scalar type Float but found Double"),
        (torch.ones(3, dtype=torch.int32), RuntimeError, "expected scalar type Float but found Int"),
        (torch.ones(0), RuntimeError, "CUDA error: invalid configuration argument"),
        (3, TypeError, r"square\(\): argument 1 is of type int; it takes a torch.Tensor"),
    ],
)
def test_the_wrapper_raises_pytorchs_errors(square, given, error, says):
    with pytest.raises(error, match=says):
        square(given)


def test_torch_compile_cannot_look_into_it(square):
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(lambda t: square(t) + 1, fullgraph=True, backend="eager")(torch.ones(3))


ABOUT = r"""
#include <torch/extension.h>

std::string about(const torch::Tensor& x) {
    std::ostringstream to;
    to << x.dim() << " " << x.size(-1) << " " << x.stride(0) << " " << x.sizes().size() << " " <<
        x.scalar_type()
       << " " << x.device() << " " << x.is_contiguous() << x.is_cpu() << " " << x.element_size() << " " <<
           x.nbytes();
    return to.str();
}
torch::Tensor made(torch::Tensor x, int64_t n) {
    return torch::zeros({n, 2}, x.options().dtype(torch::kInt64)); }
torch::Tensor viewed(torch::Tensor x) { return x.t().view({-1}); }
torch::Tensor refused(torch::Tensor x) {
    TORCH_CHECK(x.dim() == 2, "refused: two dimensions, not ", x.dim()); return x.contiguous(); }
"""


@pytest.fixture(scope="module")
def about(on_the_host):
    names = {"about": "", "made": "", "viewed": "", "refused": ""}
    return cuda.load_inline(name="inline_about", cpp_sources=[ABOUT], functions=names)


def test_properties_of_a_tensor(about):
    assert about.about(torch.ones(2, 3, dtype=torch.float16).t()) == "2 2 1 2 Half cpu 01 2 12"


def test_tensors_are_made_by_pytorch(about):
    made = about.made(torch.ones(1), 3)
    assert made.dtype == torch.int64 and torch.equal(made, torch.zeros(3, 2, dtype=torch.int64))
    x = torch.ones(2, 3)
    assert about.refused(x) is x


def test_errors_cross_into_python(about):
    with pytest.raises(RuntimeError, match="refused: two dimensions, not 1"):
        about.refused(torch.ones(3))
    with pytest.raises(RuntimeError, match="view size is not compatible"):  # PyTorch's own
        about.viewed(torch.ones(2, 3))


SEVERAL = r"""
#include <torch/extension.h>
#include <tuple>
#include <vector>

std::vector<torch::Tensor> both(torch::Tensor x) { return {x, torch::zeros_like(x)}; }
std::tuple<torch::Tensor, int64_t> counted(torch::Tensor x) { return {x, x.numel()}; }
torch::Tensor second(std::vector<torch::Tensor> xs) { return xs.at(1); }
"""


def test_vectors_and_tuples_pass():
    built = cuda.load_inline(
        name="inline_several", cpp_sources=SEVERAL, functions=["both", "counted", "second"]
    )
    x = torch.arange(3.0)
    same, zeros = built.both(x)
    assert same is x and torch.equal(zeros, torch.zeros(3))
    assert built.counted(x) == (x, 3)
    assert built.second([x, zeros]) is zeros and built.second((zeros, x)) is x
    with pytest.raises(TypeError, match="takes a list"):
        built.second(x)
    with pytest.raises(IndexError):
        built.second([x])


def test_the_same_source_is_built_once(square):
    again = cuda.load_inline(
        name="inline_square", cpp_sources=DECLARED, cuda_sources=SQUARE, functions="square"
    )
    assert again.square is square
    assert cuda.info(again).emulated and cuda.info(again).seconds < 60


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            SQUARE.replace("torch::empty_like(x)", "torch::softmax(x, 0)"),
            r"(?s)line 11: .*softmax.*stand-in replaces",
        ),
        (SQUARE.replace("x.numel()", "x.storage()"), r"(?s)no member named 'storage'.*stand-in"),
        (SQUARE.replace("int i =", 'asm("trap;"); int i ='), "inline PTX"),
        ("#include <cub/cub.cuh>\n" + SQUARE, "line 1: .*needs a GPU"),
    ],
)
def test_unsupported_features_are_named(text, says):
    with pytest.raises(cuda.BuildError, match=says):
        cuda.load_inline(name="inline_refused", cpp_sources=DECLARED, cuda_sources=text, functions=["square"])


def test_bad_arguments():
    given = {"name": "inline_bad", "cpp_sources": DECLARED}
    with pytest.raises(ValueError, match="names at least one function"):
        cuda.load_inline(**given, functions=[])
    with pytest.raises(ValueError, match="with_pytorch_error_handling=False"):
        cuda.load_inline(**given, functions=["square"], no_implicit_headers=True)
    with pytest.raises(ValueError, match="names at least one file"):
        cuda.load(name="inline_bad", sources=[])
    with pytest.raises(FileNotFoundError):
        cuda.load(name="inline_bad", sources=["not_here.cpp"])
    with pytest.raises(TypeError):
        cuda.load_inline(
            "inline_bad", DECLARED, functions=["square"]
        )  # torch has sycl_sources before functions


@pytest.mark.parametrize(
    ("ours", "torchs"),
    [(cuda.load_inline, cpp_extension.load_inline), (cuda.load, cpp_extension.load)],
)
def test_the_keywords_are_torchs(ours, torchs):
    known = inspect.signature(torchs).parameters
    for name, parameter in inspect.signature(ours).parameters.items():
        assert parameter.kind is parameter.KEYWORD_ONLY and name in known
        if parameter.default is not parameter.empty:
            assert parameter.default == known[name].default


BINDING = r"""
#include <pybind11/pybind11.h>
void twice(int64_t x, int64_t y, int n);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
"""
TWICE = r"""
#include <cstdint>
__global__ void twice_kernel(const float* x, float* y, int n) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
void twice(int64_t x, int64_t y, int n) { twice_kernel<<<1, 32>>>((const float*)x, (float*)y, n); }
"""


def test_files_are_built_and_checked(tmp_path):
    (tmp_path / "binding.cpp").write_text(BINDING)
    (tmp_path / "twice.cu").write_text(TWICE)
    files = [tmp_path / "binding.cpp", str(tmp_path / "twice.cu")]
    module = cuda.load(name="inline_twice", sources=files, extra_cuda_cflags=["-O2"])
    x, y = torch.rand(32), torch.empty(32)
    module.twice(x.data_ptr(), y.data_ptr(), 32)
    assert torch.equal(y, 2 * x)
    short = torch.rand(20)
    with pytest.raises(cuda.emulator.EmulatorError, match="reads element 20 of `x`"):
        module.twice(short.data_ptr(), y.data_ptr(), 20)
    with pytest.raises(ValueError, match=r"one \.cu file"):
        cuda.load(name="inline_twice", sources=[*files, tmp_path / "twice.cu"])


@pytest.mark.gpu
def test_the_lessons_first_cell_runs_with_torchs_import(tmp_path):
    lesson = nbformat.read(ROOT / "notebooks" / "02_load_inline.ipynb", as_version=4)
    (cell,) = (c.source for c in lesson.cells if c.id == "first-kernel")
    imported = "from helpers.cuda import load_inline"
    assert imported in cell
    text = cell.replace(imported, "from torch.utils.cpp_extension import load_inline")
    before = (
        "import os, pathlib\nfrom helpers import device\nfor tool in map(device.find_tool, ('ninja', "
        "'nvcc')):\n"
    )
    before += "    os.environ['PATH'] += os.pathsep + str(tool.parent)\n"
    after = "\nassert mine.square(torch.tensor([3.0], device='cuda')).item() == 9"
    environment = {"TORCH_EXTENSIONS_DIR": str(tmp_path)}
    program = f"import os\nos.environ.update({environment!r})\n{before}{text}{after}"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
