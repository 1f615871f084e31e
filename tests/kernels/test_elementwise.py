"""helpers.kernels.elementwise: what the compiler makes of the kernels."""

from __future__ import annotations

import pytest

from helpers import ptx

KERNELS = {
    "square_elements_kernel": ("y_ptr", "x_ptr"),
    "gelu_kernel": ("y_ptr", "x_ptr"),
    "square_backward_kernel": ("dx_ptr", "g_ptr", "x_ptr"),
    "gelu_backward_kernel": ("dx_ptr", "g_ptr", "x_ptr"),
}


@pytest.mark.parametrize("dtype", ("fp32", "bf16", "fp16"))
@pytest.mark.parametrize("name", KERNELS)
def test_loads_and_stores_are_16_bytes_wide_whatever_the_size(name, dtype):
    """Nothing is known about n_elements; only the rest of up to 15 elements is moved one by one. No register spills."""
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
