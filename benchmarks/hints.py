"""What Triton's eviction hints are worth: behind a full L2, behind a clean one, and with launches one after
the other.

    python benchmarks/hints.py

A kernel that asks the L2 to keep its output ("evict_last" on stores) ends with more of it unwritten. Behind a
clean L2 that looks faster; in a row of launches each finds the lines that the one before it left, and pays.
The same hint on loads is worth something in all three, so the kernels in helpers/kernels use that one at
large sizes.

WORKBOOK_RECORD=1 keeps the table as the record fusion/hints.
"""

from __future__ import annotations

import statistics

import torch
import triton
import triton.language as tl

from helpers import device, records, timing

N_ELEMENTS = 1 << 28
BLOCK_SIZE, NUM_WARPS = 4096, 32
LAUNCHES = 40


@triton.jit
def square_kernel(y_ptr, x_ptr, LOAD: tl.constexpr, STORE: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets, eviction_policy=LOAD)
    tl.store(y_ptr + offsets, x * x, eviction_policy=STORE)


def in_a_row(function) -> float:
    """µs a launch, of `LAUNCHES` launches one after the other: median of seven such rows, by CUDA events."""
    taken = []
    for _ in range(8):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(LAUNCHES):
            function()
        end.record()
        torch.cuda.synchronize()
        taken.append(start.elapsed_time(end) / LAUNCHES * 1e3)
    return statistics.median(taken[1:])


def table() -> list[dict]:
    """Time torch's copy, and a square with each hint, in float32 and bfloat16."""
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(N_ELEMENTS, device="cuda").to(dtype)
        y = torch.empty_like(x)
        block = BLOCK_SIZE * 4 // dtype.itemsize

        def square(load: str, store: str, x=x, y=y, block=block) -> None:
            square_kernel[(N_ELEMENTS // block,)](
                y, x, LOAD=load, STORE=store, BLOCK_SIZE=block, num_warps=NUM_WARPS
            )

        contestants = {("torch copy", ""): lambda x=x, y=y: y.copy_(x)}
        for load in ("", "evict_first", "evict_last"):
            for store in ("", "evict_first", "evict_last"):
                contestants[load or "none", store or "none"] = lambda load=load, store=store: square(
                    load, store
                )
        for (load, store), function in contestants.items():
            y.fill_(float("nan"))
            function()
            expected = x if load == "torch copy" else x * x
            if not torch.equal(y, expected):
                raise RuntimeError(f"The square with the hints {load}, {store} is wrong.")
            rows.append(
                {
                    "dtype": str(dtype).removeprefix("torch."),
                    "load": load,
                    "store": store,
                    "cold_us": timing.time_gpu(function).median_us,
                    "clean_us": timing.time_gpu(function, l2="clean").median_us,
                    "in_a_row_us": in_a_row(function),
                }
            )
    return rows


def main() -> None:
    try:
        device.require("gpu")
    except device.Missing as missing:
        print(missing)
        return
    found = records.measured("fusion/hints", table)
    print(f"Square of {N_ELEMENTS:,} elements, µs")
    print(found.round(1).to_string(index=False))


if __name__ == "__main__":
    main()
