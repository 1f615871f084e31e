"""`workbook verify` on candidates of all kinds, as somebody would call it."""

from __future__ import annotations

import json
import re
import textwrap
import time

import pytest
import torch
import verify_runs
from commands import ROOT
from verify_runs import verify

from helpers import device
from workbook.sandbox.process import Limits
from workbook.verify.arguments import other_values
from workbook.verify.forms import is_data
from workbook.verify.problem import BEYOND, CONTRACT, Candidate, Case
from workbook.verify.suspect import Suspect

PROBLEM = """
import torch
from torch import nn

n_rows, n_cols = 8, 200

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)

def get_inputs():
    return [torch.rand(n_rows, n_cols)]

def get_init_inputs():
    return []
"""
RIGHT = """
import torch
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(out, x, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    at = tl.program_id(0) * n + cols
    v = tl.load(x + at, mask=cols < n, other=-float("inf"))
    v = tl.exp(v - tl.max(v, 0))
    tl.store(out + at, v / tl.sum(v, 0), mask=cols < n)

def softmax(x):
    x = x.contiguous()
    out = torch.empty_like(x, device="cuda")
    softmax_kernel[(x.shape[0],)](out, x, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return softmax(x)
"""


def verdict_of(candidate, folder, problem=PROBLEM):
    return verify_runs.verdict_of(candidate, folder, problem)


def test_a_right_kernel_is_accepted_and_a_page_shows_its_code(tmp_path):
    (tmp_path / "mine.py").write_text(RIGHT)
    ran = verify(
        "mine.py:softmax", "--reference", "torch.softmax", "--shapes", "4x130", "--html", "page.html",
        cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[2] == "Accepted: the candidate is right and honest."
    page = (tmp_path / "page.html").read_text()
    assert "softmax_kernel[(x.shape[0],)]" in page and "Accepted" in page and "http" not in page.lower()


@pytest.mark.parametrize(
    ("body", "check", "accepted_by_benchmark"),
    [
        ("return torch.empty_like(x)", "never-written", False),
        ("return torch.softmax(x.half(), 1).float()", "low-precision", True),
        ("y = torch.softmax(x, 1); x.zero_(); return y", "changed-input", True),
        ("return seen.setdefault(x.data_ptr(), (x, torch.softmax(x, 1)))[1]", "stale-result", True),
    ],
    ids=["never-written", "low-precision", "changed-input", "stale-result"],
)
def test_frauds_are_found_and_compared_with_the_benchmarks_own_tolerance(
    tmp_path, body, check, accepted_by_benchmark
):
    source = f"""
        import torch

        seen = {{}}

        class ModelNew(torch.nn.Module):
            def forward(self, x):
                {body}
        """
    status, verdict, text = verdict_of(source, tmp_path)
    assert status == 1
    assert check in [one["check"] for one in verdict["findings"]], text
    assert verdict["tolerance_accepts"] is accepted_by_benchmark
    assert "Rejected" in text and check in text


def test_other_parameters_are_tried_and_taken_back(tmp_path):
    """What comes after that check must meet the model with the reference's parameters again."""
    problem = """
        import torch
        from torch import nn

        n_rows, n_cols = 8, 200

        class Model(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(n))

            def forward(self, x):
                return x * self.weight

        def get_inputs():
            return [torch.rand(n_rows, n_cols)]

        def get_init_inputs():
            return [n_cols]
        """
    source = """
        import torch

        class ModelNew(torch.nn.Module):
            def __init__(self, n):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(n))

            def forward(self, x):
                return self.weight * x
        """
    status, verdict, text = verdict_of(source, tmp_path, textwrap.dedent(problem))
    assert status == 0, text
    assert {one["severity"] for one in verdict["findings"]} <= {"note"}, text


BATCH_NORM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.BatchNorm1d(n)

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(32, 20)]

def get_init_inputs():
    return [20]
"""


@pytest.mark.parametrize(("momentum", "status"), [("self.norm.momentum", 0), ("0.0", 1)])
def test_a_models_buffers_are_compared(tmp_path, momentum, status):
    """In training mode, batch normalization computes from its input alone and keeps averages for later."""
    candidate = f"""
        import torch
        from torch import nn

        class ModelNew(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.norm = nn.BatchNorm1d(n)

            def forward(self, x):
                norm, n = self.norm, len(x)
                var, mean = torch.var_mean(x, 0, correction=0)
                norm.running_mean.lerp_(mean, {momentum})
                norm.running_var.lerp_(var * n / (n - 1), {momentum})
                return (x - mean) * torch.rsqrt(var + norm.eps) * norm.weight + norm.bias
        """
    found, verdict, _ = verdict_of(candidate, tmp_path, BATCH_NORM)
    assert found == status, verdict["findings"]
    wrong = {one["check"] for one in verdict["findings"] if one["severity"] == "wrong"}
    assert wrong == ({"skipped-work"} if status else set())


def test_a_random_reference_is_not_judged(tmp_path):
    problem = PROBLEM.replace("torch.softmax(x, dim=1)", "nn.functional.dropout(x, 0.5)")
    source = """
        import torch

        class ModelNew(torch.nn.Module):
            def forward(self, x):
                return torch.nn.functional.dropout(x, 0.5)
        """
    status, _, text = verdict_of(source, tmp_path, problem)
    assert status == 3 and "draws random numbers" in text, text


@pytest.mark.parametrize(
    ("formula", "returned", "status"),
    [
        ("x.mean(1), {'b': x.amin(1), 'a': x.amax(1)}", "x.mean(1), (x.amax(1), x.amin(1))", 0),
        ("torch.max(x, 1)", "torch.max(x, 1)", 0),
        ("x.t()", "x.t()", 0),
        ("x.mean(1)", "[x.mean(1)]", 1),
        ("x.mean(1)", "x.mean(1).to_sparse()", 1),
        ("torch.complex(x, x)", "torch.complex(x, -x).conj()", 0),
    ],
    ids=["nested", "torch's own tuple", "a view", "a list", "sparse", "conjugate"],
)
def test_results_of_all_forms(tmp_path, formula, returned, status):
    problem = PROBLEM.replace("torch.softmax(x, dim=1)", formula)
    source = f"""
        import torch

        class ModelNew(torch.nn.Module):
            def forward(self, x):
                return {returned}
        """
    found, _, text = verdict_of(source, tmp_path, problem)
    assert found == status, text


@pytest.mark.skipif(device.has_gpu(), reason="README shows what a machine without a GPU prints")
def test_the_readmes_verification_prints_what_the_readme_shows():
    def stable(text):
        return re.sub(r"\d+ s\.|bubblewrap [\d.]+", "…", text)

    shown = (ROOT / "README.md").read_text().partition("$ workbook verify ")[2].partition("```")[0]
    command, *lines = shown.strip().splitlines()
    ran = verify(*command.split(), cwd=ROOT)
    assert ran.returncode == 1
    printed = stable(ran.stdout).splitlines()
    assert [line for line in lines if line.strip() != "…" and stable(line) not in printed] == []


def test_a_fraud_cannot_read_the_problem_or_the_verifiers_memory(tmp_path):
    source = """
        import gc
        import glob
        import torch

        searched = []

        def search():
            searched.append(True)
            for place in ("/root", "/home", "/tmp", "/var"):
                for path in glob.glob(f"{place}/**/softmax_problem.py", recursive=True)[:1]:
                    raise SystemExit(open(path).read())
            for one in gc.get_objects():
                if type(one).__name__ in ("Problem", "Case"):
                    raise SystemExit("found the problem")

        class ModelNew(torch.nn.Module):
            def forward(self, x):
                searched or search()
                return torch.softmax(x, 1)
        """
    status, verdict, text = verdict_of(source, tmp_path)
    assert status == 1 and verdict["is_right"], text
    assert {one["check"] for one in verdict["findings"] if one["severity"] == "dishonest"} == {"peeks"}


def test_outputs_of_the_call_before_can_be_passed_again():
    text = "def f(x, out):\n    if out[0] != x[0]:\n        out.copy_(x)\n"
    candidate = Candidate("f.py", {"f.py": text}, "f.py::f")
    limits, until = Limits(60, 600, 8000, sandboxed=False), time.monotonic() + 600
    x, changed = torch.arange(4.0), torch.tensor([0.0, 1, 2, 9])
    case = Case("4", (x,), outputs=(((4,), torch.float32),))
    with Suspect(candidate, limits, until, None, interpret=not device.has_gpu()) as suspect:
        suspect.load()
        suspect.put("x", case.args)
        assert torch.equal(suspect.call("x", case).results[0], x)
        suspect.write("x", (changed,))
        assert torch.equal(suspect.call("x", case, again=True).results[0], x)
        assert torch.equal(suspect.call("x", case).results[0], changed)


def test_what_the_verifier_keeps_between_calls_is_not_the_candidates_leak():
    text = "import torch\n\ndef f(x):\n    return [x + torch.rand_like(x) for _ in range(6)]\n"
    candidate = Candidate("f.py", {"f.py": text}, "f.py::f")
    limits = Limits(60, 600, 8000, sandboxed=False)
    until = time.monotonic() + 600
    with Suspect(candidate, limits, until, None, interpret=not device.has_gpu()) as suspect:
        suspect.load()
        case = Case("64 × 4,096", (torch.rand(64, 4096),))
        suspect.put("a", case.args)
        suspect.call("a", case)
        found = suspect.repeat("a", case, 20, budget_s=0)
    assert found["n_calls"] == found["n_distinct"] + 1 < 20
    assert found["grown"]["tensors"] <= 0 and found["grown"]["gpu_bytes"] <= 0


@pytest.mark.skipif(device.has_gpu(), reason="it is judged on a GPU")
def test_what_needs_a_gpu_is_not_judged_without_one(tmp_path):
    source = """
        import torch

        class ModelNew(torch.nn.Module):
            def forward(self, x):
                stream = torch.cuda.Stream()
                return torch.softmax(x, 1)
        """
    status, verdict, text = verdict_of(source, tmp_path)
    assert status == 3 and verdict["blocked"], text
    assert text.splitlines()[2].startswith("Not judged")


def test_a_candidate_that_hangs_is_stopped(tmp_path):
    (tmp_path / "hangs.py").write_text("import time\ndef f(x):\n    time.sleep(600)\n")
    ran = verify(
        "hangs.py:f", "--reference", "torch.square", "--shapes", "4x4", "--time-limit", 3, cwd=tmp_path
    )
    assert ran.returncode == 1
    assert re.search("ran (for more than 3 s|past its time)", ran.stdout), ran.stdout


@pytest.mark.parametrize(
    "body",
    [
        'raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")',
        'print("RuntimeError: CUDA error: out of memory", file=sys.stderr, flush=True); os._exit(1)',
    ],
)
def test_a_gpu_that_others_have_filled_is_no_mistake(tmp_path, body):
    (tmp_path / "mine.py").write_text(f"import os, sys\nimport torch\n\ndef f(x):\n    {body}\n")
    ran = verify("mine.py:f", "--reference", "torch.square", "--shapes", "4x4", cwd=tmp_path)
    assert ran.returncode == 3, ran.stdout
    assert "memory is full" in ran.stdout


TUNED = """
import torch
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.jit
def softmax_kernel(out, x, n_rows, n, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        at = row * n + cols
        v = tl.load(x + at, mask=cols < n, other=-float("inf"))
        v = tl.exp(v - tl.max(v, 0))
        tl.store(out + at, v / tl.sum(v, 0), mask=cols < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        assert x.is_cuda
        x = x.contiguous()
        out = torch.empty_like(x)
        grid = (min(len(x), torch.cuda.get_device_properties(x.device).multi_processor_count),)
        with torch.cuda.device(x.device):
            softmax_kernel[grid](out, x, *x.shape)
        return out
"""


def test_a_kernel_that_asks_about_the_gpu_and_is_autotuned_is_judged(tmp_path):
    status, _, text = verdict_of(TUNED, tmp_path)
    assert status == 0, text


SLOW = """
import time
import triton

def square(x):
    time.sleep({seconds})
    return x * x
"""


@pytest.mark.skipif(device.has_gpu(), reason="on a GPU, a kernel has no reason to be slow")
@pytest.mark.parametrize(("seconds", "status"), [(600, 3), (0.8, 0)])
def test_a_slow_kernel_is_not_rejected_where_it_is_interpreted(tmp_path, seconds, status):
    """0.8 s are too long for twenty calls, but not for one."""
    (tmp_path / "mine.py").write_text(SLOW.format(seconds=seconds))
    ran = verify(
        "mine.py:square", "--reference", "torch.square", "--shapes", "4x4", "--time-limit", 10, cwd=tmp_path
    )
    assert ran.returncode == status, ran.stdout


def test_cuda_code_may_use_all_of_pytorchs_headers(tmp_path):
    """Our stand-in for them has no `vec()` and no operators."""
    candidate = """
        import torch
        from torch.utils.cpp_extension import load_inline

        CUDA = r'''
        #include <torch/extension.h>

        __global__ void square_kernel(const float* x, float* y, int64_t n) {
            int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
            if (i < n) y[i] = x[i] * x[i];
        }

        torch::Tensor square(torch::Tensor x) {
            auto shape = x.sizes().vec();
            auto y = torch::empty(shape, x.options());
            auto from = x.contiguous() * 1;
            int64_t n = x.numel();
            square_kernel<<<(n + 127) / 128, 128>>>(from.data_ptr<float>(), y.data_ptr<float>(), n);
            return y;
        }
        '''
        CPP = "torch::Tensor square(torch::Tensor x);"
        built = load_inline(name="own_square", cpp_sources=CPP, cuda_sources=CUDA, functions=["square"])

        def square(x):
            return built.square(x)
        """
    (tmp_path / "mine.py").write_text(textwrap.dedent(candidate))
    ran = verify("mine.py:square", "--reference", "torch.square", "--shapes", "4x40", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["kernelbench", "problem.py"], "takes problem.py candidate.py"),
        (["kernelbench", "missing.py", "mine.py"], "missing.py can't be read"),
        (["tensara", "a", "b"], "is not a format"),
        (["mine.py:f"], "--reference"),
        (["mine.py:f", "--reference", "torch.nothing", "--shapes", "4x4"], "there is no such function"),
        (["mine.py:f", "--reference", "torch.square"], "--shapes"),
        (["mine.py:f", "--reference", "torch.square", "--shapes", "4by4"], '"4by4"'),
        (["mine.py:f", "--reference", "torch.square", "--shapes", "4x4", "--dtype", "int3"], "--dtype int3"),
    ],
)
def test_a_wrong_command_gets_one_sentence(refusal, tmp_path, words, says):
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "mine.py").write_text("def f(x):\n    return x * x\n")
    assert says in refusal("verify", *words)


def test_masks_and_sorted_values_keep_their_values():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(4, 50, generator=generator)
    assert is_data(x)
    assert not is_data(x.sort(dim=-1).values)
    assert not is_data((x < 0.5).float())
    assert not is_data(torch.arange(5))


def test_other_values_of_ordinary_size_belong_to_the_problem():
    x = torch.rand(4, 50, generator=torch.Generator().manual_seed(0))
    roles = {case.label.removeprefix("x, "): case.role for case in other_values(Case("x", (x,)), seed=1)}
    beyond = {
        "zeros",
        "values × 1,000",
        "values × 0.001",
        "rows of different size",
        "one NaN",
        "infinities",
    }
    assert {label for label, role in roles.items() if role == BEYOND} == beyond
    assert {role for label, role in roles.items() if label not in beyond} == {CONTRACT}


EXAMPLES = ROOT / "tests" / "verify_examples"


@pytest.mark.parametrize(
    "words",
    [
        ("flashinfer", "flashinfer/definition.json", "flashinfer/workload.jsonl", "flashinfer/solution.json"),
        ("flashinfer", "solexecbench/definition.json", "solexecbench/workload.jsonl",
         "solexecbench/solution.json"),
        ("gpumode", "gpumode/softmax", "gpumode/softmax/submission.py"),
    ],
    ids=["flashinfer-trace", "sol-execbench", "gpumode"],
)  # fmt: skip
def test_every_format_is_judged_from_end_to_end(words):
    ran = verify(*words, cwd=EXAMPLES)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    text = " ".join(ran.stdout.split())
    assert "own tolerance" in text and "accepts its results" in text


CUDA = """
#include <torch/extension.h>

__global__ void scale_rows(float* y, const float* x, const float* weight, float eps, int n_rows, int n_cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n_rows) return;
    float sum = 0;
    for (int i = 0; i < n_cols; i++) sum += x[row * n_cols + i] * x[row * n_cols + i];
    float scale = 1 / sqrtf(sum / n_cols + eps);
    for (int i = 0; i < n_cols; i++) y[row * n_cols + i] = x[row * n_cols + i] * scale * weight[i];
}

void run(torch::Tensor x, torch::Tensor weight, double eps, torch::Tensor y) {
    auto x32 = x.to(torch::kFloat32).contiguous(), weight32 = weight.to(torch::kFloat32).contiguous();
    auto y32 = torch::empty_like(x32);
    int n_rows = x.size(0), n_cols = x.size(1);
    scale_rows<<<(n_rows + 31) / 32, 32>>>(
        y32.data_ptr<float>(), x32.data_ptr<float>(), weight32.data_ptr<float>(), eps, n_rows, n_cols);
    y.copy_(y32);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""


def test_a_cuda_solution_is_compiled_and_judged(tmp_path):
    folder = EXAMPLES / "flashinfer"
    solution = json.loads((folder / "solution.json").read_text())
    solution["spec"] |= {"language": "cuda", "entry_point": "main.cu::run", "dependencies": []}
    solution["sources"] = [{"path": "main.cu", "content": CUDA}]
    (tmp_path / "solution.json").write_text(json.dumps(solution))
    ran = verify(
        "flashinfer", folder / "definition.json", folder / "workload.jsonl", "solution.json", cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
