"""What a warp asks for: sectors and passes, against layouts whose numbers are known."""

import pytest
import triton
import triton.language as tl

from helpers import cuda, ptx
from helpers.ptx.access import NOT_AFFINE, accesses, passes, sectors


def of(text: str, *flags: str, block=None) -> list:
    return accesses(ptx.read_ptx(cuda.compile_ptx(text, flags=("-lineinfo", *flags))), block=block)


TRANSPOSE = """extern "C" __global__ void transpose(float* y, const float* x, int n) {
    __shared__ float tile[32][32 + PAD];
    for (int r = threadIdx.y; r < 32; r += 8)
        tile[r][threadIdx.x] = x[(blockIdx.y * 32 + r) * n + blockIdx.x * 32 + threadIdx.x];
    __syncthreads();
    for (int r = threadIdx.y; r < 32; r += 8)
        y[(blockIdx.x * 32 + r) * n + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][r];
}"""


@pytest.mark.parametrize(("pad", "most"), [(0, 32), (1, 1)])
def test_a_transpose_has_32_way_bank_conflicts_without_padding(pad, most):
    found = of(TRANSPOSE, f"-DPAD={pad}", block=(32, 8))
    assert {a.asked for a in found if a.space == "global"} == {4}
    read = {a.asked for a in found if a.space == "shared" and a.instruction.parts[0] == "ld"}
    assert read == {most}
    assert {a.asked for a in found if a.space == "shared" and a.instruction.parts[0] == "st"} == {1}
    assert ("a bank conflict" in found[-2].words or "a bank conflict" in found[-1].words) or pad


def test_the_block_decides_how_a_warp_lies():
    rows = 'extern "C" __global__ void k(float* y) { y[threadIdx.y * 1024 + threadIdx.x] = 1; }'
    asked = {shape: of(rows, block=shape)[0].asked for shape in ((32, 8), (16, 16), (8, 32), (1, 256))}
    assert asked == {(32, 8): 4, (16, 16): 4, (8, 32): 4, (1, 256): 32}


@pytest.mark.parametrize(
    ("index", "asked"),
    [
        ("threadIdx.x", 4), ("threadIdx.x * 2", 8), ("threadIdx.x * 8", 32), ("threadIdx.x / 8", 1),
        ("threadIdx.x ^ 5", 4), ("31 - threadIdx.x", 4), ("blockIdx.x * n + threadIdx.x", 4), ("n", 1),
        ("threadIdx.x * n", None), ("indices[threadIdx.x]", None), ("indices[blockIdx.x] + threadIdx.x", 4),
    ],
)  # fmt: skip
def test_addresses_that_are_affine_and_that_are_not(index, asked):
    text = f'extern "C" __global__ void k(float* y, const int* indices, int n) {{ y[{index}] = 1; }}'
    (store,) = [a for a in of(text) if a.instruction.parts[0] == "st"]
    assert store.asked == asked
    assert (store.words == NOT_AFFINE) == (asked is None)


def test_a_loop_that_strides_by_the_block():
    text = """extern "C" __global__ void k(float* y, const float* x, int n) {
        float s = 0; for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[i]; y[threadIdx.x] = s; }"""
    assert {a.asked for a in of(text)} == {4}


@triton.jit
def copy_kernel(y_ptr, x_ptr, n, BLOCK_SIZE: tl.constexpr, STEP: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE * STEP + tl.arange(0, BLOCK_SIZE) * STEP
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize(("step", "n_bytes", "asked"), [(1, 16, 16), (2, 4, 8), (3, 4, 12)])
def test_a_triton_layout(step, n_bytes, asked):
    made = ptx.stages(
        copy_kernel, signature={"y_ptr": "*fp32", "x_ptr": "*fp32", "n": "i32"},
        constexprs={"BLOCK_SIZE": 512, "STEP": step}, divisible_by_16=("y_ptr", "x_ptr", "n"),
    )  # fmt: skip
    first = accesses(made.reading)[0]
    assert (first.space, first.n_bytes) == ("global", n_bytes)
    if step == 1:
        assert first.asked == asked == first.fewest
    else:  # neighbours of a thread lie side by side in the layout, not in memory
        assert first.asked > first.fewest


def test_counts_by_hand():
    assert sectors(range(0, 128, 4), 4) == 4 and sectors([0] * 32, 4) == 1 and sectors([30], 4) == 2
    assert passes(range(0, 128, 4), 4) == 1 and passes([0] * 32, 4) == 1  # one word goes to all lanes
    assert passes([128 * lane for lane in range(32)], 4) == 32
    assert passes([8 * lane for lane in range(32)], 4) == 2
    assert (
        passes([8 * lane for lane in range(32)], 8) == 2
        and passes([16 * lane for lane in range(32)], 16) == 4
    )
