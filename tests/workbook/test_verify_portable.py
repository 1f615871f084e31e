"""workbook.verify.portable and wide: GPU sources on the CPU, and references in float64."""

from __future__ import annotations

import ast

import pytest
import torch

from workbook.verify.portable import on_cpu
from workbook.verify.wide import in_float64

SOURCE = '''\
import torch

def é(x, i):
    """On "cuda"."""
    y = torch.ones(4, device="cuda"); z = torch.empty(2, device=torch.device('cuda:1'))
    w = x.cuda(
        device="cuda:0",
        non_blocking=True,
    ).is_cuda
    assert x.is_cuda and x.device.type == "cuda"
    torch.cuda.synchronize(); print(f"cuda:{i}", rf'cuda', f"on {'cuda'}", "cudart", "my cuda")
    return y, z, w
'''


def test_devices_become_the_cpu_and_nothing_else_changes():
    assert on_cpu(SOURCE, "mine.py") == (
        SOURCE.replace('device="cuda")', 'device="cpu")')
        .replace("'cuda:1'", "'cpu'")
        .replace('cuda(\n        device="cuda:0",\n        non_blocking=True,\n    )', "cpu(\n\n\n)")
        .replace("is_cuda", "is_cpu")
        .replace('== "cuda"', '== "cpu"')
        .replace("f\"cuda:{i}\", rf'cuda', f\"on {'cuda'}\"", "f\"cpu:{i}\", rf'cpu', f\"on {'cpu'}\"")
    )


def test_each_statement_keeps_its_line():
    before, after = (
        [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
        for text in (SOURCE, on_cpu(SOURCE, "mine.py"))
    )
    assert before == after


def test_the_result_runs_on_a_machine_without_a_gpu():
    names: dict = {}
    source = 'import torch\nx = torch.ones(3, device="cuda").cuda()\nis_there = x.is_cuda\n'
    exec(on_cpu(source, "mine.py"), names)
    assert names["x"].device.type == "cpu" and names["is_there"]


def test_cuda_text_and_windows_line_ends_stay():
    source = 'CUDA = """\n__global__ void f() {}  // "cuda"\n"""\r\nx = f(device="cuda")\r\n'
    assert on_cpu(source, "mine.py") == source.replace('device="cuda"', 'device="cpu"')


def test_a_syntax_error_names_the_file():
    with pytest.raises(SyntaxError) as caught:
        on_cpu("x = (", "mine.py")
    assert caught.value.filename == "mine.py"


def normalized(x: torch.Tensor) -> torch.Tensor:
    """A reference that converts by itself."""
    total = torch.zeros(x.shape[0], device=x.device)
    total += x.float().square().sum(-1)
    return (x.to(torch.float32) * torch.rsqrt(total)[:, None]).to(x.dtype)


def test_a_reference_with_conversions_computes_in_float64():
    x = torch.randn(5, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = x / x.square().sum(-1, keepdim=True).sqrt()
    assert (normalized(x) - exact).abs().max() > 1e-9  # it rounds to float32 on the way
    assert (in_float64(normalized)(x) - exact).abs().max() < 1e-15
    assert torch.get_default_dtype() == torch.float32


def test_other_dtypes_are_left_alone():
    half = torch.ones(2, 2, dtype=torch.float16)
    assert in_float64(normalized)(half).dtype == torch.float16
    coded = in_float64(lambda x: (x.to(torch.float8_e4m3fn), x.int(), x.view(torch.int64)))(half.double())
    assert [one.dtype for one in coded] == [torch.float8_e4m3fn, torch.int32, torch.int64]
