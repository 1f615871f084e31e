"""Lab 11's checks: typical wrong attempts are refused with the mistake that they make, right ones of any kind
accepted.
"""

from __future__ import annotations

import math
import re

import pytest
import seeds
from commands import cells
from lab_answers import judged, mistakes, solution
from lab_attempts import Attempt, changed, judge, solution_cells

from helpers import exercises
from helpers.exercises.attempt import attempt
from helpers.exercises.lab11 import claim, tiles
from helpers.lab import WriteUp
from helpers.lessons import products

LAB = "11_matmul"
ANY, TILED, GELU = "any-product", "tiled-product", "bias-gelu"

_POINTERS = """        ks = start + tl.arange(0, BLOCK_K).to(tl.int64)
        a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
"""
_STALE_A = _POINTERS.replace("ks[None, :] * stride_ak", "(ks - start)[None, :] * stride_ak")
_STALE_B = _POINTERS.replace("ks[:, None] * stride_bk", "(ks - start)[:, None] * stride_bk")
_ROUNDED = ("range(0, k, BLOCK_K)", "range(0, k // BLOCK_K * BLOCK_K, BLOCK_K)")
_WIDE = ").to(tl.int64)"
_DOT = 'sums = tl.dot(a, b, sums, input_precision="ieee")'


def _product(old: str, new: str, mistake: str = "", says: str = "") -> Attempt:
    return changed(ANY, old, new, mistake, says)


ATTEMPTS = {
    "any: no precision": _product(', input_precision="ieee"', "", "tf32", "TF32"),
    "any: tf32 in three products": _product('"ieee"', '"tf32x3"'),
    "any: sums of float16": Attempt(
        ANY,
        (
            (
                "tl.zeros((BLOCK_M, BLOCK_N), tl.float32)",
                "tl.zeros((BLOCK_M, BLOCK_N), c_ptr.dtype.element_ty)",
            ),
            (_DOT, 'sums += tl.dot(a, b, input_precision="ieee").to(c_ptr.dtype.element_ty)'),
        ),
        "half-accumulator",
        "float32 accumulator",
    ),
    "any: no mask along k": Attempt(
        ANY, ((" & (ks < k)[None, :]", ""), ("(ks < k)[:, None] & ", "")), "no-mask-along-k", "ks < k"
    ),
    "any: only a is masked along k": _product("(ks < k)[:, None] & ", "", "no-mask-along-k"),
    "any: only b is masked along k": _product(" & (ks < k)[None, :]", "", "no-mask-along-k"),
    "any: masked without other": _product(", other=0.0", "", "no-mask-along-k", "other=0.0"),
    "any: b transposed": _product("*b.stride()", "b.stride(1), b.stride(0)", "transposed-b"),
    "any: a transposed": _product("*a.stride()", "a.stride(1), a.stride(0)", "transposed-a"),
    "any: both pointers stay": _product(
        "ks = start + tl.arange(0, BLOCK_K).to(tl.int64)",
        "steps = start + tl.arange(0, BLOCK_K)\n        ks = tl.arange(0, BLOCK_K).to(tl.int64)",
        "stale-tile",
    ),
    "any: a's pointers stay": _product(_POINTERS, _STALE_A, "stale-tile", "the first tile of a"),
    "any: b's pointers stay": _product(_POINTERS, _STALE_B, "stale-tile", "the first tile of b"),
    "any: the last step alone": _product("tl.dot(a, b, sums, ", "tl.dot(a, b, ", "not-accumulated"),
    "any: one step": _product("range(0, k, BLOCK_K)", "range(0, min(k, BLOCK_K), BLOCK_K)", "one-step"),
    "any: k rounded down": Attempt(ANY, (_ROUNDED,), "k-rounded-down", "partial step"),
    "any: 32-bit rows and columns": _product(_WIDE, ")", "int32-overflow", "64 bits"),
    "any: 32-bit rows": _product(
        "rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)",
        "rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)",
        "int32-overflow",
    ),
    "any: 32-bit k": _product(
        "tl.arange(0, BLOCK_K).to(tl.int64)", "tl.arange(0, BLOCK_K)", "int32-overflow"
    ),
    "any: b as if it were contiguous": _product("*b.stride()", "n, 1", "wrong-stride", "b read as if"),
    "any: a as if it were contiguous": _product("*a.stride()", "k, 1", "wrong-stride", "a read as if"),
    "any: only whole tiles": _product(
        "(triton.cdiv(m, 64), triton.cdiv(n, 64))",
        "(m // 64, n // 64)",
        "missing-tail|only-first-block|fast-but-partial|uninitialised-output",
    ),
    "any: no mask at the store": _product(", mask=inside_m & inside_n)\n", ")\n", "missing-mask"),
    "any: no mask of the rows": _product(
        "mask=inside_m & (ks < k)[None, :]", "mask=(ks < k)[None, :]", "missing-mask"
    ),
    "any: an empty grid": _product("if c.numel():", "if True:"),
    "any: no steps": _product("if c.numel():", "if c.numel() and k:", "uninitialised-output"),
    "any: torch does it": Attempt(
        ANY, source="def matmul_any(a, b):\n    return a @ b\n", mistake="no-launch"
    ),
    "any: torch makes contiguous copies": _product(
        "    (m, k), n =", "    a, b = a.contiguous(), b.contiguous()\n    (m, k), n ="
    ),
    "any: small tiles": _product(
        '{"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}', '{"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128}'
    ),
}


# ------------------------------------------------------------------------------------------ the CUDA kernel
_FIRST = "        __syncthreads();\n        for"
_SECOND = "a_tile[y][i] * b_tile[i][x];\n        __syncthreads();\n"
_NAIVE = """TILED_CUDA = r'''
__global__ void tiled_kernel(const float* a, const float* b, float* c, int m, int n, int k) {
    const int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
}
'''
"""


def _cuda(old: str, new: str, mistake: str = "", says: str = "") -> Attempt:
    return changed(TILED, old, new, mistake, says)


ATTEMPTS |= {
    "cuda: the solution": Attempt(TILED),
    "cuda: no first barrier": _cuda(_FIRST, "        for", "missing-barrier", "__syncthreads()"),
    "cuda: no second barrier": _cuda(
        _SECOND, "a_tile[y][i] * b_tile[i][x];\n", "missing-barrier", "__syncthreads()"
    ),
    "cuda: a barrier in a branch": _cuda(
        "        __syncthreads();\n        for (int i = 0; i < 16; ++i) sum",
        "        if (row < m && col < n) __syncthreads();\n        for (int i = 0; i < 16; ++i) sum",
        "barrier-in-if|missing-barrier",
    ),
    "cuda: returns early": _cuda(
        "    float sum = 0.0f;",
        "    if (row >= m || col >= n) return;\n    float sum = 0.0f;",
        "barrier-in-if|missing-barrier",
    ),
    "cuda: no mask along k": Attempt(
        TILED, ((" && first + x < k", ""), ("first + y < k && ", "")), "k-not-masked", "0 into both tiles"
    ),
    "cuda: rows of a not masked": _cuda("row < m && first", "first", "missing-guard"),
    "cuda: columns of b not masked": _cuda(
        "first + y < k && col < n ?", "first + y < k ?", "missing-guard|wrong-values"
    ),
    "cuda: every thread stores": _cuda("if (row < m && col < n) c", "c", "missing-guard"),
    "cuda: no zeros past the end": Attempt(
        TILED,
        (
            ("a_tile[y][x] = row < m && first + x < k ? ", "if (row < m && first + x < k) a_tile[y][x] = "),
            ("+ x] : 0.0f", "+ x]"),
            ("b_tile[y][x] = first + y < k && col < n ? ", "if (first + y < k && col < n) b_tile[y][x] = "),
            ("+ col] : 0.0f", "+ col]"),
        ),
        "k-not-masked|missing-barrier|stale-tile",
    ),
    "cuda: the first tiles again": Attempt(
        TILED,
        (("* k + first + x] :", "* k + x] :"), ("(first + y) * n", "y * n")),
        "stale-tile",
    ),
    "cuda: one step": _cuda("first < k; first", "first < 16 && first < k; first", "one-step"),
    "cuda: starts again": _cuda(
        "        a_tile[y][x] =", "        sum = 0.0f;\n        a_tile[y][x] =", "not-accumulated"
    ),
    "cuda: k rounded down": _cuda("first < k; first", "first < k / 16 * 16; first", "k-rounded-down"),
    "cuda: b transposed": _cuda("b_tile[i][x]", "b_tile[x][i]", "transposed-b"),
    "cuda: rows of k numbers in b": _cuda(
        "(first + y) * n", "(first + y) * k", "missing-guard|wrong-values|k-not-masked"
    ),
    "cuda: stores in the loop": _cuda(
        "    }\n    if (row < m && col < n) c[(long long)row * n + col] = sum;\n",
        "        if (row < m && col < n) c[(long long)row * n + col] = sum;\n    }\n",
        "never-written",
    ),
    "cuda: no tiles": Attempt(TILED, source=_NAIVE, mistake="loads-too-often", says="instead of"),
    "cuda: another name": _cuda("void tiled_kernel", "void my_kernel", "does-not-build"),
    "cuda: a function": Attempt(TILED, source="TILED_CUDA = print\n", mistake="does-not-build"),
    "cuda: does not compile": _cuda("float sum = 0.0f;", "float sum = 0.0f", "does-not-build"),
    "cuda: loads through a pointer": _cuda(
        "b[(long long)(first + y) * n + col]", "*(b + (first + y) * (long long)n + col)"
    ),
}

# ------------------------------------------------------------------------------------------- bias and GELU
_U = "u = sums + bias[None, :]"
_Y = "u * tl.sigmoid(1.5957691216 * (u + 0.044715 * u * u * u))"
_TWO_KERNELS = """
@triton.jit
def epilogue_kernel(c_ptr, u_ptr, bias_ptr, n, stride_bias, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    u = tl.load(u_ptr + row * n + cols, mask=cols < n, other=0.0)
    u += tl.load(bias_ptr + cols.to(tl.int64) * stride_bias, mask=cols < n, other=0.0).to(tl.float32)
    y = u * tl.sigmoid(1.5957691216 * (u + 0.044715 * u * u * u))
    tl.store(c_ptr + row * n + cols, y.to(c_ptr.dtype.element_ty), mask=cols < n)


def linear_gelu(a, b, bias):
    (m, k), n = a.shape, b.shape[1]
    u = torch.empty(m, n, dtype=torch.float32, device=a.device)
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    if c.numel():
        grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
        any_kernel[grid](u, a, b, m, n, k, *a.stride(), *b.stride(), BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
        epilogue_kernel[(m,)](c, u, bias, n, bias.stride(0), BLOCK=triton.next_power_of_2(n))
    return c
"""


def _fused(old: str, new: str, mistake: str = "", says: str = "") -> Attempt:
    return changed(GELU, old, new, mistake, says)


ATTEMPTS |= {
    "gelu: the solution": Attempt(GELU),
    "gelu: no bias": _fused(_U, "u = sums", "bias-forgotten"),
    "gelu: no GELU": _fused(_Y, "u", "gelu-forgotten"),
    "gelu: the bias after GELU": Attempt(
        GELU, ((_U, "u = sums"), (_Y, f"{_Y} + bias[None, :]")), "bias-after-gelu"
    ),
    "gelu: a bias per row": Attempt(
        GELU,
        (
            ("bias_ptr + cols * stride_bias, mask=cols < n", "bias_ptr + rows * stride_bias, mask=rows < m"),
            ("bias[None, :]", "bias[:, None]"),
        ),
        "bias-of-rows",
    ),
    "gelu: twice": _fused(_Y, f"2 * {_Y}", "half-forgotten"),
    "gelu: a square": _fused("0.044715 * u * u * u", "0.044715 * u * u", "square-for-cube"),
    "gelu: half the constant": _fused("1.5957691216", "0.7978845608", "two-forgotten"),
    "gelu: with erf": _fused(_Y, "0.5 * u * (1 + tl.erf(0.7071067811865476 * u))", "exact-form"),
    "gelu: a contiguous bias": _fused(
        "cols * stride_bias", "cols", "wrong-stride|wrong-values|missing-mask|power-of-two-only"
    ),
    "gelu: TF32": _fused(', input_precision="ieee"', "", "tf32"),
    "gelu: two kernels": Attempt(
        GELU, source=solution_cells(LAB)[ANY] + _TWO_KERNELS, mistake="several-kernels"
    ),
    "gelu: stored twice": _fused(
        "    bias = tl.load",
        "    early = c_ptr + rows[:, None] * n + cols[None, :]\n"
        "    tl.store(early, sums.to(c_ptr.dtype.element_ty), mask=inside_m & inside_n)\n    bias = tl.load",
        "stored-twice",
        "2.00 times",
    ),
    "gelu: PyTorch applies it": _fused(
        "    return c\n",
        "    return torch.nn.functional.gelu(c, approximate='tanh')\n",
        "gelu-twice|wrong-values|torch-computes",
    ),
    "gelu: by exponentials": _fused(_Y, "u / (1 + tl.exp(-1.5957691216 * (u + 0.044715 * u * u * u)))"),
}


@pytest.mark.seeded
@pytest.mark.parametrize("name", ATTEMPTS)
def test_attempt(name: str, found: dict[str, dict]) -> None:
    judge(name, ATTEMPTS[name], found[name])


# ------------------------------------------------------------------------------------------ count a tiling
def _loaded(m, n, k, block_m, block_n, itemsize):
    return itemsize * k * (m * math.ceil(n / block_n) + n * math.ceil(m / block_m))


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda *sizes: str(_loaded(*sizes)), "not-a-number"),
        (lambda *sizes: _loaded(*sizes[:5], 1), "numbers"),
        (lambda m, n, k, x, y, size: size * k * (m * math.ceil(m / x) + n * math.ceil(n / y)), "exchanged"),
        (lambda m, n, k, x, y, size: _loaded(m, n, k, y, x, size), "other-sides"),
        (
            lambda m, n, k, x, y, size: math.ceil(m / x) * math.ceil(n / y) * (x + y) * k * size,
            "masked-loads",
        ),
        (lambda m, n, k, x, y, size: size * k * (m * (n // y) + n * (m // x)), "whole-tiles-only"),
        (lambda m, n, k, x, y, size: size * k * m * n * (1 / x + 1 / y), "a-fraction"),
        (lambda m, n, k, x, y, size: size * k * m * math.ceil(n / y), "one-matrix"),
        (lambda m, n, k, x, y, size: size * k * (m + n), "each-once"),
        (lambda m, n, k, x, y, size: size * k * m * n * 2, "no-reuse"),
        (lambda m, n, k, x, y, size: _loaded(m, n, k, x, y, size) + m * n * size, "stores"),
        (lambda *sizes: 7, "count"),
        (_loaded, ""),
    ],
)
def test_a_wrong_count_of_a_tiling(wrong, mistake) -> None:
    assert mistakes("count-a-tiling", wrong) == {mistake}


def test_the_count_is_what_masked_tiles_load() -> None:
    m, n, k, block_m, block_n = 50, 70, 9, 16, 32
    counted = 0
    for top in range(0, m, block_m):
        for left in range(0, n, block_n):
            counted += k * (min(block_m, m - top) + min(block_n, n - left))
    assert 2 * counted == tiles.loaded(m, n, k, block_m, block_n, 2)


# ---------------------------------------------------------------------------------------------- choose tiles
def _choice(rules: set[str] = frozenset(), warps: tuple[int, ...] = (4, 8), shift: int = 0):
    """A function that chooses by all rules but these."""

    def choose(m, n, k, itemsize, gpu):
        found = []
        for x, y, w in ((x, y, w) for x in tiles.SIDES for y in tiles.SIDES for w in warps):
            each = x * y // (32 * w) + 64
            stages = min(4, gpu["shared_bytes"] // ((x + y) * 128))
            if "shared" not in rules and stages < 3:
                continue
            if "thread" not in rules and each > 255:
                continue
            if "program" not in rules and each * 32 * w > gpu["registers"]:
                continue
            found.append((x, y, w, max(3, stages) + shift))

        def programs(one):
            return -(-m // one[0]) * -(-n // one[1])

        full = [one for one in found if programs(one) >= gpu["n_sms"]]
        if "wave" in rules:
            full = found
        elif not full and "most" not in rules:
            full = [one for one in found if programs(one) == max(map(programs, found))]
        if "square" in rules:
            full = [one for one in full if one[0] == one[1]] or full
        return min(full or found, key=lambda one: _loaded(m, n, k, *one[:2], itemsize))

    return choose


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda *given: (128, 128), "not-four"),
        (lambda *given: (128, 512, 8, 3), "not-offered"),
        (lambda *given: (128, 128, 8, 2), "not-offered"),
        (_choice({"shared"}), "shared-memory"),
        (_choice({"thread"}), "registers"),
        (_choice({"program"}), "registers"),
        (_choice({"wave"}), "no-full-wave"),
        (_choice({"most"}), "too-few-programs"),
        (_choice({"square"}), "loads-more"),
        (lambda *given: (*_choice()(*given)[:3], 3), "stages"),
    ],
)
def test_a_wrong_choice_of_a_tile(wrong, mistake) -> None:
    assert mistake in mistakes("tiles-for-a-gpu", wrong)


@pytest.mark.parametrize("warps", [(4, 8), (8, 4)])
def test_every_right_choice_is_accepted(warps) -> None:
    assert mistakes("tiles-for-a-gpu", _choice(warps=warps)) == {""}


def test_numbers_of_other_libraries_are_accepted() -> None:
    import numpy as np

    assert mistakes("tiles-for-a-gpu", lambda *given: list(np.array(_choice()(*given)))) == {""}


@pytest.mark.parametrize("id", ["count-a-tiling", "tiles-for-a-gpu"])
def test_a_solution_passes_with_every_seed(id: str, tmp_path) -> None:
    exercise = exercises.get(id)
    answer = solution(LAB, tmp_path, "import torch\nimport triton\nimport triton.language as tl\n")[
        exercise.name
    ]
    for seed in seeds.several(20):
        verdict = attempt(exercise, answer, seed)
        assert verdict.passed, verdict


# ------------------------------------------------------------------------------------------ a claim
def _write_up(finding: str, change: str, *undecided: str, **figures: float) -> WriteUp:
    """A write-up with the right figures, except for those given here."""
    data = claim.data()
    names = ("n_faster", "n_slower", "most_gain", "fall_workbook_percent")
    given = {name: data.figures[name].value for name in names} | figures
    words = f"""Of all the sizes in the table, cuBLAS is faster at {given["n_slower"]:.0f}, and the kernel in
    Triton at {given["n_faster"]:.0f}. What follows for other matrices and other GPUs nobody has measured, so
    I leave that open until somebody does."""
    return WriteUp(finding=finding, figures=given, change=change, words=words, undecided=undecided)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (_write_up("usually-slower", "use-cublas", "other-gpus"), ""),
        (_write_up("faster-at-some-size", "measure-and-choose", "other-dtypes", gain=1.01), ""),
        (_write_up("last-wave-costs-more", "use-cublas", "with-an-epilogue"), ""),
        (_write_up("claim-holds", "use-cublas", "other-gpus"), "finding-contradicted"),
        (_write_up("triton-always-faster", "use-cublas", "other-gpus"), "finding-contradicted"),
        (_write_up("gap-only-below-2048", "use-cublas", "other-gpus"), "finding-contradicted"),
        (_write_up("tma-makes-the-difference", "use-cublas", "other-gpus"), "not-decided"),
        (_write_up("usually-slower", "fuse-an-epilogue", "other-gpus"), "not-decided"),
        (_write_up("usually-slower", "use-the-lessons-kernel", "other-gpus"), "change-contradicted"),
        (_write_up("usually-slower", "use-the-workbooks-kernel", "other-gpus"), "change-contradicted"),
        (_write_up("usually-slower", "use-cublas", "the-lessons-kernel"), "decided"),
        (_write_up("usually-slower", "use-cublas"), "incomplete"),
        (_write_up("usually-slower", "measure-and-choose", "other-gpus"), "incomplete"),
        (_write_up("usually-slower", "measure-and-choose", "other-gpus", gain=1.5), "prediction-impossible"),
        (_write_up("usually-slower", "use-cublas", "other-gpus", n_slower=3), "figure-contradicted"),
        (WriteUp(), "to-do"),
    ],
)
def test_a_claim_about_cublas(answer: WriteUp, mistake: str) -> None:
    verdict = judged("always-faster", answer)
    assert (verdict.passed, verdict.mistake) == (not mistake, mistake), verdict


def test_the_task_lists_exactly_the_names_that_the_check_knows() -> None:
    data, about = claim.data(), cells(f"labs/solutions/{LAB}.ipynb")["about-always-faster"]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", about, re.MULTILINE))
    for field, names in (("finding", data.findings), ("change", data.changes), ("undecided", data.questions)):
        assert set(re.findall(r"`([a-z0-9-]+)`", rows[field])) == set(names), field
    assert set(re.findall(r"`(\w+)`", rows["figures"])) == {*data.figures, *data.predicted}


# ----------------------------------------------------------------------------------------- inside the lesson
def _intensity(m, n, k, itemsize):
    return 2 * m * n * k / (itemsize * (m * k + k * n + m * n))


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda m, n, k, size: None, "not-a-number"),
        (lambda m, n, k, size: _intensity(m, n, k, size) / 2, "one-operation"),
        (lambda m, n, k, size: _intensity(m, n, k, 1), "per-number"),
        (lambda m, n, k, size: 2 * m * n * k / (size * (m * k + k * n)), "no-output"),
        (lambda m, n, k, size: _intensity(m, m, m, size), "square"),
        (lambda m, n, k, size: 1 / _intensity(m, n, k, size), "inverse"),
        (lambda m, n, k, size: 17.5, "count"),
        (_intensity, ""),
    ],
)
def test_a_wrong_number_of_operations_per_byte(wrong, mistake) -> None:
    assert mistakes("operations-per-byte", wrong) == {mistake}


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda n, tile, size: "none", "not-a-number"),
        (lambda n, tile, size: n**3 // tile * size, "one-matrix"),
        (lambda n, tile, size: 2 * n**3 // tile, "numbers"),
        (lambda n, tile, size: 2 * n * tile * size, "one-block"),
        (lambda n, tile, size: 2 * n * n * size, "one-step"),
        (lambda n, tile, size: 2 * n**3 * size, "no-reuse"),
        (lambda n, tile, size: 3, "count"),
        (lambda n, tile, size: 2 * n**3 // tile * size, ""),
    ],
)
def test_a_wrong_number_of_bytes_for_tiles(wrong, mistake) -> None:
    assert mistake in mistakes("bytes-for-tiles", wrong)


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda p, rows, cols, group: p, "not-a-pair"),
        (lambda p, rows, cols, group: products.tile_of(p, rows, cols, group)[::-1], "swapped"),
        (lambda p, rows, cols, group: divmod(p, cols), "row-by-row"),
        (lambda p, rows, cols, group: divmod(p % (group * cols), group)[::-1], "first-band"),
        (lambda p, rows, cols, group: (0, 0), "place"),
        (products.tile_of, ""),
    ],
)
def test_a_wrong_place_of_a_program(wrong, mistake) -> None:
    assert mistake in mistakes("tile-of-a-program", wrong)


def _steps(m, n, k, size, shared):
    return shared // ((m + n) * k * size)


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda m, n, k, size, shared: None, "not-a-number"),
        (lambda m, n, k, size, shared: shared / ((m + n) * k * size), "a-fraction"),
        (lambda m, n, k, size, shared: -(-shared // ((m + n) * k * size)), "rounded-up"),
        (lambda m, n, k, size, shared: _steps(m, n, k, 1, shared), "numbers"),
        (lambda m, n, k, size, shared: shared // (m * n * size), "tile-of-c"),
        (lambda m, n, k, size, shared: shared // (m * k * size), "one-tile"),
        (lambda m, n, k, size, shared: 100, "count"),
        (_steps, ""),
    ],
)
def test_a_wrong_number_of_steps_in_flight(wrong, mistake) -> None:
    assert mistakes("steps-in-flight", wrong) == {mistake}


def test_the_step_that_is_computed_is_one_of_those_in_flight() -> None:
    assert "one-less" in mistakes("steps-in-flight", lambda *sizes: _steps(*sizes) - 1)


def _t(terms):
    return math.sqrt(sum(term * term for term in terms))


@pytest.mark.parametrize(
    ("wrong", "mistake"),
    [
        (lambda terms, u_in, u_acc: None, "not-a-number"),
        (lambda terms, u_in, u_acc: u_in * _t(terms), "only-inputs"),
        (lambda terms, u_in, u_acc: u_acc * len(terms) ** 0.5 * _t(terms), "only-sums"),
        (lambda terms, u_in, u_acc: (u_in + u_acc) * _t(terms), "one-addition"),
        (lambda terms, u_in, u_acc: (u_in + u_acc * len(terms)) * _t(terms), "no-root"),
        (lambda terms, u_in, u_acc: (u_in + u_acc * len(terms)) * sum(map(abs, terms)), "worst-case"),
        (lambda terms, u_in, u_acc: (u_in + u_acc * len(terms) ** 0.5) * abs(sum(terms)), "of-the-sum"),
        (lambda terms, u_in, u_acc: (u_in + u_acc * len(terms) ** 0.5) * _t(terms) ** 2, "squared"),
        (lambda terms, u_in, u_acc: u_in + u_acc * len(terms) ** 0.5, "relative"),
        (lambda terms, u_in, u_acc: 1.0, "bound"),
        (lambda terms, u_in, u_acc: (u_in + u_acc * len(terms) ** 0.5) * _t(terms), ""),
    ],
)
def test_a_wrong_bound_of_a_product(wrong, mistake) -> None:
    assert mistake in mistakes("error-bound", wrong)
