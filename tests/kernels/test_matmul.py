"""helpers.kernels.matmul: right for every size, stride and dtype, interpreted and on a GPU; and what its rule
launches on different GPUs.

As in test_ops, each way of running the kernels has a process of its own, in which this file is the script.
"""

from __future__ import annotations

import json
import random
import sys

import kernel_cases
import pytest
from kernel_cases import CHIPS

REFUSED = {
    "sizes": "(m, k) and (k, n)",
    "dtypes": "the same dtype",
    "float64": "torch.float64",
    "bias": "pass (6,)",
    "precision": "ieee, tf32",
    "tf32 for bfloat16": "leave it out",
    "no scales": "scale_a and scale_b",
}


def run_cases(where: str, seed: int) -> dict[str, str]:
    """Every case on one device; called in a process of its own."""
    import torch
    from torch.nn import functional

    from helpers import check
    from helpers.kernels import matmul, ops

    random.seed(seed)
    torch.manual_seed(seed)
    results: dict[str, str] = {}
    large = where == "cuda"

    def case(name, run):
        try:
            results[name] = run() or "right"
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"

    def randn(*shape, dtype=torch.float32):
        return torch.randn(shape, device=where).to(dtype)

    def agrees(ours, theirs, shape, dtype, layout=lambda a, b: (a, b), **more):
        def make(shape, generator, device, dtype):
            m, k, n = shape
            a = torch.randn(m, k, generator=generator, device=device).to(dtype)
            b = torch.randn(k, n, generator=generator, device=device).to(dtype)
            return (*layout(a, b), torch.randn(n, generator=generator, device=device).to(dtype))

        check.assert_matches(
            ours, theirs, shapes=[shape], dtype=dtype, device=where, make_inputs=make, **more
        )

    def product(a, b, bias):
        return ops.matmul(a, b)

    def product_gelu(a, b, bias):
        return ops.matmul(a, b, bias, gelu=True)

    def theirs(a, b, bias):
        return a @ b

    def theirs_gelu(a, b, bias):
        return functional.gelu(a @ b + bias, approximate="tanh")

    # Sizes: empty, one, around a tile, few rows, few columns, much k, several tiles
    sizes = [
        (0, 4, 5),
        (4, 0, 5),
        (4, 5, 0),
        (1, 1, 1),
        (3, 5, 7),
        (63, 64, 65),
        (130, 70, 129),
        (16, 600, 40),
    ]
    sizes += [(1, 513, 300), (40, 900, 1), (200, 33, 300)]
    if large:
        sizes += [
            (2048, 512, 2048),
            (4096, 1024, 4096),
            (4095, 1025, 4097),
            (8, 8192, 8192),
            (1, 4096, 65537),
        ]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for shape in sizes:
            name = f"{shape} {str(dtype).removeprefix('torch.')}"
            case(name, lambda s=shape, d=dtype: agrees(product, theirs, s, d, precision="ieee") and "")
            case(
                f"{name}, bias and GELU",
                lambda s=shape, d=dtype: agrees(product_gelu, theirs_gelu, s, d, precision="ieee") and "",
            )
    case(
        "TF32",
        lambda: agrees(
            lambda a, b, bias: ops.matmul(a, b, precision="tf32"), theirs, (300, 500, 200), torch.float32,
            precision="tf32",
        ),
    )  # fmt: skip

    layouts = {
        "both transposed": lambda a, b: (a.T.contiguous().T, b.T.contiguous().T),
        "every second column": lambda a, b: (
            a.repeat_interleave(2, 1)[:, ::2],
            b.repeat_interleave(2, 1)[:, ::2],
        ),
        "rows of odd length": lambda a, b: (
            torch.cat([a, a[:, :1]], 1)[:, :-1],
            torch.cat([b, b[:, :1]], 1)[:, :-1],
        ),
        "one element past an aligned address": lambda a, b: (
            torch.cat([a.flatten()[:1], a.flatten()])[1:].view(a.shape),
            torch.cat([b.flatten()[:1], b.flatten()])[1:].view(b.shape),
        ),
        "expanded": lambda a, b: (a[:1].expand(a.shape), b[:, :1].expand(b.shape)),
    }
    for layout, change in layouts.items():
        for shape in [(70, 136, 72), (2048, 264, 4096)] if large else [(70, 136, 72)]:
            case(
                f"{layout}, {shape}",
                lambda s=shape, c=change: agrees(product, theirs, s, torch.float16, c) and "",
            )

    def far():
        """Offsets past 2**31, with strides that fit into 32 bits."""
        stride = 2**30 + 8
        memory = torch.empty(2 * stride + 64, dtype=torch.float16, device=where)
        a = memory.as_strided((3, 40), (stride, 1))
        a.copy_(torch.arange(120, device=where).reshape(3, 40) % 7 / 4)
        expected = a.double() @ a.double().T
        check.assert_close("rows far apart", ops.matmul(a, a.T), expected)
        check.assert_close("columns far apart", ops.matmul(a.T, a), a.double().T @ a.double())

    case("offsets past 2**31", far)

    def fp8(shape, **more):
        m, k, n = shape
        a, b = randn(m, k).to(matmul.FP8), randn(n, k).to(matmul.FP8).T
        scales = torch.rand(m, device=where) + 0.5, torch.rand(n, device=where) + 0.5
        got = matmul.matmul_forward(a, b, scale_a=scales[0], scale_b=scales[1], **more)
        expected = (a.double() * scales[0].double()[:, None]) @ (b.double() * scales[1].double())
        if got.dtype != torch.bfloat16:
            return f"{got.dtype}"
        size = expected.square().mean().sqrt()
        off = ((got.double() - expected).abs() / (expected.abs() + size)).max().item()
        return f"off by {off}" if off > 2**-7 else ""  # the interpreter rounds to bfloat16 less exactly

    if not large or torch.cuda.get_device_capability() >= (8, 9):
        case("fp8", lambda: fp8((70, 300, 130)))
        case("fp8, several tiles", lambda: fp8((4096, 1024, 4096)) if large else "")

    # Gradients, and what PyTorch makes of the operator
    def gradient(gelu):
        tensors = [randn(33, 50), randn(50, 20), randn(20)]
        ours = [t.clone().requires_grad_() for t in tensors]
        wide = [t.double().requires_grad_() for t in tensors]
        g = randn(33, 20)
        got = torch.autograd.grad(ops.matmul(*ours, gelu=gelu), ours, g)
        expected = theirs_gelu(*wide) if gelu else wide[0] @ wide[1] + wide[2]
        exact = torch.autograd.grad(expected, wide, g.double())
        for name, one, other in zip(("a", "b", "bias"), got, exact, strict=True):
            check.assert_close(f"the gradient of {name}", one, other, tolerance=(1e-4, 1e-4))

    case("gradients", lambda: gradient(False))
    case("gradients through GELU", lambda: gradient(True))
    case(
        "opcheck",
        lambda: (
            torch.library.opcheck(
                torch.ops.kernel_workbook.matmul.default,
                (randn(9, 8).requires_grad_(), randn(8, 7).requires_grad_(), randn(7).requires_grad_()),
            )
            and ""
        ),
    )

    def compiled():
        function = torch.compile(
            lambda a, b: ops.matmul(a, b).sin(), fullgraph=True,
            backend="inductor" if large else "aot_eager",
        )  # fmt: skip
        for n in (20, 24, 33):
            a, b = randn(10, n), randn(n, 12)
            check.assert_close(
                "compiled", function(a, b), (a.double() @ b.double()).sin(), tolerance=(1e-4, 1e-4)
            )

    case("torch.compile", compiled)

    def poisoned():
        with check.poisoned():
            return "" if ops.matmul(randn(70, 20), randn(20, 65)).isfinite().all() else "not all written"

    case("every element is written", poisoned)
    a, b = randn(4, 5), randn(5, 6)
    case("sizes", lambda: ops.matmul(a, a) and "")
    case("dtypes", lambda: ops.matmul(a, b.half()) and "")
    case("float64", lambda: ops.matmul(a.double(), b.double()) and "")
    case("bias", lambda: ops.matmul(a, b, randn(5)) and "")
    case("precision", lambda: ops.matmul(a, b, precision="fp64") and "")
    case("tf32 for bfloat16", lambda: ops.matmul(a.bfloat16(), b.bfloat16(), precision="tf32") and "")
    case("no scales", lambda: matmul.matmul_forward(a.to(matmul.FP8), b.to(matmul.FP8)) and "")
    return results


@pytest.fixture(scope="module", params=kernel_cases.ways())
def results(request) -> dict[str, str]:
    return kernel_cases.results_of(__file__, request.param)


@pytest.mark.seeded
def test_every_valid_case_is_right(results):
    wrong = {name: result for name, result in results.items() if name not in REFUSED and result != "right"}
    assert not wrong
    assert len(results) > 75


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_inputs_are_refused(results, name):
    assert results[name].startswith("ValueError: ") and REFUSED[name] in results[name]
    assert "\n" not in results[name]


# The rule -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("gpu", ("T4", "A100", "L4", "H100", "B200"))
def test_every_plan_fits_into_shared_memory(gpu):
    import torch

    from helpers.kernels.matmul import DTYPES, plan_matmul

    chip = CHIPS[gpu]
    for dtype in DTYPES:
        for m, n, k in [(1, 1, 1), (8, 8192, 8192), (100, 100, 100000), (700, 900, 50), (8192, 8192, 8192)]:
            plan = plan_matmul(m, n, k, dtype, described=chip.capability >= (9, 0), chip=chip)
            loaded = (plan.block_m + plan.block_n) * plan.block_k * dtype.itemsize * plan.num_stages
            stored = plan.block_m * plan.block_n // 2 * (2 if dtype.itemsize == 1 else dtype.itemsize)
            assert loaded + stored * (plan.kernel == "descriptors") < chip.shared_bytes, plan
            assert plan.num_stages > 1, plan
            assert 1 <= plan.parts <= max(1, k // plan.block_k), plan
    for m, n in ((8, 1024), (8, 8192), (4096, 4096)):
        plan = plan_matmul(m, n, 8192, torch.float16, chip=chip)
        assert 2 * plan.n_tiles(m, n) * plan.parts >= chip.n_sms  # at least half of the SMs have work
    assert plan.parts == 1


def test_what_the_product_becomes_on_each_target():
    """No tensor core through Triton on a T4, and each later generation's own instruction."""
    from helpers import ptx
    from helpers.kernels import matmul

    found = {}
    for target in ("sm_75", "sm_80", "sm_90", "sm_100"):
        kernel = matmul.matmul_tiles_kernel
        sizes = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "PRECISION": "ieee"}
        sizes |= {"IMPRECISE": None, "SCALED": False, "BIAS": False, "GELU": False}
        sizes |= {"stride_ak": 1, "stride_bn": 1, "stride_cn": 1}
        pointers = {name: "*fp16" if name in ("c_ptr", "a_ptr", "b_ptr") else "*fp32"
                    for name in kernel.arg_names if name.endswith("_ptr")}  # fmt: skip
        numbers = {name: "i32" for name in kernel.arg_names if name not in sizes and name not in pointers}
        stages = ptx.stages(
            kernel, signature=pointers | numbers, constexprs=sizes, target=target, num_warps=8
        )
        names = ("wgmma.mma_async", "tcgen05.mma", "mma.sync", "fma.rn.f32")
        found[target] = next(name for name in names if name in stages.ptx)
    assert found == {
        "sm_75": "fma.rn.f32", "sm_80": "mma.sync", "sm_90": "wgmma.mma_async", "sm_100": "tcgen05.mma",
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run_cases(sys.argv[1], int(sys.argv[2]))))
