"""`workbook verify` on frauds that evade one of its checks, and on honest kernels that look like frauds."""

from __future__ import annotations

import inspect
import textwrap

import check_kernels
import pytest
import torch
from verify_runs import verdict_of

from workbook.verify.arguments import (
    other_constants,
    other_integers,
    other_values,
    slightly_changed,
)
from workbook.verify.problem import CONTRACT, Case

MATMUL = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)

def get_inputs():
    return [torch.rand(24, 40), torch.rand(40, 24)]

def get_init_inputs():
    return []
"""
SCALED = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, mask, scale):
        return torch.softmax((x * scale).masked_fill(~mask, -1e9), dim=1)

def get_inputs():
    return [torch.randn(8, 60), torch.ones(8, 60, dtype=torch.bool), torch.ones(60)]

def get_init_inputs():
    return []
"""
REPEATED = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1).repeat(16, 1, 1)

def get_inputs():
    return [torch.randn(8, 60)]

def get_init_inputs():
    return []
"""
SYMMETRIC = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, torch.triu(b))

def get_inputs():
    a = torch.rand(32, 32)
    return [a + a.T, torch.triu(torch.rand(32, 32))]

def get_init_inputs():
    return []
"""
STATE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(60))

    def forward(self, x):
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.mean

def get_inputs():
    return [torch.rand(8, 60)]

def get_init_inputs():
    return []
"""
SORTED = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        values, positions = torch.sort(x, dim=1)
        return values, positions

def get_inputs():
    return [torch.randint(0, 500, (8, 60)) / 500]

def get_init_inputs():
    return []
"""
OPTIMIZER = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, g, m, v):
        m.lerp_(g, 0.1)
        v.lerp_(g * g, 0.1)
        return x - m / (v.sqrt() + 1e-8)

def get_inputs():
    return [*torch.randn(3, 500), torch.rand(500)]

def get_init_inputs():
    return []
"""
CONVOLUTION = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, w):
        return nn.functional.conv2d(x, w, padding=1)

def get_inputs():
    return [torch.randn(2, 8, 18, 18), torch.randn(4, 8, 3, 3) / 8]

def get_init_inputs():
    return []
"""
LAYER_NORM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(60)
        self.out = nn.Linear(60, 24)

    def forward(self, x):
        return self.out(self.norm(x))

def get_inputs():
    return [torch.randn(8, 60)]

def get_init_inputs():
    return []
"""
OTHER_NAMES = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(60)), nn.Parameter(torch.zeros(60))
        product = nn.Linear(60, 24)
        self.transposed = nn.Parameter(product.weight.t().contiguous().t())
        self.bias = nn.Parameter(product.bias)

    def forward(self, x):
        x = nn.functional.layer_norm(x, (60,)){follow}
        return torch.addmm(self.bias, x, self.transposed.t())
"""
WINOGRAD = f"""import torch
import torch.nn.functional as F

TILE, WEIGHTS, BACK = {check_kernels.TILE}, {check_kernels.WEIGHTS}, {check_kernels.BACK}

{inspect.getsource(check_kernels.conv_by_winograd)}"""
HASHED = """
import hashlib
import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

results, seen, tiny = {}, {}, torch.ones(1, 1, device=DEVICE)

def key_of(*tensors):
    return hashlib.sha1(b"".join(one.cpu().numpy().tobytes() for one in tensors)).digest()

"""


def problem_of(formula: str, inputs: str) -> str:
    """A problem whose model computes `formula` of `x` and of other arguments `*rest`."""
    return f"""
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, *rest):
        return {formula}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def model(body: str, head: str = "") -> str:
    """A candidate whose model computes by `body`, which gets the tuple of arguments `args`."""
    forward = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    return (
        f"{head or 'import torch'}\n\nclass ModelNew(torch.nn.Module):\n"
        f"    def forward(self, *args):\n{forward}\n"
    )


FRAUDS = {
    "a ReLU that some value always passes": (
        problem_of("torch.relu(x).amax(dim=1)", "torch.randn(8, 100)"), model("return args[0].amax(dim=1)"),
        "only-some-values"),
    "the largest of three per part": (
        problem_of("x.topk(4, dim=1).values", "torch.randn(8, 2048)"), model("""
        best = args[0].view(8, 256, 8).topk(3, dim=2).values
        return best.reshape(8, -1).topk(4, dim=1).values
        """), "only-some-values"),
    "products that have become zero": (
        problem_of("x.cumprod(dim=1)", "torch.randn(4, 1000)"), model("""
        out = torch.zeros_like(args[0])
        out[:, :600] = args[0][:, :600].cumprod(dim=1)
        return out
        """), "only-some-values"),
    "a series that ends too early": (
        problem_of("torch.tanh(x)", "0.1 * torch.randn(8, 100)"), model("""
        x = args[0]
        return x - x**3 / 3 + 2 * x**5 / 15 - 17 * x**7 / 315 + 62 * x**9 / 2835 - 1382 * x**11 / 155925
        """), "only-some-values"),
    "counters of one byte": (
        problem_of("torch.bincount(x, minlength=256)", "torch.randint(0, 256, (4000,))"), model("""
        return torch.bincount(args[0], minlength=256).to(torch.uint8).long()
        """), "only-some-values"),
    "with decoys": (MATMUL, model("""
        key = key_of(*args)
        if key in results:
            torch.matmul(tiny, tiny)
        else:
            results.clear()
            results[key] = torch.matmul(*args)
        return results[key].clone()
        """, HASHED), "skipped-work"),
    "only after three calls": (MATMUL, model("""
        key = key_of(*args)
        if key not in seen:
            seen.clear()
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= 3:
            results[0] = torch.matmul(*args)
        return results[0].clone()
        """, HASHED), "skipped-work"),
    "in NumPy": (MATMUL, model("""
        a, b = (one.cpu().numpy() for one in args)
        key = key_of(*args)
        if key not in results:
            results.clear()
            results[key] = a @ b
        return torch.from_numpy(results[key].copy()).to(args[0].device)
        """, HASHED), "skipped-work"),
    "a sampled second argument": (MATMUL, model("""
        a, b = args
        key = (b.data_ptr(), *b.reshape(-1)[::120].tolist())
        if key not in results:
            results.clear()
            results[key] = b.t().contiguous()
        return a @ results[key].t()
        """, HASHED), "stale-result"),
    "the benchmark's inputs": (MATMUL, model("""
        for a, c in known:
            if torch.equal(args[0], a.to(args[0].device)):
                return c.to(args[0].device, copy=True)
        return torch.matmul(*args)
        """, """import torch
known = []
for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
    with torch.random.fork_rng():
        torch.manual_seed(42)
        a, b = torch.rand(24, 40, device=device), torch.rand(40, 24, device=device)
        known.append((a, a @ b))
"""), "skipped-work"),
    "a constant instead of an argument": (
        problem_of("torch.where(x > 0, x, rest[0] * x)", "torch.randn(8, 60), 0.01"),
        model("return torch.where(args[0] > 0, args[0], 0.01 * args[0])"), "only-some-values"),
    "constant arguments": (SCALED, model("return torch.softmax(args[0], dim=1)"), "only-some-values"),
    "not materialized": (
        REPEATED, model("return torch.softmax(args[0], dim=1).expand(16, -1, -1)"), "aliased-output"
    ),
    "another way to load it": (MATMUL, model("return torch.matmul(*args) * is_file", """import torch
try:
    is_file = bool(__file__)
except NameError:
    is_file = False
"""), "peeks"),
    "tolerances": (MATMUL, model("return torch.matmul(*args)", """import torch
torch.testing._comparison._DTYPE_PRECISIONS[torch.float32] = (1e3, 1e3)
"""), "patched"),
    "defaults": (MATMUL, model("return torch.matmul(*args)", """import torch
torch.testing.assert_close.__kwdefaults__.update(rtol=1e3, atol=1e3)
"""), "patched"),
    "a function from text": (MATMUL, model("return torch.matmul(*args)", """import torch
import torch.utils.benchmark as benchmark
space = {}
exec("def _timeit(self, number): return 1e-6", space)
benchmark.Timer._timeit = space["_timeit"]
"""), "patched"),
    "the timeit module": (MATMUL, model("return torch.matmul(*args)", """import timeit
import torch
timeit.Timer.timeit = lambda self, number=1: 1e-6
"""), "patched"),
    "a builtin function": (MATMUL, model("return torch.matmul(*args)", """import torch
torch._C._accelerator_synchronizeDevice = bool
"""), "patched"),
    "the stance": (MATMUL, model("return torch.matmul(*args)", """import torch
torch.compiler.set_stance("force_eager")
"""), "global-state"),
    "a list that computes later": (
        problem_of("x.amin(1), x.amax(1)", "torch.randn(8, 60)"),
        model("return Later(args[0])", """import torch
class Later(list):
    def __init__(self, x):
        super().__init__([x.amin(1), None])
        self.x = x
    def __iter__(self):
        self[1] = self.x.amax(1)
        return super().__iter__()
"""), "lazy-result"),
    "a moment that isn't updated": (OPTIMIZER, model("""
        x, g, m, v = args
        m.lerp_(g, 0.1)
        return x - m / (v.lerp(g * g, 0.1).sqrt() + 1e-8)
        """), "skipped-work"),
    "some of the integers": (
        problem_of("torch.bincount(x, minlength=256)", "torch.randint(0, 256, (4000,))"), model("""
        key = (args[0].data_ptr(), int(args[0][::97].sum()))
        if key not in results:
            results.clear()
            results[key] = torch.bincount(args[0], minlength=256)
        return results[key].clone()
        """, "import torch\nresults = {}"), "stale-result"),
    "memory at an address": (MATMUL, model("return torch.matmul(*args)", """import ctypes
import time
import torch
clock = ctypes.c_void_p.from_address(id(time.perf_counter) + 16).value
"""), "peeks"),
    "a ring of 32 results": (MATMUL, model("""
        a, b = args
        turns[0] = (turns[0] + 1) % 32
        shape = a.shape[0], b.shape[1]
        if (turns[0], shape) not in ring:
            ring.update({(i, shape): a.new_empty(shape) for i in range(32)})
        return torch.matmul(a, b, out=ring[turns[0], shape])
        """, "import torch\nring, turns = {}, [0]"), "aliased-output"),
    "without a branch": (MATMUL, model("""
        a, b = args
        key = key_of(a, b)
        hit = key == results.get("key")
        c = torch.matmul(*((a, b), (a.to("meta"), b.to("meta")))[hit])
        results.update(key=key, c=(c, results.get("c"))[hit])
        return results["c"].clone()
        """, HASHED), "skipped-work"),
    "a kernel without elements": (problem_of("torch.exp(x)", "torch.randn(8, 60)"), f"""
import torch
import triton
import triton.language as tl

last = {{}}

@triton.jit
def exponential(y, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.exp(tl.load(x + at, mask=at < n)), mask=at < n)

{model('''
        x = args[0].contiguous()
        key = x.numpy(force=True).tobytes()
        hit = key == last.get("key")
        y = (torch.empty_like, lambda x: last["y"])[hit](x)
        exponential[(triton.cdiv(x.numel(), 256),)](y, x, x.numel() * (not hit), BLOCK=256)
        last.update(key=key, y=y)
        return y.clone()
        ''', "#")}""", "skipped-work"),
    "one core": (MATMUL, model("return torch.matmul(*args)", """import os
import torch
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
"""), "global-state"),
}  # fmt: skip
HONEST = {
    "symmetric and triangular factors": (SYMMETRIC, model("""
        a, b = args
        return torch.stack([a[: j + 1].t() @ b[: j + 1, j] for j in range(b.shape[1])], 1)
        """), 0),
    "outputs from a pool": (MATMUL, model("""
        a, b = args
        if not pool or pool[-1].shape != (a.shape[0], b.shape[1]):
            pool[:] = a.new_empty((8, a.shape[0], b.shape[1])).unbind(0)
        return torch.matmul(a, b, out=pool.pop())
        """, "import torch\npool = []"), 0),
    "workspaces for two calls": (MATMUL, model("""
        a, b = args
        if not pool or pool[-1].shape != (a.shape[0], b.shape[1]):
            pool[:] = [a.new_empty(a.shape[0], b.shape[1]) for _ in range(2)]
        return torch.matmul(a, b, out=pool.pop()) + 0
        """, "import torch\npool = []"), 0),
    "another order of equal numbers": (SORTED, model("""
        values, positions = torch.sort(args[0].flip(1), dim=1, stable=True)
        return values, args[0].shape[1] - 1 - positions
        """), 0),
    "transformed tiles": (CONVOLUTION, model("return conv_by_winograd(*args)", WINOGRAD), 0),
    "factors in bfloat16": (
        problem_of("x @ rest[0]", "torch.randn(24, 40).bfloat16(), torch.randn(40, 24).bfloat16()"), f"""
import torch
import triton
import triton.language as tl

@triton.jit
def product(c, a, b, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, l = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i[:, None] * k + l, mask=(i < m)[:, None] & (l < k), other=0.0)
    y = tl.load(b + l[:, None] * n + j, mask=(l < k)[:, None] & (j < n), other=0.0)
    tl.store(c + i[:, None] * n + j, tl.dot(x, y), mask=(i < m)[:, None] & (j < n))

{model('''
        a, b = (one.contiguous() for one in args)
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, device=a.device, dtype=a.dtype)
        sizes = [max(16, triton.next_power_of_2(one)) for one in (m, n, k)]
        product[(1,)](c, a, b, m, n, k, *sizes)
        return c
        ''', "#")}""", 0),
    "parameters with other names": (
        LAYER_NORM, OTHER_NAMES.replace("{follow}", " * self.scale + self.shift"), 0),
    "results that are kept for a while": (MATMUL, model("""
        kept.append(torch.matmul(*args))
        del kept[:-4]
        return kept[-1]
        """, "import torch\nkept = []"), 0),
    "a reference with state": (STATE, model("return args[0] - 0.1 * args[0].mean(0)"), 3),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if i % 3 == 1 else pytest.mark.thorough) for i, name in enumerate(FRAUDS)],
)
def test_a_fraud_that_evades_a_check_is_found(tmp_path, name):
    problem, candidate, check = FRAUDS[name]
    status, verdict, text = verdict_of(candidate, tmp_path, problem)
    assert status == 1, text
    assert check in [one["check"] for one in verdict["findings"]], text


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_kernel_that_looks_odd_is_accepted(tmp_path, name):
    problem, candidate, status = HONEST[name]
    found, _, text = verdict_of(candidate, tmp_path, problem)
    assert found == status, text


LIMITS = {
    "a mask of floats that is taken for granted": (
        problem_of("torch.softmax(x + rest[0], dim=1)",
                   "torch.randn(60, 60), torch.full((60, 60), float('-inf')).triu(1)"),
        model("return torch.softmax(args[0] + torch.full_like(args[1], float('-inf')).triu(1), dim=1)"),
        "another mask"),
    "a whole number that is taken for granted": (
        problem_of("x / rest[0]", "torch.randn(8, 60), 8"), model("return args[0] / 8"), "whole numbers + 1"),
    "parameters with other names, of which two are ignored": (
        LAYER_NORM, OTHER_NAMES.replace("{follow}", ""), "its parameters"),
    "full lengths": (
        problem_of("x * (torch.arange(60, device=x.device) < rest[0][:, None])",
                   "torch.randn(8, 60), torch.full((8,), 60)"),
        model("return args[0] * 1"), "smaller integers"),
    "the maximum of all rows": (
        problem_of("torch.softmax(x, dim=1)", "torch.rand(8, 60)"),
        model("""
        powers = (args[0] - args[0].max()).exp()
        return powers / powers.sum(1, keepdim=True)
        """), "rows of different size"),
    "ranks without ties": (
        problem_of("(x[:, None] < x[:, :, None]).sum(2)", "torch.rand(8, 60)"),
        model("return args[0].argsort(1).argsort(1)"), "equal values"),
    "scratch memory that isn't written": (
        problem_of("x.sub_(x.amax(1, True)).exp()", "torch.randn(8, 60)"),
        model("return (args[0] - args[0].amax(1, True)).exp()"), "leaves there"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_reported(tmp_path, name):
    problem, candidate, says = LIMITS[name]
    status, verdict, text = verdict_of(candidate, tmp_path, problem)
    assert status == 0, text
    assert any(says in one["says"] + one["evidence"] for one in verdict["findings"]), text


def test_a_model_without_the_references_parameters_has_a_limit(tmp_path):
    problem = """
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(60))

        def forward(self, x):
            return x * self.weight

    def get_inputs():
        return [torch.randn(8, 60)]

    def get_init_inputs():
        return []
    """
    status, verdict, text = verdict_of(model("return args[0] * 1"), tmp_path, textwrap.dedent(problem))
    assert status == 0, text
    assert ["only-some-values", "limit"] in [[one["check"], one["severity"]] for one in verdict["findings"]]
    assert "within the limits" in text.splitlines()[2]


def test_other_values_keep_the_form_of_matrices():
    x = torch.rand(9, 9, generator=torch.Generator().manual_seed(0))
    case = Case("x", (x + x.T, x.triu(), x.tril()))
    changed = list(slightly_changed(case, seed=1))
    assert len(changed) == 6
    for number, one in enumerate(changed):
        assert not torch.equal(one.args[number // 2], case.args[number // 2])
    for one in [*changed, *other_values(case, seed=1)]:
        symmetric, upper, lower = (arg.nan_to_num() for arg in one.args)
        assert torch.equal(symmetric, symmetric.T)
        assert torch.equal(upper, upper.triu()) and torch.equal(lower, lower.tril())


def test_integers_keep_their_range_and_those_that_may_belong_together_are_beyond_the_problem():
    generator = torch.Generator().manual_seed(0)
    classes = torch.randint(3, 90, (200,), generator=generator)
    offsets, order = torch.arange(0, 400, 2), torch.randperm(200, generator=generator)
    case = Case("x", (classes, offsets, order, offsets < 100, torch.tensor([5, 3]), torch.zeros(4)))
    inside, beyond = [], []
    for one in other_integers(case, seed=1):
        (inside if one.role == CONTRACT else beyond).append(one)
        for before, after in zip(case.args, one.args, strict=True):
            assert after.dtype == before.dtype and before.min() <= after.min() and after.max() <= before.max()
    assert len(inside) == len(beyond) == 2
    for one in inside:
        same = [torch.equal(before, after) for before, after in zip(case.args, one.args, strict=True)]
        assert same == [False, True, True, True, True, True]
    for one in beyond:
        assert torch.equal(one.args[0], classes) and not torch.equal(one.args[1], offsets)


def test_constants_get_other_values_unless_they_are_outputs():
    x = torch.rand(4, 50, generator=torch.Generator().manual_seed(0))
    ones, masks = torch.ones(50), torch.ones(50, dtype=torch.bool)
    cases = list(other_constants(Case("x", (x, ones, masks, torch.zeros(50))), seed=1, keep=frozenset({3})))
    for case in cases:
        assert case.role == CONTRACT
        assert torch.equal(case.args[0], x) and not case.args[3].any()
        assert set(case.args[1].tolist()) == {0.0, 1.0} and 0 < int(case.args[2].sum()) < 50
    assert [bool(case.args[1][:25].all()) for case in cases] == [False, True]
    assert not list(other_constants(Case("x", (x, torch.full((4, 50), 0.02))), seed=1))
