"""helpers.ptx: what it reads must be what the compilers wrote, with no GPU and under
TRITON_INTERPRET=1 too.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from helpers import cuda, ptx
from helpers.ptx import artifacts
from helpers.ptx import lines as ptx_lines
from helpers.ptx.read import Instruction

SIGNATURE = {
    "output_ptr": "*fp32",
    "input_ptr": "*fp32",
    "input_row_stride": "i32",
    "output_row_stride": "i32",
    "n_cols": "i32",
}
SCALE = tl.constexpr(2.0)


@triton.jit
def rows_kernel(output_ptr, input_ptr, input_row_stride, output_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(input_ptr + row * input_row_stride + cols, mask=mask)
    tl.store(output_ptr + row * output_row_stride + cols, x * x, mask=mask)


@triton.jit
def scaled(x):
    y = x * SCALE
    return y + 1.0


@triton.jit
def max_kernel(output_ptr, input_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    cols = tl.arange(0, BLOCK_SIZE)
    x = tl.load(input_ptr + cols, mask=cols < n_cols, other=-float("inf"))
    x = scaled(x)
    tl.store(output_ptr, tl.max(x, axis=0))


@triton.jit
def polynomial_kernel(x_ptr, BLOCK_SIZE: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK_SIZE))
    tl.store(x_ptr + tl.arange(0, BLOCK_SIZE), x * x + x)


@triton.jit
def loud_kernel(x_ptr, BLOCK_SIZE: tl.constexpr):
    tl.static_print("a block of", BLOCK_SIZE)
    tl.store(x_ptr + tl.arange(0, BLOCK_SIZE), 1.0)


@triton.jit
def wrong_kernel(x_ptr, BLOCK_SIZE: tl.constexpr):
    cols = tl.arange(0, BLOCK_SIZE)
    tl.store(x_ptr + cols, tl.lod(x_ptr + cols))


def compiled(**changes) -> ptx.Stages:
    # Where nothing may be fused, Triton writes mul.rn.f32 for mul.f32.
    options = {"signature": SIGNATURE, "constexprs": {"BLOCK_SIZE": 1024}, "enable_fp_fusion": True} | changes
    return ptx.stages(rows_kernel, **options)


def maximum(**changes) -> ptx.Stages:
    signature = {"output_ptr": "*fp32", "input_ptr": "*fp32", "n_cols": "i32"}
    return ptx.stages(max_kernel, signature=signature, constexprs={"BLOCK_SIZE": 1024}, **changes)


def line_of(function, text: str) -> int:
    """The line in this file on which a kernel says `text`."""
    import inspect

    lines, first = inspect.getsourcelines(function.fn)
    return first + next(n for n, line in enumerate(lines) if text in line)


# Compiling
# -----------------------------------------------------------------------------------------------------------


def test_square_rows_at_every_stage():
    square = compiled()
    for kind, word in (("ttir", "tt.load"), ("ttgir", "#ttg.blocked"), ("llir", "define"), ("ptx", ".entry")):
        assert word in square.text(kind), kind
    assert square.sass.startswith(".text.rows_kernel:") and "FMUL" in square.sass
    assert square.cubin[:4] == b"\x7fELF"
    assert (square.target, square.num_warps, square.language) == ("sm_90", 4, "triton")
    assert square.source.startswith("@triton.jit\ndef rows_kernel(")
    reading = square.reading
    assert reading.reqntid == (128, 1, 1) and reading.target.startswith("sm_90")
    assert len(reading.loads) == len(reading.stores) == len(reading.find("mul.f32")) == 8
    assert {i.n_bytes for i in reading.loads + reading.stores} == {4}
    assert reading.find("and.b32", operand="127")
    assert len(reading.predicated) == 16 and not reading.find("bra")
    assert not reading.uses_shared and square.shared_bytes == square.local_bytes == square.spill_bytes == 0
    assert 8 < square.n_registers < reading.n_registers_declared
    assert len(square.sass_reading.find("LDG")) == 8 and len(square.sass_reading.find("FMUL")) == 8


@pytest.mark.parametrize(("num_warps", "target"), [(1, "sm_75"), (32, "sm_100")])
def test_loads_are_the_block_over_the_threads(num_warps, target):
    reading = compiled(num_warps=num_warps, target=target).reading
    assert len(reading.loads) == len(reading.find("mul.f32")) == 1024 // (32 * num_warps)
    assert reading.reqntid == (32 * num_warps, 1, 1)


def test_divisible_arguments_give_wide_loads():
    aligned = compiled(divisible_by_16=tuple(SIGNATURE))
    assert [i.opcode for i in aligned.reading.loads] == ["ld.global.v4.b32"] * 2
    assert {i.n_bytes for i in aligned.reading.loads} == {16}
    assert [i.opcode.split(".")[-1] for i in aligned.sass_reading.find("LDG")] == ["128", "128"]


def test_shared_memory_and_barriers_are_seen():
    reading = maximum().reading
    assert reading.uses_shared and reading.find("bar.sync") and maximum().shared_bytes > 0


@pytest.mark.parametrize("target", ["sm_75", "sm_90", "sm_100"])
def test_spills_are_seen_without_a_toolkit(target, monkeypatch):
    """By the one of Triton's two assemblers that made the kernel: in 3.9 the other cannot read the PTX for
    sm_90.
    """
    monkeypatch.setattr(artifacts.device, "find_tool", lambda name: None)
    crowded = compiled(constexprs={"BLOCK_SIZE": 8192}, num_warps=1, maxnreg=64, target=target)
    assert crowded.spill_bytes == crowded.local_bytes > 0 and crowded.n_registers <= 64
    assert crowded.sass_reading.find("STL") and crowded.reading.reqntid == (32, 1, 1)


def test_spills_of_cuda_come_from_nvrtc(monkeypatch):
    """Its PTX may be newer than Triton's assembler can read, and its flags decide what is spilled."""
    monkeypatch.setattr(artifacts, "_tool", _only_disassemble(artifacts._tool))
    crowded, roomy = (ptx.cuda_stages(CROWDED_CUDA, flags=flags) for flags in (("--maxrregcount=24",), ()))
    assert crowded.spill_bytes == crowded.local_bytes > 0 == roomy.spill_bytes
    debug = ptx.cuda_stages(CUDA, kernel="square4", flags=("-G",))
    assert debug.local_bytes > 0 == debug.spill_bytes


def _only_disassemble(tool):
    def guarded(name: str, *arguments, **options) -> str:
        assert name != "ptxas"
        return tool(name, *arguments, **options)

    return guarded


@triton.jit
def sine_kernel(x_ptr, y_ptr, BLOCK_SIZE: tl.constexpr):
    cols = tl.arange(0, BLOCK_SIZE)
    tl.store(y_ptr + cols, libdevice.sin(tl.load(x_ptr + cols)))


def test_local_memory_is_not_a_spill():
    """The sine of a double keeps an array for large angles: Triton's n_spills counts it, and nothing was
    spilled.

    The sine of a float does so in Triton 3.7, and no longer in 3.9.
    """
    sine = ptx.stages(
        sine_kernel, signature={"x_ptr": "*fp64", "y_ptr": "*fp64"}, constexprs={"BLOCK_SIZE": 64}
    )
    assert sine.local_bytes > 0 == sine.spill_bytes and sine.n_registers < 100
    assert f"{sine.local_bytes} bytes of local memory" in repr(sine)


def test_a_product_and_a_sum_are_one_instruction_where_a_launch_would_fuse_them():
    """Without Triton's warning, which 3.9 gives where it has to choose: what it chooses changes with 3.10."""
    code = """
        import os, warnings
        from triton.backends.compiler import GPUTarget
        from triton.backends.nvidia.compiler import CUDABackend
        types, sizes = {"x_ptr": "*fp32"}, {"BLOCK_SIZE": 32}
        for default in ("", "1", "0"):
            os.environ.pop("TRITON_DEFAULT_FP_FUSION", None)
            if default:
                os.environ["TRITON_DEFAULT_FP_FUSION"] = default
            for options in ({}, {"enable_fp_fusion": True}, {"enable_fp_fusion": False}):
                with warnings.catch_warnings(action="error"):
                    made = ptx.stages(t.polynomial_kernel, signature=types, constexprs=sizes, **options)
                done = [i.parts[0] for i in made.reading.instructions if "f32" in i.parts]
                with warnings.catch_warnings(action="ignore"):
                    launched = CUDABackend(GPUTarget("cuda", 90, 32)).parse_options(dict(options))
                assert done == (["fma"] if launched.enable_fp_fusion else ["mul", "add"]), (default, options)
                print(*done, end=".")
    """
    on, off = "fma.", "mul add."
    unset, set_on, set_off = re.findall("(?:[a-z ]+[.]){3}", process(code))
    assert unset in (on + on + off, off + on + off)  # up to Triton 3.9, and what it announces for 3.10
    assert (set_on, set_off) == (on + on + off, off + on + off)


def test_a_second_compilation_is_cached():
    assert compiled() is compiled()
    assert compiled() is compiled(target=90) is compiled(divisible_by_16=("input_ptr", "output_ptr"))
    assert compiled() is not compiled(num_warps=8)


def test_autotuned_kernels_are_unwrapped():
    tuned = triton.autotune(configs=[triton.Config({}, num_warps=4)], key=["n_cols"])(rows_kernel)
    made = ptx.stages(tuned, signature=SIGNATURE, constexprs={"BLOCK_SIZE": 1024}, enable_fp_fusion=True)
    assert made.reading.opcodes == compiled().reading.opcodes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target": "sm_61"}, "'sm_61'"),
        ({"signature": SIGNATURE | {"rows": "i32"}}, "'rows'"),
        ({"signature": {"output_ptr": "*fp32"}}, "'input_ptr' of rows_kernel"),
        ({"constexprs": {}}, "'BLOCK_SIZE' of rows_kernel"),
        ({"constexprs": {"BLOCK_SIZE": 1024, "n_cols": 5}}, "both in signature and in constexprs"),
        ({"signature": SIGNATURE | {"n_cols": "int"}}, "'int'"),
        ({"num_warps": 3}, "num_warps is 3"),
        ({"divisible_by_16": ("n_rows",)}, "'n_rows'"),
        ({"warps": 4}, "'warps'"),
    ],
)
def test_wrong_arguments_are_named(changes, words):
    with pytest.raises(ValueError) as caught:
        compiled(**changes)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_only_kernels_are_accepted():
    with pytest.raises(ValueError, match=r"takes a @triton\.jit function.*cuda_stages"):
        ptx.stages(torch.square, signature={})


def test_a_kernel_that_does_not_compile_names_its_line():
    with pytest.raises(ptx.CompileError) as caught:
        ptx.stages(wrong_kernel, signature={"x_ptr": "*fp32"}, constexprs={"BLOCK_SIZE": 64})
    line = line_of(wrong_kernel, "tl.lod")
    assert f"wrong_kernel does not compile for sm_90: line {line}, `tl.store(" in str(caught.value)
    assert str(caught.value).endswith("has no attribute 'lod'") and "\n" not in str(caught.value)


def interpreted_process(code: str, folder: Path | None = None) -> str:
    """What a process of the interpreter prints that runs `code` with these tests as `t`."""
    return process(code, folder, TRITON_INTERPRET="1")


def process(code: str, folder: Path | None = None, **environment: str) -> str:
    """What a process of its own prints that runs `code` with these tests as `t`."""
    begin = "import sys\nsys.path.insert(0, sys.argv[1])\nimport test_ptx as t\nfrom helpers import ptx\n"
    command = [sys.executable, "-c", begin + textwrap.dedent(code), str(Path(__file__).parent)]
    done = subprocess.run(
        command,
        env=os.environ | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_works_in_a_process_made_for_the_interpreter():
    code = """
        assert type(t.max_kernel).__name__ == "InterpretedFunction"
        made = t.maximum()
        calls = {i.source_line for i in made.reading.instructions if i.parts[0] == "max"}
        print(len(made.reading.loads), made.reading.uses_shared, calls == {t.line_of(t.max_kernel, "tl.max")})
        try:
            t.test_a_kernel_that_does_not_compile_names_its_line()
        except AssertionError as error:
            print(error)
        t.test_local_memory_is_not_a_spill()
    """
    assert interpreted_process(code) == "8 True True"


def test_one_second_python_compiles_for_the_interpreter_until_it_ends():
    code = """
        from helpers.ptx import isolated
        t.compiled()
        first = isolated._running[0].process
        t.compiled(num_warps=8), t.maximum()
        print("the same:", isolated._running[0].process is first)
        first.kill(), first.wait()
        print("another:", len(t.compiled(num_warps=16).reading.loads))
        print(isolated.compile_in_subprocess(t.rows_kernel.fn, {"divisible": None})["error"])
    """
    same, another, error = interpreted_process(code).splitlines()
    assert (same, another) == ("the same: True", "another: 2")
    assert error.startswith("the second Python process") and "failed: TypeError" in error


def test_output_of_a_kernel_during_compilation_is_ignored():
    code = """
        loud = t.loud_kernel
        print(len(ptx.stages(loud, signature={"x_ptr": "*fp32"},
            constexprs={"BLOCK_SIZE": 64}).reading.stores))
    """
    assert interpreted_process(code) == "1"


def test_a_changed_module_is_compiled_again_for_the_interpreter(tmp_path):
    begin = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
    (tmp_path / "steps_of_mine.py").write_text(f"{begin}def step(x):\n    return x * 3.0\n")
    (tmp_path / "kernels_of_mine.py").write_text(
        f"import steps_of_mine as mine\n{begin}def kernel(x_ptr, N: tl.constexpr):\n    i = tl.arange(0, N)\n"
        "    tl.store(x_ptr + i, mine.step(tl.load(x_ptr + i)))\n"
    )
    code = """
        import os, pathlib
        sys.path.insert(0, os.getcwd())
        import kernels_of_mine as k

        def three():
            made = ptx.stages(k.kernel, signature={"x_ptr": "*fp32"}, constexprs={"N": 128})
            return "0f40400000" in made.ptx

        path = pathlib.Path("steps_of_mine.py")
        print(three())
        path.write_text(path.read_text().replace("3.0", "5.0"))
        os.utime(path, ns=(0, 0))
        print(three())
    """
    assert interpreted_process(code, tmp_path).split() == ["True", "False"]


def test_tritons_own_call_takes_a_kernel_of_the_interpreter():
    code = """
        import torch, triton
        from triton.backends.compiler import GPUTarget
        types = t.SIGNATURE | {"BLOCK_SIZE": "constexpr"}
        pointers = {(n,): [["tt.divisibility", 16]] for n in (0, 1)}
        source = ptx.ASTSource(t.rows_kernel, types, {"BLOCK_SIZE": 1024}, pointers)
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4,
            "enable_fp_fusion": True})
        print(ptx.read_ptx(made.asm["ptx"]).opcodes == t.compiled().reading.opcodes)
        x = torch.randn(3, 5)
        y = torch.empty_like(x)
        t.rows_kernel[(3,)](y, x, 5, 5, 5, BLOCK_SIZE=8)
        print(torch.equal(y, x * x))
    """
    assert interpreted_process(code).split() == ["True", "True"]


# Layouts
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "neighbours"), [({}, 1), ({"divisible_by_16": tuple(SIGNATURE)}, 4)])
@pytest.mark.parametrize("num_warps", [1, 4])
def test_a_layout_has_each_column_once_and_agrees_with_the_ptx(changes, neighbours, num_warps):
    made = compiled(num_warps=num_warps, **changes)
    layout = ptx.layout_of(made)
    assert (layout.neighbours, layout.n_threads) == (neighbours, 32 * num_warps)
    held = [column for thread in range(layout.n_threads) for column in layout.columns(thread)]
    assert sorted(held) == list(range(1024))
    # The bits that `and` keeps of the shifted index are the first column of the last thread.
    last = layout.columns(layout.n_threads - 1)[0]
    assert str(last) in {i.operands[-1] for i in made.reading.find("and.b32")}
    figure = ptx.draw_layout(made, thread=5)
    assert list(figure.data[1].x) == [c % layout.elements_per_round for c in layout.columns(5)]


def test_a_block_smaller_than_its_threads_is_replicated():
    layout = ptx.layout_of(compiled(constexprs={"BLOCK_SIZE": 64}))
    assert layout.columns(5) == layout.columns(69) == [5]
    ptx.draw_layout(compiled(constexprs={"BLOCK_SIZE": 64}))


def test_kernels_without_a_layout_are_refused():
    with pytest.raises(ValueError, match="NVRTC shows no ttgir"):
        ptx.layout_of(ptx.cuda_stages(CUDA, kernel="square"))
    with pytest.raises(ValueError, match=r"128.*0 to 127"):
        ptx.draw_layout(compiled(), thread=128)


# Source lines
# --------------------------------------------------------------------------------------------------------


def test_every_stage_knows_its_source_lines():
    square = compiled()
    multiply = line_of(rows_kernel, "x * x")
    mask = line_of(rows_kernel, "mask = cols")
    assert {i.source_line for i in square.reading.find("mul.f32")} == {multiply}
    assert {i.source_line for i in square.reading.find("setp")} == {mask}
    assert {i.source_line for i in square.sass_reading.find("FMUL")} == {multiply}
    for kind, reader, word in (
        ("ttir", ptx_lines.mlir_lines, "arith.mulf"),
        ("ttgir", ptx_lines.mlir_lines, "arith.mulf"),
        ("llir", ptx_lines.llir_lines, "fmul"),
    ):
        text = square.text(kind)
        lines = reader(text)
        assert len(lines) == len(text.split("\n"))
        found = {line for line, row in zip(lines, text.split("\n"), strict=True) if word in row}
        assert found == {multiply}, kind


def test_inlined_code_belongs_to_the_line_that_called_it():
    made = maximum()
    known = {line_of(max_kernel, text) for text in ("arange", "tl.load", "scaled(x)", "tl.store")}
    for reading in (made.reading, made.sass_reading):
        lines = {i.source_line for i in reading.instructions} - {line_of(max_kernel, "def max_kernel"), None}
        assert lines <= known and line_of(max_kernel, "scaled(x)") in lines
    assert set(ptx_lines.llir_lines(made.llir)) - {None} <= known | {line_of(max_kernel, "def max_kernel")}


# Reading
# ---------------------------------------------------------------------------------------

HARD = """
.version 8.4   // a comment { with ; marks
.target sm_80, debug
.address_size 64
.extern .shared .align 16 .b8 pool[];
.func (.param .b32 result) helper (.param .b32 a)
{ .reg .b32 %r<2>; ld.param.b32 %r1, [a]; ret; }
.visible .entry first(
    .param .u64 first_param_0, /* ; } */
    .param .align 8 .b8 first_param_1[16]
)
.maxntid 64, 2, 1
.minnctapersm 2
{
    .reg .pred %p<3>; .reg .b32 %r<10>, %extra; .reg .f64 %fd<4>;
    .loc 1 7 3
start:
    { .reg .pred q; setp.ne.b32 q, %r1, 0; @q bra $L__done; }
    @!%p1 ld.global.nc.L1::no_allocate.v4.f32 {%f1, %f2,
        %f3, %f4}, [%rd1+16];
    .loc 1 9 3
    // begin inline asm
    { st.global.v2.b64 [%rd2 + 0], { %rd3, %rd4 }; }
    // end inline asm
    ld.f64 %fd1, [%SP+8]; ld.u8 %rs1, [%rd9]; ld.param.u64 %rd1, [first_param_0];
    cp.async.cg.shared.global [%r2], [%rd5], 16;
    st.shared.f16x2 [%r3], %r4;
$L__done: ret;
}
.visible .entry second() { bar.sync 0; ret; }
"""


def test_read_ptx_counts_what_is_there():
    with pytest.raises(ValueError, match=r"2 kernels \(first, second\).*entry="):
        ptx.read_ptx(HARD)
    first = ptx.read_ptx(HARD, "first")
    assert (first.version, first.target, first.address_size) == ("8.4", "sm_80", 64)
    assert first.params == (("first_param_0", ".u64"), ("first_param_1[16]", ".align 8 .b8"))
    assert (first.maxntid, first.reqntid) == ((64, 2, 1), None)
    assert first.registers_declared == {"pred": 4, "b32": 11, "f64": 4}
    assert first.labels == ("start", "$L__done")
    assert " ".join(i.parts[0] for i in first.instructions) == "setp bra ld st ld ld ld cp st ret"
    assert [i.opcode for i in first.loads] == ["ld.global.nc.L1::no_allocate.v4.f32", "ld.u8"]
    wide, store = first.loads[0], first.stores[0]
    assert (wide.predicate, wide.n_bytes, wide.operands[1]) == ("!%p1", 16, "[%rd1+16]")
    assert (wide.source_line, store.source_line, store.n_bytes) == (7, 9, 16)
    assert [i.predicate for i in first.predicated] == ["q", "!%p1"]
    assert first.uses_shared and first.shared_declarations
    assert first.find("st.shared")[0].n_bytes == 4
    second = ptx.read_ptx(HARD, "second")
    assert [str(i) for i in second.instructions] == ["bar.sync 0", "ret"] and second.params == ()


def test_read_ptx_refuses_what_it_cannot_read():
    with pytest.raises(ValueError, match=r"no \.entry"):
        ptx.read_ptx("tt.load")
    with pytest.raises(ValueError, match="no kernel 'third'; it has first, second"):
        ptx.read_ptx(HARD, "third")


def test_opcodes_match_up_to_a_dot_only():
    load = Instruction(1, "ld.global.v4.b32", ("{%r1}", "[%rd1]"))
    assert load.matches("ld.global") and load.matches("ld.global.v4.b32") and not load.matches("ld.glob")


def test_sass_padding_is_not_counted():
    reading = compiled().sass_reading
    assert reading.n_padding > 0 and not reading.find("NOP")
    assert reading.instructions[-1].opcode == "EXIT"


# CUDA C++
# ------------------------------------------------------------------------------------------------------------

CROWDED_CUDA = """
__global__ void crowded(const float* x, float* y) {
    float held[64];
    #pragma unroll
    for (int i = 0; i < 64; i++) held[i] = x[i * blockDim.x + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 64; i++) y[i * blockDim.x + threadIdx.x] = held[63 - i];
}
"""
CUDA = """
__global__ void square(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
extern "C" __global__ void __launch_bounds__(256) square4(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 v = x[i];
        y[i] = make_float4(v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w);
    }
}
"""


def test_cuda_is_read_like_triton():
    one, four = (ptx.cuda_stages(CUDA, kernel=name) for name in ("square", "square4"))
    assert (one.name, one.ttgir, one.reading.reqntid) == ("square", None, None)
    assert four.reading.maxntid == (256, 1, 1)
    assert [i.n_bytes for i in one.reading.loads + four.reading.loads] == [4, 16]
    assert {i.source_line for i in one.reading.find("mul.f32")} == {4}
    assert {i.source_line for i in four.sass_reading.find("STG")} == {10}
    table = ptx.summary(compiled(), one, four, labels=["triton", "cuda", "cuda4"])
    assert list(table.loads) == [8, 1, 1] and list(table.load_bytes) == [4, 4, 16]
    assert list(table.threads) == ["exactly 128", "any", "up to 256"]
    assert list(table.num_warps.isna()) == [False, True, True]


def test_cuda_optimisation_switches():
    plain, debug, level0 = (
        ptx.cuda_stages(CUDA, kernel="square4", flags=flags)
        for flags in ((), ("-G",), ("--ptxas-options=-O0",))
    )
    assert level0.reading.opcodes == plain.reading.opcodes != debug.reading.opcodes
    assert len(level0.sass_reading.instructions) > len(plain.sass_reading.instructions)
    assert len(debug.reading.loads) == 1  # its own stack is not global memory


def test_cuda_mistakes():
    with pytest.raises(ValueError, match="2 kernels"):
        ptx.cuda_stages(CUDA)
    with pytest.raises(ValueError, match="no kernel 'cube'; it has"):
        ptx.cuda_stages(CUDA, kernel="cube")
    with pytest.raises(ValueError, match="has no kernel: mark a function __global__"):
        ptx.cuda_stages("__device__ int f() { return 1; }")
    with pytest.raises(cuda.BuildError, match='identifier "y" is undefined'):
        ptx.cuda_stages("__global__ void f(float* x) { x[0] = y; }")
    with pytest.raises(ValueError, match="NVRTC shows no ttgir"):
        ptx.cuda_stages(CUDA, kernel="square").text("ttgir")


# Showing
# ---------------------------------------------------------------------------------------


def test_side_by_side_tints_lines_and_numbers_them():
    square = compiled()
    view = ptx.side_by_side(square)
    assert repr(view).startswith("rows_kernel (sm_90): source ") and "<" not in repr(view)
    multiply = line_of(rows_kernel, "x * x")
    fmul = next(row for row in view.html.split("<div") if "<b>FMUL</b>" in row)
    source = next(row for row in view.html.split("<div") if "tl.store" in row)
    tint = fmul.split('"')[1]
    assert f"<b>{multiply}</b>" in fmul and tint in source and "rgba(" in tint
    assert "<script" not in view.html and "<style" not in view.html and "http" not in view.html
    assert ".loc" not in view.html and ".b8" not in view.html and "NOP" not in view.html
    assert len(view.html) < 100_000


def test_side_by_side_takes_kernels_of_both_languages():
    four = ptx.cuda_stages(CUDA, kernel="square4")
    view = ptx.side_by_side(compiled(), four, kinds=("source", "ttgir", "ptx"), labels=["Triton", "C++"])
    assert "C++ · ptx" in view.html and "Triton · ttgir" in view.html and "&lt; n" in view.html
    for mistake, words in (
        ({"kinds": ("asm",)}, "no stage 'asm'"),
        ({"labels": ["one"]}, "1 labels"),
    ):
        with pytest.raises(ValueError, match=words):
            ptx.side_by_side(compiled(), four, **mistake)
    with pytest.raises(ValueError, match="at least one"):
        ptx.side_by_side()


def test_reprs_and_their_errors():
    assert repr(compiled()).startswith("rows_kernel for sm_90, 4 warps: 8 loads of up to 4 bytes")
    assert "shared memory: not named" in repr(compiled().reading)
    with pytest.raises(ValueError, match="no stage 'asm'"):
        compiled().text("asm")
    with pytest.raises(ValueError, match="at least one"):
        ptx.summary()
    with pytest.raises(ValueError, match="1 kernels and 2 labels"):
        ptx.summary(compiled(), labels=["a", "b"])
