"""Answers that are text: what is taken for kernels and nothing else, and what is refused with a sentence."""

from __future__ import annotations

import re
from types import ModuleType

import pytest
import triton
import triton.language as tl
from lab_attempts import solution_cells

from helpers.exercises import cuda_text, triton_text

KERNEL = "__global__ void k(const float* input, float* output, int height, int width) {{ {} }}"
HEADER = "import triton\nimport triton.language as tl\n"
LIMIT = 7
HALF = tl.constexpr(0.5)
TYPE = tl.float32


# ------------------------------------------------------------------------------------------------ CUDA


@pytest.mark.parametrize(
    "text",
    [
        KERNEL.format("__shared__ float tile[32][33]; tile[threadIdx.y][threadIdx.x] = input[0]; "
                      "__syncthreads();"),
        KERNEL.format("const float4 v = reinterpret_cast<const float4*>(input)[0]; output[0] = (float)(v.x) "
                      "+ (long long)(1);"),
        KERNEL.format('if (threadIdx.x == 0) printf("%d\\n", 3); atomicAdd(output, fmaxf(input[0], 1.0f));'),
        "#define TILE 32\n#define AT(r, c) ((r) * width + (c))\n" + KERNEL.format("output[AT(0, TILE)] = 1;"),
        "template <typename T> __device__ T twice(T x) { return x * 2; }\n" + KERNEL.format("output[0] = "
                                                                                            "twice(input[0]);"),
        "struct Pair { float a, b; };\n" + KERNEL.format("Pair p; p.a = 1; for (int i = 0; i < 3; ++i) { "
                                                         "while (false) {} }"),
        "#pragma unroll\n// system()\n/* exit(0) */\n" + KERNEL.format("#pragma unroll\n for (;;) break;"),
        '    #error "still to do: system()"\n' + KERNEL.format(""),
    ],
)  # fmt: skip
def test_source_that_only_has_kernels_is_accepted(text):
    assert cuda_text.problem(text) == ""


def test_the_labs_own_sources_are_accepted():
    for cell in solution_cells("02_load_inline").values():
        for text in re.findall(r'r"""(.*?)"""', cell, re.DOTALL):
            assert cuda_text.problem(text) == "", text


@pytest.mark.parametrize(
    "text",
    [
        KERNEL.format('system("ls");'),
        KERNEL.format('auto f = system; f("ls");'),
        "#include <cstdlib>\n" + KERNEL.format(""),
        'int a = system("x");' + KERNEL.format(""),
        KERNEL.format('(*f)("x");'),
        "__attribute__((constructor)) void f() {}" + KERNEL.format(""),
        "[[gnu::constructor]] void f() {}" + KERNEL.format(""),
        KERNEL.format('asm("nop");'),
        'sys\\\ntem("x")',
        "#define B(x) (x)\n" + KERNEL.format("exit B(0);"),
        '#define P ("ls")\n' + KERNEL.format("system P;"),
        "#define A(f) f\n" + KERNEL.format("A(exit)(0);"),
        "#define Q(x) x(0)\n" + KERNEL.format("Q(exit);"),
        "#define J(a, b) a##b\n" + KERNEL.format("J(ex, it)(0);"),
        "#define S exit\n" + KERNEL.format("S(0);"),
        KERNEL.format("::exit(0);"),
        KERNEL.format("std::abort();"),
        "__device__ void f(int x) {} " + KERNEL.format("{ auto f = exit; f(0); }"),
        "extern int other;" + KERNEL.format(""),
        KERNEL.format("int y(exit(0));"),
        KERNEL.format('printf("%n", input);'),
        KERNEL.format('const char* text = "x";'),
        KERNEL.format("wb_sites[0] = 1;"),
    ],
)
def test_source_that_has_more_than_kernels_is_refused(text):
    assert re.fullmatch(r"The (text|macro) .*\.", cuda_text.problem(text), re.DOTALL), cuda_text.problem(text)


# ------------------------------------------------------------------------------------------------ Triton


@triton.jit
def twice(x):
    return x * 2


@triton.jit
def scaled_kernel(y_ptr, x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=float("-inf"))
    tl.store(y_ptr + i, twice(x).to(TYPE) * HALF + LIMIT, mask=i < n)


def test_a_kernel_survives_a_round_trip_through_text():
    import torch

    text = triton_text.text_of(scaled_kernel)
    assert triton_text.problem(text) == ""
    again = triton_text.build(text)
    assert triton_text.text_of(again) == text
    assert again.fn.__code__.co_firstlineno == scaled_kernel.fn.__code__.co_firstlineno
    from helpers import ptx

    def interpreted(kernel):
        return ptx.interpreted(kernel)

    function = interpreted(again)
    again.fn.__globals__["twice"] = interpreted(again.fn.__globals__["twice"]).rewrite()
    x, y = torch.arange(5.0), torch.zeros(5)
    function[(1,)](y, x, 5, BLOCK=8)
    assert y.tolist() == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("value", [3, "text", None, print, lambda x: x])
def test_an_object_that_is_not_a_kernel_is_an_error(value):
    with pytest.raises(triton_text.NoKernel, match="@triton"):
        triton_text.text_of(value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("__import__('os')", "it uses __import__"),
        ("open('x')", "it uses open, which is a builtin"),
        ("np.zeros(3)", "it uses np, which is neither"),
        ("x.handle", "it uses x.handle"),
        ("tl.core.inspect.stack()", "it uses tl.core.inspect"),
        ("tl.load.__globals__", "it uses tl.load.__globals__"),
        ("tl.extern_elementwise('a', 'b', [], {}, True)", "it uses tl.extern_elementwise"),
        ("triton.runtime.driver", "it uses triton.runtime.driver"),
        ("import os", "it contains 'import os'"),
        ("match x:\n        case tl.tensor(handle=y):\n            pass", "it contains 'match x:"),
        ("if False:\n        getattr = x\n    getattr(tl, 'core')", "it uses getattr, which is a builtin"),
        ("if False:\n        np = x\n    np.load('x')", "it uses np, which is neither"),
        ("x.dtype = 3", "it sets x.dtype"),
        ("'{0.__class__}'.format(x)", ".format"),
        ("[].__class__", "it uses [].__class__"),
    ],
)
def test_a_kernel_that_reaches_outside_is_not_built(line, says):
    text = f"{HEADER}\n@triton.jit\ndef k(x):\n    {line}\n"
    with pytest.raises(triton_text.NotAlone, match=re.escape(says)):
        triton_text.build(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import os\n", "it contains 'import os'"),
        ("from os import path\n", "it contains 'from os"),
        ("x = open('y')\n", "it uses open"),
        ("@open\ndef k(x):\n    pass\n", "it uses open"),
        ("def __builtins__(x):\n    pass\n", "it uses __builtins__"),
        ("@triton.jit\ndef k(x=print(open)):\n    pass\n", "it uses open"),
        ("x = 3\n", "it ends without a kernel"),
        ("def (", "it can't be read"),
    ],
)
def test_a_text_that_does_more_than_define_kernels_is_not_built(text, says):
    assert says in triton_text.problem(HEADER + text)


def test_a_builtin_that_another_function_has_as_a_variable_is_not_pythons():
    text = f"{HEADER}@triton.jit\ndef other(open):\n    pass\n\n@triton.jit\ndef k(x):\n    open('x')\n"
    with pytest.raises(NameError, match="open"):
        triton_text.build(text).fn(3)


def test_a_text_whose_last_function_is_no_kernel_is_not_built():
    with pytest.raises(triton_text.NoKernel):
        triton_text.build(HEADER + "def k(x):\n    pass\n")


def test_no_attribute_that_a_kernel_may_use_leads_to_a_module_that_is_not_for_kernels():
    modules = {triton, tl, tl.math}
    found = [getattr(module, name, None) for module in modules for name in triton_text._attributes()]
    assert {one for one in found if isinstance(one, ModuleType)} <= modules
