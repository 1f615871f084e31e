"""CUDA on the host: the corpus against its references, against an H100's records, and the broken kernels'
messages.
"""

from __future__ import annotations

import os
import subprocess

import pytest
import torch
from cuda_corpus import corpus

from helpers import check, cuda, device
from helpers.cuda import emulator
from helpers.cuda.emulator import checked, translate
from helpers.lessons import grid

CASES = {case.name: case for case in corpus.CASES}


# The corpus


@pytest.fixture(scope="module")
def on_gpu():
    return corpus.recorded().set_index(["case", "output"])


@pytest.mark.parametrize("name", CASES)
def test_the_host_computes_what_the_reference_and_a_gpu_do(name, on_gpu):
    case = CASES[name]
    relative, absolute = case.tolerance
    outputs = corpus.run(case, "emulator")
    wide = [t.double() if t.is_floating_point() else t for t in corpus.inputs(case)]
    expected = case.reference(*wide, case.n, case.m)
    for got, right in zip(outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
        check.assert_close(name, got, right.reshape(got.shape), tolerance=case.tolerance)
    for row in corpus.digest(case, outputs):
        there = on_gpu.loc[(name, row["output"])]
        assert (row["dtype"], row["n"]) == (there["dtype"], there["n"])
        if "sha256" in row:
            assert row["sha256"] == there["sha256"]
        else:
            torch.testing.assert_close(row["samples"], list(there["samples"]), rtol=relative, atol=absolute)
            slack = relative * row["absolute_sum"] + absolute * row["n"]
            assert row["sum"] == pytest.approx(there["sum"], abs=slack)
            assert row["absolute_sum"] == pytest.approx(there["absolute_sum"], abs=slack)


def broken(name: str):
    expected = corpus.EXPECTED[name]
    x, y = torch.arange(expected.n).float(), torch.full((expected.n,), float("nan"))
    return getattr(corpus.broken(), name)(x.data_ptr(), y.data_ptr(), expected.n)


@pytest.mark.parametrize("name", [n for n, e in corpus.EXPECTED.items() if e.cause != "unwritten"])
def test_the_error_of_a_broken_kernel_has_cause_thread_and_line(name):
    expected = corpus.EXPECTED[name]
    for _ in range(2):  # the process lives on, and says the same again
        with pytest.raises(checked.EmulatorError) as caught:
            broken(name)
        error = caught.value
        assert error.cause == expected.cause, error
        assert (error.block, error.thread) == (expected.block, expected.thread), error
        assert error.line == corpus.blamed_line(name), error
        assert error.argument == expected.argument
        assert error.bytes_outside == expected.outside
        assert corpus.BROKEN.splitlines()[error.line - 1].strip() in str(error)


def test_a_traced_run_finds_a_forgotten_tail():
    traced = grid.trace(lambda: broken("tail_forgotten"))
    assert traced.never_written("out", 1000) == list(range(768, 1000))


def test_compute_sanitizer_finds_the_same_lines():
    found = corpus.sanitizer()
    assert list(found["case"]) == list(corpus.EXPECTED)
    found = found[found["verdict"] != "nothing found"].set_index("case")
    assert len(found) >= 12
    # A line that it names is ours, or one that the race is with.
    for name in found.index[found["line"] > 0]:
        assert abs(found.loc[name, "line"] - corpus.blamed_line(name)) <= 3, name
    if not device.has_gpu():
        assert corpus.TABLE.read_text() == corpus.table(), "run: python tests/cuda_corpus/corpus.py"


# Small sources


def load(name: str, text: str, functions, **more):
    return cuda.load_cuda(name, text, functions, torch_headers=False, device="emulator", **more)


def test_the_device_argument_is_checked(monkeypatch):
    with pytest.raises(ValueError, match="tpu"):
        cuda.load_cuda("x", "", ["f"], device="tpu")
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    with pytest.raises(device.Missing):
        cuda.load_cuda("x", "", ["f"], device="cuda")


FILL = r"""
__global__ void fill(float* out, float value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = value;
}
const char* run_fill(int64_t out, float value, int n, int blocks, int threads) {
    fill<<<blocks, threads>>>((float*)out, value, n);
    return cudaGetErrorString(cudaGetLastError());
}
"""


@pytest.fixture(scope="module")
def fill():
    return load("host_fill", FILL, ["run_fill"]).run_fill


@pytest.mark.parametrize(("blocks", "threads"), [(0, 32), (1, 0), (1, 1025)])
def test_an_invalid_launch_configuration_is_refused(fill, blocks, threads):
    y = torch.zeros(4)
    assert fill(y.data_ptr(), 1.0, 4, blocks, threads) == "invalid configuration argument"
    assert fill(y.data_ptr(), 1.0, 4, 1, 32) == "no error"  # the error was asked for, and is gone
    assert y.tolist() == [1.0] * 4


def test_an_address_outside_all_tensors_is_an_error(fill):
    with pytest.raises(checked.EmulatorError, match="does not point into any tensor") as caught:
        fill(1 << 20, 1.0, 4, 1, 32)
    assert caught.value.cause == "no tensor"


def test_a_tensor_is_found_by_its_address(fill):
    class Holder:
        tensor = torch.zeros(64)

    assert fill(Holder.tensor.data_ptr(), 2.0, 64, 2, 32) == "no error"
    assert Holder.tensor.unique().tolist() == [2.0]
    view = Holder.tensor[16:32]
    assert fill(view.data_ptr(), 3.0, 16, 1, 32) == "no error"
    assert (Holder.tensor == 3.0).nonzero().flatten().tolist() == list(range(16, 32))
    with pytest.raises(checked.EmulatorError, match="element 48 of `out`, 4 bytes past its end"):
        fill(view.data_ptr(), 3.0, 64, 2, 32)


def test_the_error_of_the_first_block_is_reported_although_blocks_run_in_parallel(fill):
    y = torch.zeros(1_000_000)
    for _ in range(3):
        with pytest.raises(checked.EmulatorError) as caught:
            fill(y.data_ptr(), 1.0, 2_000_000, 20_000, 128)
        assert caught.value.block == (7812, 0, 0)
        assert caught.value.thread == (64, 0, 0)


def test_a_compiler_error_points_into_the_learners_text():
    wrong = FILL.replace("= value;", "= valeu;")
    with pytest.raises(cuda.BuildError) as caught:
        load("host_wrong", wrong, ["run_fill"])
    assert "host_wrong.cu, line 4" in str(caught.value)
    assert "if (i < n) out[i] = valeu;" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "names"),
    [
        ("#include <cub/cub.cuh>\n", 1, "cub/cub.cuh"),
        ("#include <cooperative_groups.h>\n", 1, "cooperative_groups"),
        ("#include <mma.h>\n", 1, "mma.h"),
        ('\n__global__ void k(float* x) {\n  asm volatile("membar.gl;");\n}', 3, "inline PTX"),
        ("__global__ void k(float* x) { x[0] = clock64(); }", 1, "clock64"),
        ("__global__ void k(float* x) {\n x[0] = __dp4a(1, 2, 3); }", 2, "__dp4a"),
        ("__global__ void k(float* x) {\n unsigned m = __activemask(); }", 2, "__activemask"),
        ("__global__ void c(); \n__global__ void k() {\n c<<<1, 1>>>(); }", 3, "dynamic parallelism"),
        ("__device__ __managed__ int x;\n", 1, "__managed__"),
    ],
)
def test_what_needs_a_gpu_is_named_with_its_line(text, line, names):
    with pytest.raises(cuda.BuildError, match="needs a GPU") as caught:
        load("host_refused", text, ["f"])
    assert names in str(caught.value)
    assert f"host_refused.cu, line {line}:" in str(caught.value)


def test_translation_keeps_every_line_in_its_place():
    for text in (corpus.RIGHT, corpus.BROKEN):
        before, after = text.splitlines(), translate.translate(text).text.splitlines()
        for number, line in enumerate(before):
            if line.startswith(("LAUNCHER", "}", "//")) or "return SAID" in line:
                assert after[number] == line


@pytest.mark.parametrize(
    ("code", "becomes"),
    [
        ("p[i] = q[i];", ["p[wb::W(i, ", "q[wb::R(i, "]),
        ("p[i] += q[i + 1];", ["p[wb::M(i, ", "q[wb::R(i + 1, "]),
        ("p[i]++;", ["p[wb::M(i, "]),
        ("--p[i];", ["p[wb::M(i, "]),
        ("atomicAdd(&p[i], 1.0f);", ["&p[wb::P(i, "]),
        ("float v = p[i] == q[i] ? 1 : 0;", ["p[wb::R(i, ", "q[wb::R(i, "]),
        ("*p = *q;", ["(p)[wb::W(0, ", "(q)[wb::R(0, "]),
        ("*(p + i) *= 2;", ["((p + i))[wb::M(0, "]),
        ("float v = 2 * *q++;", ["2 * (q++)[wb::R(0, "]),
        (
            "float4 v = *reinterpret_cast<const float4*>(&q[i]);",
            ["(wb::reinterpret<wb::ptr<const float4> >(&q[wb::P(i, "],
        ),
        ("float *a = p, *b = p + 1;", ["wb::ptr<float > a = p; wb::ptr<float> b = p + 1;"]),
        ("float a[4]; a[i] = i * n;", ["float a[4]; a[wb::W(i, ", "i * n;"]),
        ("int j = i * n * (i) * n;", ["int j = i * n * (i) * n;"]),
        ("float x = (float)*q;", ["(float)(q)[wb::R(0, "]),
    ],
)
def test_what_a_line_of_device_code_becomes(code, becomes):
    text = f"__global__ void k(float* p, const float* __restrict__ q, int i, int n) {{ {code} }}"
    after = translate.translate(text).text
    for piece in becomes:
        assert piece in after, after


def test_a_launch_in_a_macro_and_with_template_arguments():
    text = (
        "#define GO(k, g, b) k<<<g, b>>>\nvoid f() { GO(a, 1, 2)(3); b<int, 4><<<dim3(1, 2), n > 1 ? 2 : "
        "1>>>(x, y); }"
    )
    after = translate.translate(text).text
    assert 'wb::launch([&](auto... wb_arguments) { k(wb_arguments...); }, "k", wb::Config(g, b))' in after
    assert (
        '{ b<int, 4>(wb_arguments...); }, "b<int, 4>", wb::Config(dim3(1, 2), n > 1 ? 2 : 1))(x, y);' in after
    )


REVERSE = r"""
extern __shared__ float row[];
template <typename T, int N> struct alignas(sizeof(T) * N) Pack { T v[N]; };
template <int N> __global__ void reverse(float* p, int n) {
    auto pack = *reinterpret_cast<const Pack<float, N>*>(p + N * threadIdx.x);
    for (int k = 0; k < N; ++k) row[N * threadIdx.x + k] = pack.v[k];
    SYNC
    for (int k = 0; k < N; ++k) p[N * threadIdx.x + k] = row[n - 1 - N * threadIdx.x - k];
}
void run(int64_t p, int n) { reverse<4><<<1, n / 4, n * sizeof(float)>>>((float*)p, n); }
"""


def test_shared_memory_may_be_declared_outside_of_functions_and_a_pointer_have_template_arguments():
    x = torch.arange(64.0)
    load("reverse", REVERSE.replace("SYNC", "__syncthreads();"), ["run"]).run(x.data_ptr(), 64)
    assert torch.equal(x, torch.arange(63.0, -1, -1))
    with pytest.raises(emulator.EmulatorError, match="`row`"):
        load("reverse_early", REVERSE.replace("SYNC", ""), ["run"]).run(x.data_ptr(), 64)


ENDLESS = r"""
__global__ void wait(int* flag) {
    while (atomicAdd(flag, 0) == 0) {}
}
__global__ void work(float* out, int n) {
    for (int i = 0; i < n; ++i) out[blockIdx.x % 32] += 1.0f;
}
void run_wait(int64_t flag) { wait<<<1, 1>>>((int*)flag); }
void run_work(int64_t out, int n) { work<<<2000000000, 32>>>((float*)out, n); }
"""


@pytest.mark.parametrize("name", ["run_wait", "run_work"])
def test_a_kernel_that_never_ends_is_interrupted_by_ctrl_c(name):
    module = load("host_endless", ENDLESS, ["run_wait", "run_work"])
    flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(32)
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -INT {os.getpid()}"])
    with pytest.raises(KeyboardInterrupt, match="interrupted"):
        module.run_wait(flag.data_ptr()) if name == "run_wait" else module.run_work(out.data_ptr(), 10)
    killer.wait()
    flag.fill_(1)
    assert module.run_wait(flag.data_ptr()) is None  # the process lives on


# Traced runs

TRACED = r"""
__global__ void copy(const float* in, float* out, int height, int width) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < height && col < width) out[row * width + col] = in[row * width + col];
}
__global__ void strided(const float* in, float* out, int stride) {
    out[threadIdx.x] = in[threadIdx.x * stride]; }
void run_copy(int64_t in, int64_t out, int height, int width, int bx, int by) {
    copy<<<dim3((width + bx - 1) / bx, (height + by - 1) / by), dim3(bx, by)>>>((const float*)in,
        (float*)out, height, width);
}
void run_strided(int64_t in, int64_t out, int stride) {
    strided<<<1, 32>>>((const float*)in, (float*)out, stride); }
"""


@pytest.fixture(scope="module")
def traced():
    return load("host_traced", TRACED, ["run_copy", "run_strided"])


@pytest.mark.parametrize(("stride", "sectors"), [(0, 1), (1, 4), (2, 8), (8, 32), (100, 32)])
def test_sectors_of_a_strided_read(traced, stride, sectors):
    x, y = torch.rand(3200), torch.empty(32)
    run = grid.trace(lambda: traced.run_strided(x.data_ptr(), y.data_ptr(), stride))
    assert run.sectors_per_request("in") == sectors
    assert run.sectors_per_request("out") == 4


@pytest.mark.parametrize(("block", "sectors"), [((16, 16), 4), ((32, 8), 4), ((256, 1), 4), ((1, 256), 32)])
def test_sectors_of_a_block_shape(traced, block, sectors):
    x = torch.rand(256, 512)
    y = torch.empty_like(x)
    run = grid.trace(lambda: traced.run_copy(x.data_ptr(), y.data_ptr(), 256, 512, *block))
    assert run.sectors_per_request("in") == run.sectors_per_request("out") == sectors
    assert torch.equal(x, y)


def test_writers_are_the_threads_that_the_index_arithmetic_gives(traced):
    x = torch.rand(20, 30)
    y = torch.empty_like(x)
    run = grid.trace(lambda: traced.run_copy(x.data_ptr(), y.data_ptr(), 20, 30, 8, 4))
    who = run.writers("out")
    row, col = who["element"] // 30, who["element"] % 30
    assert list(who["element"]) == list(range(600))
    assert (who["block_x"] == col // 8).all()
    assert (who["block_y"] == row // 4).all()
    assert (who["thread_x"] == col % 8).all()
    assert (who["lane"] == (row % 4) * 8 + col % 8).all()
    assert (who["n_writes"] == 1).all()
    figure = run.draw("out", (20, 30))
    assert figure.data[0].z.shape == (20, 30)
    assert run.never_written("out", 600) == []
    with pytest.raises(ValueError, match="in, out"):
        run.writers("output")
    with pytest.raises(ValueError, match="corner"):
        run.draw("out", (200, 30000), corner=(200, 300))


def test_a_trace_without_a_launch():
    with pytest.raises(ValueError, match="exactly one module"):
        grid.trace(lambda: None)


def test_a_trace_within_a_trace(traced):
    """The outer one holds the inner one's launches; the inner one begins with its own."""
    x, y = torch.rand(3200), torch.empty(32)

    def strided(stride):
        traced.run_strided(x.data_ptr(), y.data_ptr(), stride)

    with emulator.tracing() as outer:
        strided(1)
        run = grid.trace(lambda: strided(8))
        traced.run_copy(x.data_ptr(), x.data_ptr(), 1, 1, 32, 1)
    assert outer.kernels == ["strided", "strided", "copy"]
    assert set(run.accesses["launch"]) == {0} and run.sectors_per_request("in") == 32
    assert grid.trace(lambda: strided(1)).sectors_per_request("in") == 4


# With torch's headers: one build for all (half a minute the first time)

WITH_TORCH = r"""
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>

template <typename scalar_t>
__global__ void shift_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int64_t n,
    int64_t written) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < written) y[i] = x[i] + scalar_t(1);
}

torch::Tensor shift(torch::Tensor x, int64_t written, int64_t threads) {
    TORCH_CHECK(x.is_cuda(), "shift: x must be a CUDA tensor");
    TORCH_CHECK(x.is_contiguous(), "shift: x must be contiguous");
    const c10::cuda::CUDAGuard guard(x.device());
    auto y = torch::empty_like(x);
    if (x.numel() == 0) return y;
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "shift", [&] {
        shift_kernel<scalar_t><<<(x.numel() + threads - 1) / threads, threads, 0,
            c10::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel(), written);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""


@pytest.fixture(scope="module")
def shift():
    return cuda.load_cuda("host_shift", WITH_TORCH, ["shift"], device="emulator").shift


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_wrapper_takes_cpu_tensors(shift, dtype):
    x = torch.randn(7, 100).to(dtype)
    assert torch.equal(shift(x, x.numel(), 64), x + 1)


def test_errors_of_the_wrapper_and_of_the_launch_are_raised(shift):
    x = torch.randn(8, 4)
    with pytest.raises(RuntimeError, match="x must be contiguous"):
        shift(x.t(), 32, 64)
    with pytest.raises(RuntimeError, match="CUDA error: invalid configuration argument"):
        shift(x, 32, 2048)
    with pytest.raises(RuntimeError, match="must be a CUDA tensor"):
        shift(x.to("meta"), 32, 64)


def test_unwritten_elements_and_writes_past_the_end_are_errors(shift):
    x = torch.randn(10, 10)
    with pytest.raises(checked.EmulatorError, match=r"30 of 100 elements .*\(7, 0\)") as caught:
        shift(x, 70, 64)
    assert caught.value.cause == "unwritten"
    with emulator.unwritten_allowed():
        with emulator.unwritten_allowed():
            shift(x, 70, 64)
        assert torch.equal(shift(x, 70, 64)[:7], x[:7] + 1)
    with pytest.raises(checked.EmulatorError, match="4 bytes past its end") as caught:
        shift(x, 128, 64)
    assert (caught.value.kernel, caught.value.argument) == ("shift_kernel", "x")
    assert (caught.value.block, caught.value.thread) == ((1, 0, 0), (36, 0, 0))
    check.assert_matches(lambda t: shift(t, t.numel(), 64), lambda t: t + 1, device="cpu", name="shift")


def test_fibers_by_ucontext_for_other_processors():
    case = CASES["block_sum"]
    text = corpus.RIGHT.split("// warps")[0]
    module = load("host_ucontext", text, ["block_sum"], flags=["-O2", "-DWB_UCONTEXT"])
    x, out = corpus.inputs(case)
    assert module.block_sum(x.data_ptr(), out.data_ptr(), 0, 0, case.n, case.m, 0) == "no error"
    assert torch.equal(out, case.reference(x, out, case.n, case.m))
