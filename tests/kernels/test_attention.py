"""helpers.kernels.attention: right for every size, mask, stride and dtype, interpreted and on a GPU; its
gradients; and what its rules launch on different GPUs.

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
    "head size": "64 and 128",
    "three dimensions": "(batch, heads, length, head_size)",
    "dtypes": "the same dtype",
    "float64": "torch.float64",
    "heads": "enable_gqa=True",
    "group": "3 heads and k has 2",
    "lengths": "the same shape",
    "window": "at least 1",
    "negative scale": "positive",
    "precision": "ieee, tf32",
}


def exact(q, k, v, *, is_causal=False, window=None, scale=None):
    """Attention in plain PyTorch, and the log-sum-exp of the scores."""
    import torch

    group = q.shape[1] // max(k.shape[1], 1)
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    rows = torch.arange(q.shape[2], device=q.device)[:, None]
    cols = torch.arange(k.shape[2], device=q.device)[None]
    sees = (cols <= rows) | (not (is_causal or window))
    if window:
        sees = sees & (cols > rows - window)
    scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    scores = scores.masked_fill(~sees, -torch.inf)
    weights = torch.softmax(scores, 3).masked_fill(~sees, 0.0)  # not NaN if a query sees no key
    return weights @ v, torch.logsumexp(scores, 3)


def run_cases(where: str, seed: int) -> dict[str, str]:
    """Every case on one device; called in a process of its own."""
    import torch

    from helpers import check
    from helpers.kernels import attention, ops
    from helpers.kernels.attention_plan import AttentionPlan
    from helpers.kernels.chip import chip_of

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

    def agrees(shape, dtype, ours=None, layout=lambda x: x, **how):
        """shape: batch, heads, kv_heads, n_queries, n_keys, head_size"""

        def make(shape, generator, device, dtype):
            batch, heads, kv_heads, n_queries, n_keys, head_size = shape
            sizes = ((heads, n_queries), (kv_heads, n_keys), (kv_heads, n_keys))
            drawn = (
                torch.randn(batch, *size, head_size, generator=generator, device=device) for size in sizes
            )
            return tuple(layout(x.to(dtype)) for x in drawn)

        ours = ours or (lambda q, k, v: ops.attention(q, k, v, enable_gqa=True, **how))
        check.assert_matches(
            ours, lambda q, k, v: exact(q, k, v, **how)[0], shapes=[shape], dtype=dtype, device=where,
            make_inputs=make, precision="ieee", name="attention",
        )  # fmt: skip

    masks = {"full": {}, "causal": {"is_causal": True}, "window of 7": {"window": 7}}
    sizes = [(1, 1), (5, 17), (70, 70), (17, 40), (40, 17), (0, 5), (5, 0)]
    if large:
        sizes += [(16, 5000), (1, 20000), (1000, 1000), (513, 4097)]
    for name, how in masks.items():
        for n_queries, n_keys in sizes:
            case(f"{name}, {n_queries} queries, {n_keys} keys", lambda m=n_queries, n=n_keys, how=how: agrees(
                (1, 2, 2, m, n, 64), torch.float32, **how))  # fmt: skip
        for dtype in (torch.bfloat16, torch.float16):
            case(f"{name}, {dtype}", lambda d=dtype, how=how: agrees((1, 1, 1, 40, 40, 64), d, **how))
        case(f"{name}, grouped heads of 128", lambda how=how: agrees(
            (2, 4, 2, 33, 20, 128), torch.float16, **how))  # fmt: skip
    case("scale", lambda: agrees((1, 1, 1, 20, 20, 64), torch.float32, scale=0.7))
    case("a window wider than all keys", lambda: agrees((1, 1, 1, 20, 9, 64), torch.float32, window=50))

    layouts = {
        "heads inside": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        "part of a larger tensor": lambda x: torch.cat([x, x], 3)[..., : x.shape[3]],
        "every second column": lambda x: x.repeat_interleave(2, 3)[..., ::2],
        "one element past an aligned address": lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(
            x.shape
        ),
        "expanded": lambda x: x[:, :1, :1].expand(x.shape),
    }
    for name, layout in layouts.items():
        case(name, lambda layout=layout: agrees((2, 2, 2, 20, 20, 64), torch.float16, layout=layout))

    def planned(plan, **how):
        return lambda q, k, v: attention.attention_forward(q, k, v, plan=plan, **how)[0]

    block = 64 if large else 16
    plan = AttentionPlan("descriptors", block, block, 4, 2)
    for name, how in masks.items() if not large or chip_of().capability >= (9, 0) else ():
        case(f"descriptors, {name}", lambda how=how: agrees(
            (1, 4, 2, 20, 40, 64), torch.float16, planned(plan, **how), **how))  # fmt: skip
        if large:
            case(f"descriptors, {name}, long", lambda how=how: agrees(
                (1, 4, 2, 1000, 1000, 64), torch.float16, planned(plan, **how), **how))  # fmt: skip
    for parts in (1, 2, 8):
        plan = AttentionPlan("split", 16, 16, 4, 2, parts=parts)
        case(f"{parts} parts", lambda plan=plan: agrees((2, 8, 2, 3, 50, 64), torch.float32, planned(plan)))

    def log_sum_exp(plan=None, **how):
        q, k, v = randn(1, 4, 9, 64), randn(1, 2, 50, 64), randn(1, 2, 50, 64)
        lse = attention.attention_forward(q, k, v, plan=plan, **how)[1]
        expected = exact(q.double(), k.double(), v.double(), **how)[1]
        check.assert_close("the log-sum-exp", lse, expected, tolerance=(1e-5, 1e-5))

    for name, how in masks.items():
        case(f"log-sum-exp, {name}", lambda how=how: log_sum_exp(**how))
    case("log-sum-exp of parts", lambda: log_sum_exp(AttentionPlan("split", 32, 16, 4, 2, parts=4)))

    def unseen():
        """With 5 keys and a window of 3, the queries from 7 on see none."""
        o, lse = attention.attention_forward(
            randn(1, 1, 20, 64), randn(1, 1, 5, 64), randn(1, 1, 5, 64), window=3
        )
        return "" if not o[:, :, 7:].any() and (lse[:, :, 7:] == -torch.inf).all() else f"{o[0, 0, 7:]}"

    case("queries that see no key", unseen)

    def keeps_order():
        q, k = randn(2, 20, 3, 64).transpose(1, 2), randn(2, 3, 9, 64)
        return "" if ops.attention(q, k, k).transpose(1, 2).is_contiguous() else "another order"

    case("the result is in the order of q", keeps_order)

    def poisoned():
        with check.poisoned():
            return (
                "" if ops.attention(*(randn(1, 2, 33, 64) for _ in "qkv")).isfinite().all() else "unwritten"
            )

    case("every element is written", poisoned)

    # Gradients, and what PyTorch makes of the operator
    def gradients(m, n, heads=2, kv_heads=2, head_size=64, dtype=torch.float32, **how):
        shapes = ((heads, m), (kv_heads, n), (kv_heads, n))
        tensors = [randn(1, *shape, head_size, dtype=dtype) for shape in shapes]
        ours = [x.clone().requires_grad_() for x in tensors]
        wide = [x.double().requires_grad_() for x in tensors]
        g = randn(1, heads, m, head_size, dtype=dtype)
        got = torch.autograd.grad(ops.attention(*ours, enable_gqa=True, **how), ours, g)
        expected = torch.autograd.grad(exact(*wide, **how)[0], wide, g.double())
        near = (1e-4, 1e-4) if dtype == torch.float32 else (2e-2, 2e-2)
        for name, one, other in zip("qkv", got, expected, strict=True):
            if one.dtype != dtype:
                return f"the gradient of {name} is {one.dtype}"
            check.assert_close(f"the gradient of {name}", one, other.nan_to_num(), tolerance=near)

    for name, how in masks.items():
        for m, n in [(1, 1), (40, 40), (20, 33), (33, 5)] + ([(700, 700), (300, 1000)] if large else []):
            case(
                f"gradients, {name}, {m} queries, {n} keys", lambda m=m, n=n, how=how: gradients(m, n, **how)
            )
        case(f"gradients, {name}, grouped heads of 128", lambda how=how: gradients(
            17, 17, 4, 2, 128, torch.bfloat16, **how))  # fmt: skip
    case("gradients, no key", lambda: gradients(3, 0))
    case("gradients, scale", lambda: gradients(5, 7, scale=0.7))

    def checked_by_torch():
        qkv = [randn(1, 9, 2, 64).transpose(1, 2).requires_grad_() for _ in "qkv"]
        torch.library.opcheck(torch.ops.kernel_workbook.attention.default, (*qkv, True, None, None, "ieee"))

    case("opcheck", checked_by_torch)

    def compiled():
        function = torch.compile(
            lambda q, k, v: ops.attention(q, k, v, is_causal=True).sin(), fullgraph=True,
            backend="inductor" if large else "aot_eager",
        )  # fmt: skip
        for n in (20, 24, 33):
            q, k, v = (randn(1, 2, n, 64).requires_grad_() for _ in "qkv")
            wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
            o, expected = function(q, k, v), exact(*wide, is_causal=True)[0].sin()
            check.assert_close("compiled", o, expected, tolerance=(1e-4, 1e-4))
            got, others = torch.autograd.grad(o.sum(), q), torch.autograd.grad(expected.sum(), wide[0])
            check.assert_close("its gradient", *got, *others, tolerance=(1e-4, 1e-4))

    case("torch.compile", compiled)

    x, two = randn(1, 3, 5, 64), randn(1, 2, 5, 64)
    case("head size", lambda: ops.attention(*(randn(1, 1, 5, 96),) * 3))
    case("three dimensions", lambda: ops.attention(x[0], x[0], x[0]))
    case("dtypes", lambda: ops.attention(x, x.half(), x))
    case("float64", lambda: ops.attention(x.double(), x.double(), x.double()))
    case("heads", lambda: ops.attention(randn(1, 4, 5, 64), two, two))
    case("group", lambda: ops.attention(x, two, two, enable_gqa=True))
    case("lengths", lambda: ops.attention(x, x, randn(1, 3, 6, 64)))
    case("window", lambda: ops.attention(x, x, x, window=0))
    case("negative scale", lambda: ops.attention(x, x, x, scale=-1.0))
    case("precision", lambda: ops.attention(x, x, x, precision="fp64"))
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


# The rules ------------------------------------------------------------------------------------------------
def sizes():
    """Shapes of q and k: prefill, short, one query, grouped heads, many heads."""
    return (
        ((4, 16, 4096, 128), (4, 16, 4096, 128)),
        ((1, 2, 40, 64), (1, 2, 40, 64)),
        ((8, 32, 1, 128), (8, 8, 32768, 128)),
        ((64, 32, 16, 128), (64, 4, 100, 128)),
        ((1, 64, 1, 64), (1, 1, 70, 64)),
    )


@pytest.mark.parametrize("gpu", ("T4", "A100", "L4", "H100"))
def test_every_plan_fits_into_shared_memory(gpu):
    from helpers.kernels.attention_plan import plan_attention, plan_gradients
    from helpers.kernels.elementwise import DTYPES

    chip = CHIPS[gpu]
    for dtype in DTYPES:
        for q, k in sizes():
            for is_causal in (False, True):
                how = {"is_causal": is_causal, "described": chip.capability >= (9, 0), "chip": chip}
                plan = plan_attention(q, k, dtype, **how)
                keys, queries = plan_gradients(q, k, dtype, **how)
                row = q[3] * dtype.itemsize
                loads = [(plan, plan.block_m, 2 * plan.block_n), (keys, 2 * keys.block_n, 2 * keys.block_m)]
                loads += [(queries, 2 * queries.block_m, 2 * queries.block_n)]
                for one, resident, loaded in loads:
                    assert (resident + one.num_stages * loaded) * row < chip.shared_bytes, one
                assert plan.kernel != "split" or (not is_causal and q[2] <= plan.block_m)


def test_a_long_cache_is_split_until_the_gpu_is_full():
    import torch

    from helpers.kernels.attention_plan import plan_attention

    for chip in CHIPS.values():
        for batch in (1, 2, 8, 64):
            plan = plan_attention((batch, 32, 1, 128), (batch, 8, 1 << 17, 128), torch.float16, chip=chip)
            assert batch * 8 * plan.parts >= chip.n_sms
    full = plan_attention((64, 32, 1, 128), (64, 8, 1 << 17, 128), torch.float16, chip=CHIPS["H100"])
    assert full.parts == 1


def compiled_for(target, q_shape, k_shape, dtype, *, is_causal):
    """The kernels of a call and of its gradients, as they would be compiled for a GPU."""
    import torch

    from helpers import ptx
    from helpers.kernels import attention, attention_decode, attention_grad
    from helpers.kernels.attention_plan import plan_attention, plan_gradients

    chip = {"sm_75": CHIPS["T4"], "sm_80": CHIPS["A100"], "sm_90": CHIPS["H100"]}[target]
    how = {"is_causal": is_causal, "described": target == "sm_90", "chip": chip}
    plan, head_size = plan_attention(q_shape, k_shape, dtype, **how), q_shape[3]
    keys, queries = plan_gradients(q_shape, k_shape, dtype, **how)
    forward = {
        "tiles": attention.attention_tiles_kernel,
        "descriptors": attention.attention_descriptor_kernel,
        "split": attention_decode.attention_parts_kernel,
    }[plan.kernel]
    short = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype]
    for kernel, one in (
        (forward, plan),
        (attention_grad.key_gradients_kernel, keys),
        (attention_grad.query_gradients_kernel, queries),
    ):
        constexprs = {"BLOCK_M": one.block_m, "BLOCK_N": one.block_n, "HEADS": one.heads_in_turn}
        constexprs |= {"HEAD_SIZE": head_size, "CAUSAL": is_causal, "WINDOWED": False, "RAGGED": True}
        constexprs |= {"PRECISION": "ieee", "DESCRIBED": one.kernel == "descriptors"}
        signature = {}
        for name in kernel.arg_names:
            rows = one.block_m if name in "goq" else one.block_n
            if name in "goqkv" and one.kernel == "descriptors":
                signature[name] = f"tensordesc<{short}[1, 1, {rows}, {head_size}]>"
            elif name == "o_ptr" and one.parts > 1:
                signature[name] = "*fp32"  # to be merged
            elif name in "goqkv" or name.endswith("_ptr"):
                signature[name] = "*fp32" if name in ("lse_ptr", "delta_ptr") else f"*{short}"
            elif name not in constexprs:
                signature[name] = "fp32" if name == "scale" else "i32"
        aligned = [name for name in signature if name.startswith("stride") or signature[name][0] == "*"]
        yield ptx.stages(
            kernel, signature=signature, target=target, divisible_by_16=aligned,
            constexprs={name: value for name, value in constexprs.items() if name in kernel.arg_names},
            num_warps=one.num_warps, num_stages=one.num_stages,
        )  # fmt: skip


@pytest.mark.parametrize("target", ("sm_80", "sm_90"))
@pytest.mark.parametrize("head_size", (64, 128))
def test_planned_kernels_use_tensor_cores_and_hardly_spill(target, head_size):
    """On Hopper, the fastest tiles need all registers: some are spilled around the loop over masked tiles.

    Triton 3.6 spills up to 208 bytes there, Triton 3.7 up to 120.
    """
    import torch
    import triton

    most = {"sm_80": 0, "sm_90": 208 if triton.__version__.startswith("3.6.") else 128}[target]

    shape = (4, 16, 4096, head_size)
    product = {"sm_80": "mma.sync", "sm_90": "wgmma.mma_async"}[target]
    for stages in compiled_for(target, shape, shape, torch.bfloat16, is_causal=True):
        assert stages.spill_bytes <= most, stages.name
        assert product in stages.ptx, stages.name
        if target == "sm_90":
            assert "cp.async.bulk.tensor" in stages.ptx, stages.name  # TMA


def test_the_kernel_for_decoding_does_not_spill():
    import torch

    for target in ("sm_80", "sm_90"):
        stages = next(
            compiled_for(target, (8, 32, 1, 128), (8, 8, 32768, 128), torch.bfloat16, is_causal=False)
        )
        assert stages.name == "attention_parts_kernel"
        assert stages.spill_bytes == 0
        assert "mma.sync" in stages.ptx


if __name__ == "__main__":
    print(json.dumps(run_cases(sys.argv[1], int(sys.argv[2]))))
