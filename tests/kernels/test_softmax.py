"""helpers.kernels.softmax: programs that wait for each other fit on the GPU at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

# SMs, and threads that an SM holds.
GPUS = {
    "H100": (132, 2048),
    "A100": (108, 2048),
    "L4": (58, 1536),
    "T4": (40, 1024),
}
# Warps, the most registers that a thread may have, and how many programs surely fit an SM's registers: 256 registers
# × 128 threads fit twice, 64 × 1,024 once.
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
# (Columns, bytes an element): the part, its warps, whether elements are held as they came.
WIDE = {
    (32768, 4): (8192, 4, False), (65536, 4): (8192, 4, False), (131072, 4): (8192, 4, False),
    (262144, 4): (8192, 4, False), (393216, 4): (8192, 4, False),
    (32768, 2): (2048, 1, False), (65536, 2): (2048, 1, False), (131072, 2): (4096, 2, False),
    (262144, 2): (8192, 4, False), (393216, 2): (8192, 4, True),
}  # fmt: skip


@pytest.fixture
def softmax_on(monkeypatch):
    """A function: `helpers.kernels.softmax` as it would find itself on one of `GPUS`."""
    from helpers.kernels import softmax

    def on(gpu: str):
        sms, threads = GPUS[gpu]
        found = SimpleNamespace(multi_processor_count=sms, max_threads_per_multi_processor=threads)
        monkeypatch.setattr(softmax, "INTERPRETED", False)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
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
def test_the_plan_shares_rows_as_the_league_was_measured_and_never_more_than_fit(softmax_on, gpu):
    softmax = softmax_on(gpu)
    for (n_cols, n_bytes), expected in WIDE.items():
        for dtype in (torch.float32,) if n_bytes == 4 else (torch.float16, torch.bfloat16):
            plan = softmax.plan_softmax(2**28 // n_cols, n_cols, dtype)
            assert plan.kernel == "split" and plan.max_registers is None
            assert (plan.block_size, plan.num_warps, plan.repack) == expected
    shared = 0
    for n_cols in range(16385, 6_000_000, 49_999):
        plan = softmax.plan_softmax(1, n_cols, torch.float32)
        if plan.kernel == "split":
            shared += 1
            assert plan.n_programs <= softmax.max_parts(None, plan.num_warps, plan.max_registers)
    assert 10 < shared < 100  # wider rows go online


@pytest.mark.parametrize(
    ("gpu", "n_cols", "block_size", "num_warps", "parts", "fit"),
    [
        ("H100", 13_000_000, 65536, 32, 199, 132),
        ("H100", 3_000_000, 16384, 8, 184, 132),
        ("T4", 3_000_000, 65536, 32, 46, 40),
        ("T4", 700_000, 8192, 4, 86, 80),
    ],
)
def test_a_row_whose_programs_would_wait_for_ever_is_refused(
    softmax_on, gpu, n_cols, block_size, num_warps, parts, fit
):
    softmax = softmax_on(gpu)
    x = SimpleNamespace(shape=(1, n_cols), device=torch.device("cuda"))
    with pytest.raises(ValueError) as refusal:
        softmax.launch_split(x, x, block_size, num_warps)
    assert str(refusal.value) == (
        f"A row of {n_cols:,} columns would need {parts} programs of {block_size:,} at once, and only {fit} of {num_warps} "
        "warps surely fit; use a larger block_size, fewer warps or softmax_online."
    )
