"""The timer against CUPTI and against do_bench, for kernels of 1.5 µs to 5 ms.

The truth is taken apart from the timer's own code: a Chrome trace of 101 launches behind do_bench's way of flushing
(256 MiB of zeros), whose kernel durations are read from the file.
"""

import gzip
import json
import statistics
import tempfile
import time
from pathlib import Path

from helpers import device, timing

SHAPES = [
    (8, 1024),
    (64, 1024),
    (512, 1024),
    (4096, 1024),
    (4096, 4096),
    (16384, 8192),
    (65536, 16384),
    (131072, 16384),
]


def cupti_truth(fn, n: int = 101) -> float:
    """Median duration in µs of the square_flat_kernel that `fn` launches, out of a Chrome trace."""
    import torch

    zeros = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    with torch.profiler.profile(activities=list(torch.profiler.supported_activities())) as session:
        for _ in range(n):
            zeros.zero_()
            fn()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        session.export_chrome_trace(str(path))
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    own = [
        e["dur"]
        for e in events
        if e.get("cat") == "kernel" and "Fill" not in e["name"] and "zero" not in e["name"]
    ]
    assert len(own) == n, f"{len(own)} kernels in the trace, {n} launched"
    return statistics.median(own)


def main() -> None:
    device.require("gpu")
    import torch
    from triton.testing import do_bench

    from helpers.kernels.square import square_flat

    print(
        f"{'square of':>16} {'CUPTI µs':>10} {'time_gpu':>10} {'95 % CI':>20} {'off':>7} {'do_bench':>9} {'off':>7} {'seconds':>8}"
    )
    worst = 0.0
    for shape in SHAPES:
        x = torch.randn(shape, device="cuda")
        truth = cupti_truth(lambda x=x: square_flat(x))
        start = time.perf_counter()
        ours = timing.time_gpu(lambda x=x: square_flat(x))
        seconds = time.perf_counter() - start
        bench = do_bench(lambda x=x: square_flat(x), return_mode="median") * 1e3
        off = ours.median_us - truth
        worst = max(worst, abs(off) / max(0.5, 0.01 * truth))
        print(
            f"{shape!s:>16} {truth:10.2f} {ours.median_us:10.2f} {ours.ci95_us[0]:9.2f} – {ours.ci95_us[1]:8.2f} {off:+7.2f} "
            f"{bench:9.2f} {bench - truth:+7.2f} {seconds:8.2f}"
        )
        del x
    print(f"largest error of time_gpu: {worst:.2f} of the goal, max(0.5 µs, 1 %)")


if __name__ == "__main__":
    main()
