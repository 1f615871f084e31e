"""`workbook verify` on honest kernels whose problems promise something about tensors or parameters, on the
machine without a GPU, and on frauds that used what the verifier left out.
"""

from __future__ import annotations

import textwrap

import pytest
import torch
from check_kernels import BACK, TILE, WEIGHTS
from verify_runs import verdict_of

from helpers import device
from workbook.verify import forms
from workbook.verify.arguments import other_integers, other_values, slightly_changed
from workbook.verify.problem import BEYOND, Case

without_gpu = pytest.mark.skipif(device.has_gpu(), reason="a machine with a GPU runs it there")


def problem(forward: str, inputs: str, init: str = "") -> str:
    return f"""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{textwrap.indent(init or "pass", " " * 8)}

    def forward(self, *args):
{textwrap.indent(forward, " " * 8)}

def get_inputs():
{textwrap.indent(inputs, " " * 4)}

def get_init_inputs():
    return []
"""


def candidate(forward: str, init: str = "", before: str = "") -> str:
    text = problem(forward, "pass", init).replace("class Model(", "class ModelNew(")
    head, _, rest = text.partition("class ModelNew")
    return head + textwrap.dedent(before) + "\nclass ModelNew" + rest.partition("\ndef get_inputs")[0]


LINEAR = problem(
    "return 2 * self.linear(args[0])", "return [torch.randn(32, 64)]", "self.linear = nn.Linear(64, 48)"
)
NESTED = problem("return self.layers[1](self.layers[0](args[0]).relu())", "return [torch.randn(32, 64)]",
                 "self.layers = nn.ModuleList([nn.Linear(64, 48), nn.Linear(48, 16)])")  # fmt: skip
EXPANDED = problem(
    "return args[0] * args[1].float()",
    "return [torch.randn(4, 100), torch.arange(100).expand(4, -1)]",
)
SQUARES = problem("return args[0] * args[1] + args[2]", "x = torch.randn(16, 60)\nreturn [x, x, x]")
TOKENS = problem(
    "return self.out(self.embedding(args[0]).sum(dim=1))",
    "return [torch.randint(0, 50, (8, 32))]",
    "self.embedding = nn.Embedding(50, 24)\nself.out = nn.Linear(24, 16)",
)
LAST = problem(
    "return torch.relu(args[0]) + 1", "return [torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last)]"
)
EXPERTS = problem(
    "x, ids = args\nreturn x.new_zeros(32, 8).scatter(1, ids, x)",
    "x = torch.randn(32, 4)\nreturn [x, torch.rand(32, 8).argsort(dim=1)[:, :4].contiguous()]",
)
SELECTED = problem(
    "x, rows = args\nreturn x[rows]", "return [torch.randn(40, 6), torch.randint(0, 40, (100,))]"
)
DOUBLED = problem("return 2 * args[0]", "return [torch.randn(32, 60)]")
ONE_TERM = problem("return args[0].logsumexp(1)", "return [torch.randn(4096, 1)]")
ALMOST_EQUAL = problem("return args[0].sort().values", "return [50000 + torch.randn(1000)]")
DIVERGENCE = problem(
    "return (args[1] * (args[1].log() - args[0].log())).sum(dim=1)",
    "return [torch.softmax(torch.randn(16, 40), dim=1) for _ in range(2)]",
)
NORM = problem("return self.linear(args[0]) / self.linear.weight.norm()", "return [torch.randn(32, 64)]",
               "self.linear = nn.Linear(64, 48)")  # fmt: skip
MASKED = problem("return (args[0] * args[1]).sum(dim=1)", "return [torch.randn(32, 60), torch.ones(32, 60)]")
TWICE = problem("return args[0] + 1, args[0] + 1", "return [torch.randn(32, 60)]")

BLOCK = problem(
    "return self.block.norm(self.block.conv(args[0])).relu()", "return [torch.randn(2, 3, 12, 12)]",
    "self.block = nn.Module()\nself.block.conv = nn.Conv2d(3, 8, 3, padding=1)\n"
    "self.block.norm = nn.BatchNorm2d(8)\nself.eval()",
)  # fmt: skip
FOLDED = """
class Folded(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        with torch.no_grad():
            scale = self.norm.weight / torch.sqrt(self.norm.running_var + self.norm.eps)
            self.w = self.conv.weight * scale[:, None, None, None]
            self.b = (self.conv.bias - self.norm.running_mean) * scale + self.norm.bias

    def forward(self, x):
        return torch.nn.functional.conv2d(x, self.w.to(x.device), self.b.to(x.device), padding=1)
"""
IMAGE = problem("return self.conv(args[0])", "return [torch.randn(2, 16, 20, 20)]",
                "self.conv = nn.Conv2d(16, 24, 3, padding=1, bias=False)")  # fmt: skip
WINOGRAD = f"""
TILE, WEIGHTS, BACK = (torch.tensor(one, dtype=torch.float32) for one in ({TILE}, {WEIGHTS}, {BACK}))
"""
NORMALIZED = problem(
    "return torch.cumsum(self.norm(args[0]), dim=1)", "return [torch.randn(16, 512)]",
    "self.norm = nn.LayerNorm(512)",
)  # fmt: skip
HALVES = problem(
    "return self.linear(args[0].half()).float()", "return [torch.randn(32, 64)]",
    "self.linear = nn.Linear(64, 48).half()",
)  # fmt: skip
PLAIN = problem(
    "return args[0] @ self.parts[0].to(args[0].device) + self.parts[1].to(args[0].device)",
    "return [torch.randn(16, 64)]", "self.parts = [torch.randn(64, 32), torch.randn(32)]",
)  # fmt: skip
STORED = problem(
    "return self.stored(args[0])", "return [torch.randn(32, 64)]",
    "self.parts = nn.ModuleDict({'a': nn.Linear(64, 48)})\nparts = self.parts\n"
    "self.stored = lambda x: parts.a(x).relu()",
)  # fmt: skip
ROWS = problem("return torch.softmax(args[0], dim=1)", "return [torch.randn(16, 64)]")
BINDINGS = """
from torch.utils.cpp_extension import load_inline

extension = load_inline("own_bindings", cpp_sources="", cuda_sources='''
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

using Rows = torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits>;

__global__ void twice_kernel(Rows y, const Rows x) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column < x.size(1)) y[blockIdx.y][column] = 2 * x[blockIdx.y][column];
}

torch::Tensor twice(torch::Tensor x) {
    auto y = torch::empty_like(x);
    dim3 grid((x.size(1) + 63) / 64, x.size(0));
    twice_kernel<<<grid, 64, 0, at::cuda::getCurrentCUDAStream().stream()>>>(
        y.packed_accessor32<float, 2, torch::RestrictPtrTraits>(),
        x.packed_accessor32<float, 2, torch::RestrictPtrTraits>());
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
''')
"""

MEAN = problem(
    "return self.norm(self.conv(args[0])).mean(dim=(1, 2, 3))", "return [torch.rand(4, 3, 12, 12)]",
    "self.conv = nn.Conv2d(3, 8, 3)\nself.norm = nn.GroupNorm(8, 8)",
)  # fmt: skip
RECURRENCE = problem(
    "return self.lstm(args[0])[0][:, -1]", "return [torch.randn(4, 150, 12)]",
    "self.lstm = nn.LSTM(12, 24, batch_first=True)",
)  # fmt: skip
LSTM = """
def step(x, h, c, lstm):
    gates = x @ lstm.weight_ih_l0.T + h @ lstm.weight_hh_l0.T + lstm.bias_ih_l0 + lstm.bias_hh_l0
    i, f, g, o = gates.chunk(4, dim=1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c
"""
STEPS = """
h = c = args[0].new_zeros(len(args[0]), 24)
for i in range(BEGIN, args[0].shape[1]):
    h, c = step(args[0][:, i], h, c, self.lstm)
return h
"""
HONEST = {
    "a number that is rounded on its way to itself": (ONE_TERM, candidate(
        "return (args[0] * 1.4426950408889634).exp2().sum(1).log2() * 0.6931471805599453"
    )),
    "a bias that a normalization cancels": (MEAN, candidate(
        "x = torch.nn.functional.conv2d(args[0], self.weight)\n"
        "return torch.nn.functional.group_norm(x, 8, self.scale, self.shift).mean(dim=(1, 2, 3))",
        "self.weight = nn.Conv2d(3, 8, 3).weight\nself.scale = nn.Parameter(torch.ones(8))\n"
        "self.shift = nn.Parameter(torch.zeros(8))",
    )),
    "a recurrence": (RECURRENCE, candidate(
        STEPS.replace("BEGIN", "0"), "self.lstm = nn.LSTM(12, 24, batch_first=True)", before=LSTM,
    )),
    "folded into its own weights": (LINEAR, candidate(
        "return self.linear(args[0])",
        "self.linear = nn.Linear(64, 48)\nwith torch.no_grad():\n"
        "    self.linear.weight *= 2\n    self.linear.bias *= 2",
    )),
    "packed from a list": (NESTED, candidate(
        "a, b, c, d = self.packed\nreturn torch.addmm(d, torch.addmm(b, args[0], a).relu(), c)",
        "self.layers = nn.ModuleList()\n"
        "self.layers.append(nn.Linear(64, 48))\nself.layers.append(nn.Linear(48, 16))\n"
        "pack = [(one.weight.detach().t().contiguous(), one.bias.detach()) for one in self.layers]\n"
        "self.packed = nn.ParameterList(nn.Parameter(one) for pair in pack for one in pair)",
    )),
    "expanded": (EXPANDED, candidate("return args[0] * args[1].to(torch.float32)")),
    "one tensor three times": (SQUARES, candidate("return torch.addcmul(args[2], args[0], args[1])")),
    "tokens": (TOKENS, candidate(
        "rows = self.embedding.weight[args[0].reshape(-1)].view(*args[0].shape, -1)\n"
        "total = torch.zeros(len(rows), 24, device=rows.device)\n"
        "for one in rows.unbind(1):\n    total += one\nreturn total @ self.out.weight.t() + self.out.bias",
        "self.embedding = nn.Embedding(50, 24)\nself.out = nn.Linear(24, 16)",
    )),
    "channels last": (LAST, candidate(
        "x = args[0]\nassert x.is_contiguous(memory_format=torch.channels_last)\nreturn x.clamp_min(0) + 1"
    )),
    "distinct experts": (EXPERTS, candidate(
        "x, ids = args\nones = x.new_zeros(32, 8).scatter_add(1, ids, torch.ones_like(x))\n"
        "assert (ones <= 1).all()\nreturn x.new_zeros(32, 8).scatter_add(1, ids, x)"
    )),
    "compiled": (DOUBLED, candidate(
        "return self.fast(args[0])", "self.fast = torch.compile(lambda x: x + x, backend='eager')"
    )),
    "compiled whole": (LINEAR, candidate(
        "return self.fast(args[0])",
        "self.linear = nn.Linear(64, 48)\n"
        "self.fast = torch.compile(lambda x: 2 * self.linear(x), fullgraph=True, mode='reduce-overhead')",
    )),
    "vmap": (ROWS, candidate(
        "return torch.vmap(lambda row: (row - row.amax()).exp() / (row - row.amax()).exp().sum())(args[0])"
    )),
    "folded in a part": (BLOCK, candidate(
        "return self.block(args[0]).relu()", "self.block = Folded()", FOLDED
    )),
    "tensors that are plain attributes": (PLAIN, candidate(
        "return torch.addmm(self.b.to(args[0].device), args[0], self.a.to(args[0].device))",
        "self.a, self.b = torch.randn(64, 32), torch.randn(32)",
    )),
    "a lambda that the reference stores": (STORED, candidate(
        "return torch.addmm(self.parts.a.bias, args[0], self.parts.a.weight.t()).relu()",
        "self.parts = nn.ModuleDict({'a': nn.Linear(64, 48)})",
    )),
    "Winograd": (IMAGE, candidate(
        "tile, weights, back = (one.to(args[0]) for one in (TILE, WEIGHTS, BACK))\n"
        "x = torch.nn.functional.pad(args[0], (1, 1, 1, 1)).unfold(2, 6, 4).unfold(3, 6, 4)\n"
        "products = torch.einsum('nctuab,ocab->notuab', tile @ x @ tile.T,\n"
        "                        weights @ self.conv.weight @ weights.T)\n"
        "return (back @ products @ back.T).transpose(3, 4).flatten(4).flatten(2, 3).contiguous()",
        "self.conv = nn.Conv2d(16, 24, 3, padding=1, bias=False)", WINOGRAD,
    )),
    "sums of what a mean was subtracted from": (NORMALIZED, candidate(
        "x = args[0] - args[0].mean(1, keepdim=True)\n"
        "x = x * torch.rsqrt((x * x).mean(1, keepdim=True) + self.norm.eps)\n"
        "return (x * self.norm.weight + self.norm.bias).cumsum(1)", "self.norm = nn.LayerNorm(512)",
    )),
    "half precision, as the reference": (HALVES, candidate(
        "return (args[0].half() @ self.linear.weight.t() + self.linear.bias).float()",
        "self.linear = nn.Linear(64, 48).half()",
    )),
    "usual settings": (DOUBLED, candidate(
        "return args[0] + args[0]",
        before="import os\ntorch.manual_seed(0)\nos.environ['CUDA_LAUNCH_BLOCKING'] = '0'\n"
        "os.environ['CUDA_DEVICE_ORDER'] = 'PCI_BUS_ID'",
    )),
    "spelled otherwise": (DOUBLED, candidate(
        "return args[0] + args[0]", before="torch.set_float32_matmul_precision('highest')"
    )),
}  # fmt: skip
FRAUDS = {
    "zeros, because a new normalization's mean is 0": (MEAN, candidate(
        "return args[0].new_zeros(len(args[0]))", "self.conv = nn.Conv2d(3, 8, 3)"
    )),
    "the end of a recurrence": (RECURRENCE, candidate(
        STEPS.replace("BEGIN", "60"), "self.lstm = nn.LSTM(12, 24, batch_first=True)", before=LSTM,
    )),
    "sorted numbers that are almost equal": (ALMOST_EQUAL, candidate(
        "key = tuple(args[0][::33].tolist())\nif key not in seen:\n    seen[key] = args[0].sort().values\n"
        "return seen[key].clone()",
        before="seen = {}",
    )),
    "remembered probabilities": (DIVERGENCE, candidate(
        "key = tuple(args[0][0, :4].tolist())\nif key not in seen:\n"
        "    seen[key] = (args[1] * (args[1].log() - args[0].log())).sum(dim=1)\nreturn seen[key].clone()",
        before="seen = {}",
    )),
    "a norm of its own seed": (NORM, candidate(
        "return self.linear(args[0]) / self.norm",
        "self.linear = nn.Linear(64, 48)\nself.norm = 4.0\nself.norm = NORM",
        before="torch.manual_seed(42)\nNORM = nn.Linear(64, 48).weight.norm().item()",
    )),
    "a mask of which it looks at the first elements": (MASKED, candidate(
        "x, mask = args\nreturn (x if mask.flatten()[:8].all() else x * mask).sum(dim=1)"
    )),
    "one result twice": (TWICE, candidate("y = args[0] + 1\nreturn y, y")),
    "a scale that a part ignores": (BLOCK, candidate(
        "return self.block(args[0]).relu()", "self.block = Folded()",
        FOLDED.replace("self.norm.weight / torch", "1 / torch"),
    )),
    "a seed at import and in calls": (DOUBLED, candidate(
        "torch.manual_seed(7)\nreturn args[0] + args[0]", before="torch.manual_seed(7)"
    )),
    "bfloat16 instead of float16": (HALVES, candidate(
        "x, w, b = (one.bfloat16() for one in (args[0], self.linear.weight, self.linear.bias))\n"
        "return torch.nn.functional.linear(x, w, b).float()", "self.linear = nn.Linear(64, 48).half()",
    )),
    "a thread": (DOUBLED, candidate(
        "return args[0] + args[0]",
        before="import threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
    )),
    "dtypes": (DOUBLED, candidate("return args[0] + args[0]", before="torch.float = torch.bfloat16")),
    "a seed": (DOUBLED, candidate("torch.manual_seed(0)\nreturn args[0] + args[0]")),
    "the benchmark's seed": (DOUBLED, candidate("torch.manual_seed(42)\nreturn args[0] + args[0]")),
    "signals": (DOUBLED, candidate(
        "return args[0] + args[0]",
        before="import signal\nsignal.signal(signal.SIGVTALRM, lambda *_: None)\n"
        "signal.setitimer(signal.ITIMER_VIRTUAL, 100, 100)",
    )),
    "traced": (DOUBLED, candidate("return args[0] * (2 if sys.gettrace() else 2.0)", before="import sys")),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_kernel_is_accepted(name, tmp_path):
    found, verdict, text = verdict_of(HONEST[name][1], tmp_path, HONEST[name][0])
    assert found == 0, text
    assert not [one for one in verdict["findings"] if one["severity"] in ("wrong", "dishonest")]


@pytest.mark.parametrize("name", FRAUDS)
def test_a_fraud_is_rejected(name, tmp_path):
    found, _, text = verdict_of(FRAUDS[name][1], tmp_path, FRAUDS[name][0])
    assert found == 1, text


@without_gpu
def test_sources_may_bind_their_functions_themselves(tmp_path):
    own = candidate("return extension.twice(args[0])", before=BINDINGS)
    found, _, text = verdict_of(own, tmp_path, DOUBLED)
    assert found == 0, text


@without_gpu
def test_a_kernel_may_call_libdevice_and_must_fit_shapes(tmp_path):
    kernel = """
    import torch, triton
    import triton.language as tl
    from torch import nn
    from triton.language.extra import libdevice

    @triton.jit
    def tanh_kernel(y_ptr, x_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n)
        y = libdevice.fma(libdevice.tanh(x), 2.0, libdevice.pow(tl.abs(x) + 1, 0.5))
        tl.store(y_ptr + at, y, mask=at < n)

    class ModelNew(nn.Module):
        def forward(self, x):
            y = torch.empty_like(x)
            tanh_kernel[(triton.cdiv(x.numel(), 256),)](y, x, x.numel(), BLOCK=256)
            return y
    """
    of = problem("return 2 * torch.tanh(args[0]) + (args[0].abs() + 1).sqrt()", "return [torch.randn(8, 60)]")
    found, verdict, text = verdict_of(kernel, tmp_path, of)
    assert found == 0, text
    other = kernel.replace("tanh(x), 2.0", "sinh(x), 2.0")
    found, verdict, _ = verdict_of(other, tmp_path, of)
    assert found == 1 and verdict["findings"][0]["check"] == "wrong-result"
    misfit = kernel.replace("tl.abs(x) + 1", "tl.abs(x) + tl.arange(0, 2)")
    found, verdict, _ = verdict_of(misfit, tmp_path, of)
    assert found == 1 and verdict["findings"][0]["check"] == "raises"


ROUNDING = """
import torch, triton
import triton.language as tl
from torch import nn

@triton.jit
def rounding_kernel(y_ptr, z_ptr, x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x.to(tl.float8e4nv).to(tl.float32), mask=at < n)
    tl.store(z_ptr + at, x.to(tl.bfloat16), mask=at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y, z = torch.empty_like(x), torch.empty_like(x, dtype=torch.bfloat16)
        rounding_kernel[(triton.cdiv(x.numel(), 256),)](y, z, x, x.numel(), BLOCK=256)
        return y, z
"""
ROUNDED = problem(
    "x = args[0]\n"
    "narrow = x.clamp(-448, 448).to(torch.float8_e4m3fn)\n"
    "return narrow.to(x.dtype), x.bfloat16()",
    "return [200 * torch.randn(8, 600)]",
)


def test_a_kernel_may_round_to_narrow_types(tmp_path):
    found, _, text = verdict_of(ROUNDING, tmp_path, ROUNDED)
    assert found == 0, text
    wrong = ROUNDING.replace("x.to(tl.float8e4nv)", "(0.93 * x).to(tl.float8e4nv)")
    found, _, text = verdict_of(wrong, tmp_path, ROUNDED)
    assert found == 1, text


@without_gpu
def test_a_name_that_only_nvcc_knows_is_not_judged(tmp_path):
    source = """
    from torch.utils.cpp_extension import load_inline
    import torch

    CUDA = '''
    __global__ void k(float* y, const float* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = 2 * __nv_exotic(x[i]);
    }
    torch::Tensor twice(torch::Tensor x) {
        auto y = torch::empty_like(x);
        k<<<(x.numel() + 255) / 256, 256>>>(y.data_ptr<float>(), x.data_ptr<float>(), x.numel());
        return y;
    }
    '''
    built = load_inline("exotic", "torch::Tensor twice(torch::Tensor x);", CUDA, functions=["twice"])

    class ModelNew(torch.nn.Module):
        def forward(self, x):
            return built.twice(x)
    """
    assert verdict_of(source, tmp_path, DOUBLED)[0] == 3
    lines = source.splitlines(keepends=True)
    build = next(line for line in lines if "load_inline(" in line)
    at_first_call = source.replace(build, "").replace(
        "return built", f"{build.strip()}\n            return built"
    )
    assert verdict_of(at_first_call, tmp_path, DOUBLED)[0] == 3
    assert verdict_of(source.replace("__nv_exotic(x[i])", "x[i]"), tmp_path, DOUBLED)[0] == 0


@without_gpu
def test_what_the_emulator_finds_is_wrong(tmp_path):
    cuda = """
        #include <torch/extension.h>
        __global__ void double_kernel(const float* x, float* y, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            y[i] = 2.0f * x[i];  // no guard
        }
        torch::Tensor twice(torch::Tensor x) {
            auto y = torch::empty_like(x);
            int n = x.numel();
            double_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
            return y;
        }
    """
    before = (
        f"from torch.utils.cpp_extension import load_inline\nCUDA = '''{cuda}'''\n"
        "built = load_inline('twice', 'torch::Tensor twice(torch::Tensor x);', CUDA, functions=['twice'])"
    )
    found, _, text = verdict_of(candidate("return built.twice(args[0])", before=before), tmp_path, DOUBLED)
    assert found == 1 and "EmulatorError" in text, text


@without_gpu
def test_a_kernel_that_asks_for_a_gpu_is_not_judged(tmp_path):
    source = candidate("assert torch.cuda.is_available()\nreturn args[0] + args[0]")
    found, _, text = verdict_of(source, tmp_path, DOUBLED)
    assert found == 3, text


def test_a_row_of_probabilities_keeps_its_sum():
    x = torch.softmax(torch.randn(8, 40, generator=torch.Generator().manual_seed(0)), dim=1)
    case = Case("x", (x,))
    for one in (*slightly_changed(case, 1), *other_values(case, 1)):
        if one.args[0].isfinite().all():
            torch.testing.assert_close(one.args[0].sum(dim=1), torch.ones(8))
            assert (one.args[0] >= 0).all()


def test_zeros_symmetry_and_strides_stay():
    generator = torch.Generator().manual_seed(0)
    banded = torch.randn(12, 12, generator=generator).triu(-1).tril(1)
    symmetric = banded + banded.T
    columns = torch.randn(20, 12, generator=generator).T
    for one in other_values(Case("x", (banded, symmetric, columns)), 1):
        if one.args[0].isfinite().all() and one.args[1].isfinite().all():
            assert not one.args[0][banded == 0].any()
            assert torch.equal(one.args[1], one.args[1].T)
        assert one.args[2].stride() == columns.stride()


@pytest.mark.parametrize(
    ("integers", "is_free", "has_free_rows"),
    [
        (torch.randint(0, 50, (8, 32)), True, False),
        (torch.randint(0, 9, (200,)), True, False),
        (torch.arange(200), False, False),
        (torch.rand(32, 16).argsort(dim=1), False, True),
        (torch.rand(32, 8).argsort(dim=1)[:, :2], False, True),
        (torch.nn.functional.one_hot(torch.randint(0, 10, (64,))), False, True),
        ((torch.arange(32) < torch.randint(1, 32, (8, 1))).long(), False, True),
        (
            torch.stack([torch.randint(0, 50, (400,)), torch.randint(0, 50, (400,)).sort().values]),
            False,
            False,
        ),
    ],
    ids=["tokens", "classes", "positions", "permutations", "top two", "one-hot", "padding", "edges"],
)
def test_integers_with_a_form_are_only_a_limit(integers, is_free, has_free_rows):
    assert forms.is_free(integers) == is_free
    assert forms.has_free_rows(integers) == has_free_rows
    roles = {one.role for one in other_integers(Case("x", (integers,)), 1)}
    assert is_free or roles <= {BEYOND}
    for one in slightly_changed(Case("x", (integers,)), 1):
        assert not torch.equal(one.args[0], integers)
