"""helpers.kernels.ops: square, GELU and softmax as operators of torch, interpreted and, where there is a GPU,
compiled.

Whether a kernel is interpreted is decided when its module is imported, so each way runs in a process of its
own: this file is also the script that the process runs. It prints one JSON object, name of the case to
"right" or what went wrong.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import kernel_cases
import pytest

DTYPES = ("float32", "bfloat16", "float16")
REFUSED = {
    "float64": "torch.float64",
    "integers": "torch.int64",
    "no such dim": "from -2 to 1, not 2",
    "no such dim, traced": "from -2 to 1, not -3",
}


def run_cases(where: str, seed: int) -> dict[str, str]:
    """Every case on one device; called in a process of its own."""
    import torch
    from torch.nn import functional

    from helpers import check
    from helpers.kernels import elementwise, ops

    random.seed(seed)
    torch.manual_seed(seed)
    pairs = {
        "square": (ops.square, torch.square),
        "gelu": (ops.gelu, lambda x: functional.gelu(x, approximate="tanh")),
        "softmax": (ops.softmax, lambda x, dim=-1: torch.softmax(x, dim)),
    }
    results: dict[str, str] = {}

    def case(name, run):
        try:
            results[name] = run() or "right"
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"

    def close(got, expected):
        if got.shape != expected.shape:
            return f"shape {tuple(got.shape)}, not {tuple(expected.shape)}"
        check.assert_close("the operator", got, expected.double())
        return ""

    def randn(*shape, dtype=torch.float32):
        return torch.randn(shape, device=where).to(dtype)

    for name, (ours, theirs) in pairs.items():
        for dtype in DTYPES:
            given = getattr(torch, dtype)
            case(
                f"{name}: {dtype}, awkward shapes and special values",
                lambda f=ours, g=theirs, d=given: check.assert_matches(f, g, dtype=d, device=where) and "",
            )
        sizes = [*range(19), 31, 32, 33, 127, 128, 129, 511, 513, 1023, 1025, 4097]
        case(
            f"{name}: sizes around 16 and powers of two",
            lambda f=ours, g=theirs, s=sizes: (
                check.assert_matches(f, g, shapes=[(n,) for n in s], device=where) and ""
            ),
        )
        for dtype in (torch.float32, torch.float16):
            x = randn(1100, dtype=dtype)[1:]
            case(
                f"{name}: {dtype}, an element past an aligned address",
                lambda x=x, f=ours, g=theirs: close(f(x), g(x.double())),
            )
        case(
            f"{name}: a scalar",
            lambda f=ours, g=theirs: close(f(randn()[()] * 0 + 2), g(torch.tensor(2.0, device=where))),
        )

    # Layouts
    # -----------------------------------------------------------------------------------

    whole = randn(6, 4, 8, 10)
    views = {
        "transposed": whole.permute(3, 1, 0, 2),
        "channels last": whole.to(memory_format=torch.channels_last),
        "every second row": whole[:, ::2],
        "every third column": whole[..., ::3],
        "slice": whole[1:, 1:, 3:, 4:],
        "expanded": whole[:, :1].expand(6, 4, 8, 10),
        "expanded scalar": torch.tensor(3.0, device=where).expand(3, 5),
        "overlapping": randn(40).as_strided((6, 7), (3, 1)),
        "six dimensions": randn(4, 3, 4, 3, 4, 6)[::2, :2, ::2, :2, ::2, ::2],
        "one column of many": randn(50, 7)[:, 3],
        "no element": whole[:, 2:2],
    }
    for view, x in views.items():
        for name in ("square", "gelu"):
            ours, theirs = pairs[name]

            def walked(x=x, ours=ours, theirs=theirs):
                y = ours(x)
                strides = "" if y.stride() == torch.empty_like(x).stride() else f"strides {y.stride()}"
                return close(y, theirs(x.double())) or strides

            case(f"{name}: {view}", walked)
        for dim in {0, 1, x.ndim - 1} - {x.ndim}:
            case(
                f"softmax: {view}, dim {dim}",
                lambda x=x, dim=dim: close(ops.softmax(x, dim), torch.softmax(x.double(), dim)),
            )
    case("softmax: no column", lambda: close(ops.softmax(randn(3, 0)), randn(3, 0)))
    case(
        "softmax: rows of -inf",
        lambda: "" if ops.softmax(randn(2, 5) * 0 - float("inf")).isnan().all() else "no NaN",
    )
    case(
        "softmax: 20,000 columns",
        lambda: close(ops.softmax(x := randn(2, 20000)), torch.softmax(x.double(), -1)),
    )
    case(
        "softmax: contiguous result",
        lambda: "" if ops.softmax(whole[..., ::2]).is_contiguous() else "it is not",
    )

    def far(function, reference):
        """Offsets past 2**31 with a stride that fits 32 bits: only short rows of the memory are touched."""
        stride = 2**30 + 8
        memory = torch.empty(2 * stride + 16, dtype=torch.float16, device=where)
        x = memory.as_strided((3, 9), (stride, 1))
        x.copy_(torch.arange(27, device=where).reshape(3, 9) % 11 / 4)
        return close(function(x), reference(x.double()))

    for name, (ours, theirs) in pairs.items():
        case(f"{name}: offsets past 2**31", lambda f=ours, g=theirs: far(f, g))

    # Gradients
    # -------------------------------------------------------------------------------------------------------

    def gradient(ours, theirs, x, g, tolerance=None):
        x = x.detach().requires_grad_()
        wide = x.detach().double().requires_grad_()
        y, reference = ours(x), theirs(wide)
        (got,) = torch.autograd.grad(y, x, g)
        (expected,) = torch.autograd.grad(reference, wide, g.double())
        if got.dtype != x.dtype or got.shape != x.shape:
            return f"{got.dtype} of shape {tuple(got.shape)}"
        check.assert_close("the gradient", got, expected, tolerance=tolerance)

    rough = {"float32": (1e-5, 4e-6), "bfloat16": (3e-2, 2e-2), "float16": (4e-3, 2e-3)}
    layouts = {
        "contiguous": lambda t: t,
        "transposed": lambda t: t.T,
        "every second column": lambda t: t[:, ::2],
        "a row in two": lambda t: t[::2],
    }
    for name, (ours, theirs) in pairs.items():
        for dtype in DTYPES:
            for layout, view in layouts.items() if dtype == "float32" else [("contiguous", lambda t: t)]:
                x = view(randn(6, 150, dtype=getattr(torch, dtype)))
                for kind, g in {
                    "own": torch.randn_like(x),
                    "expanded": torch.ones((), device=where, dtype=x.dtype).expand(x.shape),
                }.items():
                    case(
                        f"{name}: gradient, {dtype}, x {layout}, g {kind}",
                        lambda f=ours, h=theirs, x=x, g=g, t=rough[dtype]: gradient(f, h, x, g, t),
                    )
        large = torch.tensor([-3e38, -1e13, -60.0, -6.0, -0.0, 0.0, 6.0, 60.0], device=where)
        case(
            f"{name}: gradient, large values",
            lambda f=ours, h=theirs, x=large: gradient(f, h, x, torch.ones_like(x)),
        )
    for shape, dim in (
        ((4, 5, 6), 0),
        ((4, 5, 6), 1),
        ((3, 16385), 1),
        ((2, 20000), 1),
        ((5000, 3), 1),
        ((4, 1), 1),
        ((0, 4), 1),
        ((4, 0), 1),
        ((), 0),
    ):
        case(
            f"softmax: gradient, {shape}, dim {dim}",
            lambda s=shape, d=dim: gradient(
                lambda x: ops.softmax(x, d),
                lambda x: torch.softmax(x, d),
                randn(*s),
                randn(*s),
                rough["float32"],
            ),
        )

    def once_only(ours):
        x = randn(8).requires_grad_()
        (first,) = torch.autograd.grad(ours(x).sum(), x, create_graph=True)
        try:
            first.sum().backward()
        except RuntimeError:
            return ""
        return "a second gradient, which nobody computed"

    def without_grad(ours):
        x = randn(8).requires_grad_()
        with torch.no_grad():
            return "requires grad" if ours(x).requires_grad else ""

    def autocast(ours):
        with torch.autocast(where, dtype=torch.bfloat16):
            return "" if ours(randn(8)).dtype == torch.float32 else "another dtype"

    def transformed(transform, ours, theirs):
        """torch's transforms do not reach custom operators' gradients and batches: an error, or right."""
        x = randn(4, 8)
        try:
            got = transform(ours)(x)
        except RuntimeError:
            return ""
        return close(got, transform(theirs)(x))

    # What torch makes of them
    # ----------------------------------------------------------------------------------------

    namespace = torch.ops.kernel_workbook
    for name, (ours, theirs) in pairs.items():
        case(f"{name}: differentiable once", lambda f=ours: once_only(f))
        case(f"{name}: no_grad", lambda f=ours: without_grad(f))
        case(f"{name}: autocast", lambda f=ours: autocast(f))
        for kind, transform in {
            "torch.func.grad": lambda f: torch.func.grad(lambda t: f(t)[3, 2]),
            "torch.vmap": lambda f: torch.vmap(f, in_dims=1),
        }.items():
            case(f"{name}: {kind}", lambda t=transform, f=ours, g=theirs: transformed(t, f, g))
    for name, arguments in {"square_backward": (), "gelu_backward": (), "softmax_backward": (1,)}.items():
        x = randn(6, 10)
        case(
            f"{name}: opcheck",
            lambda name=name, x=x, a=arguments: (
                torch.library.opcheck(getattr(namespace, name).default, (x, x.clone(), *a)) and ""
            ),
        )

    def compiled(dynamic):
        def both(square, gelu, softmax):
            return lambda x: softmax(gelu(square(x) + 1), 0).sin()

        ours = torch.compile(
            both(ops.square, ops.gelu, ops.softmax), fullgraph=True, dynamic=dynamic,
            backend="inductor" if where == "cuda" else "aot_eager",
        )  # fmt: skip
        theirs = both(*(reference for _, reference in pairs.values()))
        for shape in ((8, 9), (8, 12), (5, 7)):
            if wrong := gradient(ours, theirs, randn(*shape), randn(*shape), (1e-4, 1e-5)):
                return wrong
        return close(ours(whole[0, 0]), theirs(whole[0, 0].double()))

    for dynamic in (False, True):
        case(f"torch.compile in one graph, dynamic={dynamic}", lambda d=dynamic: compiled(d))

    def counted():
        """Nothing watches: the kernel is launched without a way through torch's dispatcher, so that poison
        reaches it.
        """
        with check.poisoned():
            return "" if not ops.gelu(randn(33)).isnan().any() else "an element was not written"

    case("every element is written", counted)
    case("float64", lambda: ops.gelu(randn(3).double()) and "")
    case("integers", lambda: ops.softmax(torch.ones(3, dtype=torch.int64, device=where)) and "")
    case("no such dim", lambda: ops.softmax(randn(3, 3), 2) and "")
    case("no such dim, traced", lambda: ops.softmax(randn(3, 3).requires_grad_(), -3) and "")
    case("a plan in words", lambda: repr(elementwise.plan_elementwise(1000, torch.float16)))
    return results


@pytest.fixture(scope="module", params=kernel_cases.ways())
def results(request) -> dict[str, str]:
    return kernel_cases.results_of(__file__, request.param)


@pytest.mark.seeded
def test_every_valid_case_is_right(results):
    wrong = {
        name: result
        for name, result in results.items()
        if name not in REFUSED and name != "a plan in words" and result != "right"
    }
    assert not wrong
    assert len(results) > 150


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_inputs_are_refused(results, name):
    message = results[name]
    assert message.startswith(("ValueError: ", "IndexError: ")) and REFUSED[name] in message
    assert "\n" not in message


def test_a_plan_describes_its_launch(results):
    words = results["a plan in words"]
    assert "1,000" in words and "float16" in words and "program" in words


def test_a_cpu_tensor_is_refused_and_a_meta_tensor_is_not():
    """Without a GPU's tensor and without the interpreter the kernels cannot run, but the shape of the result
    is known.
    """
    code = """
import torch
from helpers.kernels import ops
for call in (ops.square, ops.gelu, ops.softmax):
    for x in (torch.ones(2, 3), torch.ones(2, 3, requires_grad=True)):
        try:
            call(x)
        except ValueError as error:
            print(error)
    y = call(torch.empty(2, 3, device="meta", dtype=torch.float16))
    assert (y.shape, y.dtype, y.device.type) == ((2, 3), torch.float16, "meta")
"""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 6 and all("TRITON_INTERPRET=1" in line for line in lines)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ("square", "gelu", "softmax"))
def test_past_two_to_the_31_elements(name):
    """4 GB of float16, the last elements unlike the first; for softmax also rows whose distance is that
    large.
    """
    import torch

    from helpers.kernels import ops

    call = getattr(ops, name)
    theirs = {
        "square": torch.square,
        "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        "softmax": lambda x: torch.softmax(x, -1),
    }[name]
    shape = (2**31 + 4096,) if name != "softmax" else (2**19 + 1, 4096)
    x = torch.ones(shape, dtype=torch.float16, device="cuda")
    x[-1] = 3.0
    x.view(-1)[-2000:] = torch.randn(2000, device="cuda").half()
    y = call(x)
    for part in (slice(0, 1), slice(-1, None)) if name == "softmax" else (slice(0, 5000), slice(-5000, None)):
        torch.testing.assert_close(y[part], theirs(x[part].double()).half(), rtol=2e-3, atol=1e-6)
    middle = y.view(-1)[2**30 : 2**31].view(-1, 4096)
    assert bool((middle == middle[0, 0]).all())
    del y, middle
    if name != "softmax":
        every = call(x.view(-1, 4096)[:, ::2])
        torch.testing.assert_close(
            every[-3:], theirs(x.view(-1, 4096)[-3:, ::2].double()).half(), rtol=2e-3, atol=1e-6
        )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import interpreter

    interpreter.quicken()
    print(json.dumps(run_cases(sys.argv[1], int(sys.argv[2]))))
