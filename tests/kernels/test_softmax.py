"""helpers.kernels.softmax: its plan is a rule that holds on GPUs nobody tuned for, and waiting programs fit
at once.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from helpers.kernels.chip import Chip

# SMs, and threads that an SM holds.
GPUS = {
    "H100": (132, 2048),
    "A100": (108, 2048),
    "L4": (58, 1536),
    "T4": (40, 1024),
}
# Warps, the most registers that a thread may have, and how many programs surely fit an SM's registers: 256
# registers × 128 threads fit twice, 64 × 1,024 once.
FIT_AN_SM = [
    (1, None, 2),
    (4, None, 2),
    (8, None, 1),
    (8, 128, 2),
    (16, None, 1),
    (16, 64, 2),
    (32, None, 1),
    (32, 32, 2),
]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.fixture
def softmax_on(monkeypatch):
    """A function: `helpers.kernels.softmax` as it would find itself on one of `GPUS`."""
    from helpers.kernels import softmax

    def on(gpu: str):
        monkeypatch.setattr(softmax, "chip_of", lambda device: Chip(*GPUS[gpu]))
        return softmax

    return on


@pytest.mark.parametrize("gpu", GPUS)
def test_programs_that_surely_fit_at_once(softmax_on, gpu):
    softmax, (sms, threads_per_sm) = softmax_on(gpu), GPUS[gpu]
    for num_warps, max_registers, by_registers in FIT_AN_SM:
        by_threads = threads_per_sm // (32 * num_warps)
        fit = softmax.max_parts(None, num_warps, max_registers)
        assert fit == sms * min(by_threads, by_registers), (num_warps, max_registers)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_width_is_held_once_in_registers_without_much_padding(softmax_on, gpu, dtype):
    softmax = softmax_on(gpu)
    for n_cols in (*range(1, 3000, 7), *range(3000, 60_000, 611), *range(60_000, 900_000, 20_011)):
        plan = softmax.plan_softmax(max(1, 2**26 // n_cols), n_cols, dtype)
        assert plan.kernel != "online", plan
        assert plan.n_programs * plan.rows >= plan.n_rows * plan.parts
        held, row_bytes = plan.parts * plan.part_size, n_cols * dtype.itemsize
        assert held >= n_cols
        if plan.kernel == "split":  # narrower rows are padded to a power of two
            assert held < n_cols + plan.parts * plan.block_size
            assert held <= 1.25 * n_cols, plan
        a_thread = plan.rows * plan.part_size * dtype.itemsize / (32 * plan.num_warps)
        assert a_thread <= 256, plan
        assert row_bytes < 2048 or a_thread >= 32, plan
        assert plan.num_warps <= 8


@pytest.mark.parametrize("dtype", DTYPES)
def test_short_rows_share_a_program_unless_there_are_few(softmax_on, dtype):
    softmax = softmax_on("H100")
    many, few = (softmax.plan_softmax(n_rows, 100, dtype) for n_rows in (1 << 20, 132))
    assert many.rows * many.block_size * dtype.itemsize >= 2048
    assert few.rows == 1 and few.n_programs == 132


@pytest.mark.parametrize("gpu", GPUS)
def test_no_more_programs_share_a_row_than_fit(softmax_on, gpu):
    softmax = softmax_on(gpu)
    kernels = []
    for n_cols in range(16385, 9_000_000, 49_999):
        plan = softmax.plan_softmax(1, n_cols, torch.float32)
        kernels.append(plan.kernel)
        assert plan.parts <= softmax.max_parts(None, plan.num_warps, plan.max_registers)
    # wider rows than all programs together hold are walked twice
    assert kernels == sorted(kernels, key=["split", "online"].index) and set(kernels) == {"split", "online"}


def test_a_plan_describes_its_launch(softmax_on):
    softmax = softmax_on("H100")
    plans = {
        256: ("2 rows", "block of 256", "2 warps", "500 programs"),
        8320: ("9 chunks of 1,024", "8 warps", "1,000 programs"),
        65536: ("8 programs", "16 chunks of 512", "4 warps", "8,000 programs"),
        9_000_000: ("two walks", "4,096", "8 warps", "1,000 programs"),
    }
    for n, words in plans.items():
        said = repr(softmax.plan_softmax(1000, n, torch.float32))
        assert said.startswith(f"1,000 × {n:,}: ") and all(word in said for word in words), said


@pytest.mark.parametrize(
    ("gpu", "n_cols", "block_size", "num_warps", "parts", "size", "fit"),
    [
        ("H100", 13_000_000, 65536, 32, 199, 65536, 132),
        ("H100", 9_000_000, 8192, 4, 1099, 8192, 660),
        ("T4", 3_000_000, 65536, 32, 46, 65536, 40),
        ("T4", 3_000_000, 8192, 4, 367, 8192, 200),
    ],
)
def test_a_row_that_would_deadlock_is_refused(
    softmax_on, gpu, n_cols, block_size, num_warps, parts, size, fit
):
    softmax = softmax_on(gpu)
    x = SimpleNamespace(shape=(1, n_cols), device=torch.device("cuda"))
    plan = softmax.plan_parts(x.shape, torch.float32, block_size, num_warps)
    with pytest.raises(
        ValueError,
        match=f"{n_cols:,} columns .*{parts:,} programs of {size:,} .*{fit} of {num_warps} .*block_size",
    ):
        softmax.launch_split(x, x, plan)


@pytest.mark.parametrize(
    ("n_cols", "strides", "dtype", "expected"),
    [
        (1000, (1000, 1000), torch.bfloat16, 8),
        (1000, (1000, 1000), torch.float32, 4),
        (1001, (1001, 1001), torch.bfloat16, 1),
        (1000, (1004, 1000), torch.bfloat16, 1),  # a slice of wider rows
        (1000, (0, 1000), torch.bfloat16, 8),  # one row, expanded
    ],
)
def test_16_bytes_at_once_only_if_every_row_is_aligned(n_cols, strides, dtype, expected):
    from helpers.kernels import softmax

    x, y = (torch.empty(8000, dtype=dtype).as_strided((4, n_cols), (stride, 1)) for stride in strides)
    assert softmax.alignment(x, y) == expected
