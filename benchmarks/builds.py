"""What a build costs: stock load_inline, the helper's way without PyTorch's headers, and NVRTC, on the same
kernel.

    python benchmarks/builds.py                 on a GPU machine with nvcc: the CUDA builds (about 3 minutes
    on an H100) python benchmarks/builds.py --repeats 2     fewer of each

Every build is cold: its text differs from all before by a constant. Stock load_inline and the helper get the
same two texts, and their results are compared bit by bit. WORKBOOK_RECORD=1 keeps the CUDA table as the
record builds/cold. Without a GPU the same is done for one C++ function.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from helpers import cuda, device, records

CPP = "double poly(double x) { return x * x + VALUE; }"
DECLARATION = "void poly(int64_t x, int64_t y, int64_t n, int64_t stream);"
KERNEL = r"""
__global__ void poly_kernel(const float* x, float* y, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] + sinf(x[i]) / VALUE;
}
"""
LAUNCH = r"""
void poly(int64_t x, int64_t y, int64_t n, int64_t stream) {
    poly_kernel<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>((const float*)x, (float*)y, n);
}
"""
GOALS = {"times_faster": 8.0, "edit_s": 0.2}
CACHED = 3
AGAIN = """
import sys, time
from helpers import cuda
import torch
text, cpp = sys.stdin.read().split("@@")
start = time.perf_counter()
if cpp:
    module = cuda.load_cuda("bench_light", text, ["poly"], cpp_source=cpp, torch_headers=False)
else:
    module = cuda.load_cpp("bench_light", text, ["poly"], torch_headers=False)
print(time.perf_counter() - start if cuda.info(module).cached else "rebuilt")
"""


def timed(run: Callable):
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def quiet_load_inline(name: str, cpp: str, cuda_source: str | None, folder: str):
    """torch's own, as its tutorial calls it."""
    from torch.utils.cpp_extension import load_inline

    os.makedirs(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        return load_inline(
            name,
            [cpp],
            cuda_sources=[cuda_source] if cuda_source else [],
            functions=["poly"],
            build_directory=folder,
        )


def summary(way: str, seconds: list[float], stock: list[float] | None = None) -> dict:
    """One row: the median, the spread, and how many times faster than stock."""
    median = statistics.median(seconds)
    row = {
        "way": way,
        "n": len(seconds),
        "median_s": median,
        "lowest_s": min(seconds),
        "highest_s": max(seconds),
    }
    row["times_faster"] = statistics.median(stock) / median if stock else None
    text = "" if stock is None else f"   {row['times_faster']:.1f} × faster than stock"
    print(
        f"{way:<52} {median:7.3f} s ({min(seconds):.3f} to {max(seconds):.3f}, n = {len(seconds)}){text}",
        flush=True,
    )
    return row


def cached_seconds(text: str, cpp: str) -> float:
    """Loading a finished build in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", AGAIN], input=f"{text}@@{cpp}", capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def cuda_builds(repeats: int, folder: str) -> list[dict]:
    """The three ways, interleaved, so that a slow minute falls on all of them."""
    import torch

    x = torch.linspace(-3, 3, 1 << 20, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream

    def result_of(module) -> torch.Tensor:
        y = torch.empty_like(x)
        module.poly(x.data_ptr(), y.data_ptr(), x.numel(), stream)
        return y

    # What only the first of each pays is not part of a build: imports, CUDA's context, NVRTC's own loading.
    nvrtc_first, _ = timed(lambda: cuda.load_kernel(KERNEL.replace("VALUE", "0.5f"), "poly_kernel"))
    import torch.utils.cpp_extension

    stock, light, edit, cached, same, same_nvrtc = [], [], [], [], [], []
    for i in range(repeats):
        kernel = KERNEL.replace("VALUE", f"{i + 2}.0f")
        took, module = timed(
            lambda i=i, kernel=kernel: quiet_load_inline(
                f"bench_stock{i}", DECLARATION, kernel + LAUNCH, f"{folder}/stock{i}"
            )
        )
        stock.append(took)
        took, helper = timed(
            lambda kernel=kernel: cuda.load_cuda(
                "bench_light", kernel + LAUNCH, ["poly"], cpp_source=DECLARATION, torch_headers=False
            )
        )
        light.append(took)
        expected, got = result_of(module), result_of(helper)
        y = torch.empty_like(x)

        def edit_and_run(kernel=kernel, y=y) -> None:
            poly = cuda.load_kernel(kernel, "poly_kernel")
            poly(x, y, x.numel(), grid=(x.numel() + 255) // 256, block=256)
            torch.cuda.synchronize()

        edit.append(timed(edit_and_run)[0])
        same.append(torch.equal(expected, got))
        same_nvrtc.append(torch.equal(expected, y))
        if i < CACHED:  # each imports torch anew, which takes longer than what is measured
            cached.append(cached_seconds(kernel + LAUNCH, DECLARATION))
        print(f"{i}: stock {stock[-1]:.2f}, helper {light[-1]:.2f}, NVRTC {edit[-1]:.3f} s", flush=True)
    print(f"results equal to stock's, bit by bit, of {repeats}: helper {sum(same)}, NVRTC {sum(same_nvrtc)}")
    rows = [
        summary("stock load_inline, cold", stock),
        summary("load_cuda without PyTorch's headers, cold", light, stock),
        summary("load_kernel: NVRTC, load, launch, wait", edit, stock),
        summary("NVRTC's first use in a process", [nvrtc_first]),
        summary("load_cuda's build again, in a new process", cached, stock),
    ]
    identical = [None, all(same), all(same_nvrtc), None, all(same)]
    return [row | {"identical": equal} for row, equal in zip(rows, identical, strict=True)]


def cpp_builds(repeats: int, folder: str) -> list[dict]:
    """The same for one C++ function, where there is no GPU."""
    import torch.utils.cpp_extension  # noqa: F401

    stock, light, cached, same = [], [], [], []
    for i in range(repeats):
        text = CPP.replace("VALUE", f"{i}.5")
        took, module = timed(
            lambda i=i, text=text: quiet_load_inline(f"bench_stock{i}", text, None, f"{folder}/stock{i}")
        )
        stock.append(took)
        took, helper = timed(
            lambda text=text: cuda.load_cpp("bench_light", text, ["poly"], torch_headers=False)
        )
        light.append(took)
        same.append(all(module.poly(v) == helper.poly(v) for v in (-1.7, 0.0, 1e300)))
        cached.append(cached_seconds(text, ""))
    rows = [
        summary("stock load_inline of a C++ function, cold", stock),
        summary("load_cpp without PyTorch's headers, cold", light, stock),
        summary("load_cpp's build again, in a new process", cached, stock),
    ]
    print(f"results equal, bit by bit: {all(same)}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, help="builds of each kind (5 on a GPU, 1 without)")
    options = parser.parse_args()
    folder = tempfile.mkdtemp()
    os.environ["WORKBOOK_CACHE"] = folder
    try:
        if not (device.has_gpu() and device.find_tool("nvcc")):
            cpp_builds(options.repeats or 1, folder)
            return
        os.environ["TORCH_CUDA_ARCH_LIST"] = "{}.{}".format(*device.gpu_spec().compute_capability)
        os.environ["PATH"] = os.pathsep.join(
            [str(device.find_tool("ninja").parent), str(device.find_tool("nvcc").parent), os.environ["PATH"]]
        )
        rows = records.measured(
            "builds/cold", lambda: cuda_builds(options.repeats or 5, folder), sources=[KERNEL + LAUNCH]
        )
        by_way = rows.set_index("way")
        faster = by_way.times_faster["load_cuda without PyTorch's headers, cold"]
        edit = by_way.median_s["load_kernel: NVRTC, load, launch, wait"]
        for what, reached in {
            f"cold, {faster:.1f} × faster than stock (goal: at least {GOALS['times_faster']:.0f} ×)": faster
            >= GOALS["times_faster"],
            f"from edit to run {edit:.3f} s (goal: at most {GOALS['edit_s']} s)": edit <= GOALS["edit_s"],
            "results equal to stock's, bit by bit": all(by_way.identical.dropna()),
        }.items():
            print("pass" if reached else "FAIL", what)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
