"""The hidden kernels of lab 04's `count-loads`: Triton and CUDA C++ whose loads differ in number
and width.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import triton
import triton.language as tl

from helpers import ptx

TARGETS = ("sm_75", "sm_80", "sm_90", "sm_100")
_BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2}


@triton.jit
def scale_kernel(y_ptr, x_ptr, n, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * 3, mask=i < n)


@triton.jit
def add_kernel(z_ptr, x_ptr, y_ptr, n, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x, y = tl.load(x_ptr + i, mask=i < n), tl.load(y_ptr + i, mask=i < n)
    tl.store(z_ptr + i, x.to(tl.float32) + y.to(tl.float32), mask=i < n)


@triton.jit
def gather_kernel(y_ptr, x_ptr, index_ptr, n, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    at = tl.load(index_ptr + i, mask=i < n, other=0)
    tl.store(y_ptr + i, tl.load(x_ptr + at, mask=i < n), mask=i < n)


@triton.jit
def whole_blocks_kernel(y_ptr, x_ptr, scale_ptr, n, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(y_ptr + i, tl.load(x_ptr + i) * tl.load(scale_ptr))


@triton.jit
def row_sum_kernel(y_ptr, x_ptr, n, BLOCK_SIZE: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + row * n + i, mask=i < n, other=0.0)
    tl.store(y_ptr + row, tl.sum(x.to(tl.float32), axis=0))


_CUDA = {
    "one float per thread": """
__global__ void half_of(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i];
}""",
    "float4, read-only": """
__global__ void half_of(const float4* __restrict__ x, float4* __restrict__ y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { const float4 v = x[i]; y[i] = make_float4(v.x / 2, v.y / 2, v.z / 2, v.w / 2); }
}""",
    "a double and an int2": """
__global__ void weighted(const double* x, const int2* at, double* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { const int2 p = at[i]; y[i] = x[p.x] * p.y; }
}""",
    "neighbors through shared memory": """
__global__ void blur(const float* x, float* y, int n) {
    __shared__ float tile[258];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x;
    tile[t + 1] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (t > 0 && t < 255 && i < n) y[i] = tile[t] + tile[t + 1] + tile[t + 2];
}""",
    "bytes": """
__global__ void invert(const unsigned char* x, unsigned char* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 255 - x[i];
}""",
}


def count(text: str) -> dict[int, int]:
    """Bytes that one load moves -> the number of such loads from global memory in the text."""
    return dict(Counter(load.n_bytes for load in ptx.read_ptx(text).loads))


def _stages(kernel, dtype: str, size: int, warps: int, target: str, aligned: bool) -> ptx.Stages:
    names = [n for n in kernel.arg_names if n != "BLOCK_SIZE"]
    kinds = {"n": "i32", "index_ptr": "*i64" if size >= 1024 else "*i32", "scale_ptr": f"*{dtype}"}
    pointers = [n for n in names if n.endswith("_ptr")]
    return ptx.stages(
        kernel,
        signature={n: kinds.get(n, f"*{dtype}") for n in names},
        constexprs={"BLOCK_SIZE": size},
        target=target,
        num_warps=warps,
        divisible_by_16=names if aligned else pointers,
    )


def texts(rng: random.Random) -> Iterator[tuple[str, str, dict[int, int]]]:
    """Hidden PTX texts, compiled now and different in each check: (label, text, right count)."""

    def triton_text(kernel, dtype, size, warps, aligned) -> tuple[str, str, dict[int, int]]:
        target = rng.choice(TARGETS)
        if dtype == "bf16" and target == "sm_75":
            target = "sm_80"
        name = kernel.fn.__name__
        label = f"{name}, {dtype}, BLOCK_SIZE {size}, {warps} warps, {target}"
        text = _stages(kernel, dtype, size, warps, target, aligned).ptx
        return label, text, count(text)

    warps = rng.choice((2, 4, 8))
    yield triton_text(scale_kernel, "fp32", 1024, 4, False)
    yield triton_text(scale_kernel, "fp32", 1024, warps, True)
    yield triton_text(scale_kernel, "fp16", rng.choice((512, 2048)), warps, False)
    yield triton_text(row_sum_kernel, "fp32", 2048, rng.choice((4, 8)), rng.random() < 0.5)
    yield triton_text(gather_kernel, rng.choice(("fp16", "fp32")), rng.choice((512, 1024)), 4, True)
    yield triton_text(whole_blocks_kernel, rng.choice(("fp32", "bf16")), 1024, rng.choice((1, 4)), False)
    for _ in range(5):
        dtype, size = rng.choice(tuple(_BYTES)), rng.choice((256, 512, 1024, 2048, 4096))
        kernel = rng.choice((scale_kernel, add_kernel, gather_kernel, whole_blocks_kernel, row_sum_kernel))
        yield triton_text(kernel, dtype, size, rng.choice((1, 2, 4, 8, 16)), rng.random() < 0.6)
    for name in rng.sample(sorted(_CUDA), len(_CUDA)):
        target = rng.choice(TARGETS)
        text = ptx.cuda_stages(_CUDA[name].strip(), target=target).ptx
        yield f"CUDA C++, {name}, {target}", text, count(text)
