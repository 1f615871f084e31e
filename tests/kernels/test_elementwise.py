"""helpers.kernels.elementwise: what the compiler makes of the kernels, and the rule that launches them."""

from __future__ import annotations

import pytest
import torch

from helpers import ptx
from helpers.kernels.chip import Chip

KERNELS = {
    "square_elements_kernel": ("y_ptr", "x_ptr"),
    "gelu_kernel": ("y_ptr", "x_ptr"),
    "square_backward_kernel": ("dx_ptr", "g_ptr", "x_ptr"),
    "gelu_backward_kernel": ("dx_ptr", "g_ptr", "x_ptr"),
}


@pytest.mark.parametrize("dtype", ("fp32", "bf16", "fp16"))
@pytest.mark.parametrize("name", KERNELS)
def test_loads_and_stores_are_16_bytes_wide_whatever_the_size(name, dtype):
    """Nothing is known about n_elements; only the rest of up to 15 elements is moved one by one. No register
    spills.
    """
    from helpers.kernels import elementwise

    pointers = KERNELS[name]
    stages = ptx.stages(
        getattr(elementwise, name),
        signature={**dict.fromkeys(pointers, f"*{dtype}"), "n_elements": "i32"},
        constexprs={"BLOCK_SIZE": 4096 // (4 if dtype == "fp32" else 2), "L2_HINT": "evict_last"},
    )
    reading = stages.reading
    for found, n_tensors in ((reading.loads, len(pointers) - 1), (reading.stores, 1)):
        wide = [i for i in found if i.n_bytes == 16]
        assert len(wide) == 2 * n_tensors and len(found) == len(wide) + n_tensors
    assert stages.spill_bytes == 0 and stages.n_registers <= 40


@pytest.fixture
def plan_on(monkeypatch):
    """A function: the plan of so many bytes of float32 on a chip."""
    from helpers.kernels import elementwise

    def plan(chip: Chip, n_bytes: int):
        monkeypatch.setattr(elementwise, "chip_of", lambda device: chip)
        return elementwise.plan_elementwise.__wrapped__(n_bytes // 4, torch.float32)

    return plan


CHIPS = {
    "H200": Chip(132, 2048, 60 << 20),
    "A100": Chip(108, 2048, 40 << 20),
    "L4": Chip(58, 1536, 48 << 20),
    "T4": Chip(40, 1024, 4 << 20),
}


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_a_launch_follows_from_the_chip(plan_on, chip):
    """16 bytes a thread, 32 or 64 where then all programs run at once; the hint only far above the L2."""
    wave = chip.n_sms * chip.threads_per_sm * 16
    a_thread = {}
    for n_bytes in (wave // 50, wave, wave + 4, 2 * wave, 4 * wave, 4 * wave + 4, 100 * wave):
        plan = plan_on(chip, n_bytes)
        a_thread[n_bytes] = 4 * plan.block_size // (32 * plan.num_warps)
        assert plan.n_programs * plan.block_size >= plan.n_elements > (plan.n_programs - 1) * plan.block_size
    assert list(a_thread.values()) == [16, 16, 32, 32, 64, 16, 16]
    assert plan_on(chip, 4 * chip.l2_bytes).l2_hint == ""
    assert plan_on(chip, 4 * chip.l2_bytes + 4).l2_hint == "evict_last"


def test_without_a_gpu_the_rule_is_an_h100s():
    from helpers.kernels import chip

    if torch.cuda.is_available():
        assert chip.chip_of(torch.device("cpu")) == Chip()
        found = chip.chip_of()
        assert found == chip.chip_of(torch.device("cuda", torch.cuda.current_device())) and found.n_sms > 0
    else:
        assert chip.chip_of() == chip.chip_of(torch.device("cuda", 0)) == Chip(132, 2048, 50 << 20)
