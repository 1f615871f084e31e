"""CUDA on the host: threads a second, a block reduction, and what builds cost; each beside its goal.

All in the mode that a learner gets: every access checked, blocks on all cores.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = r"""
__global__ void square_kernel(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
__global__ void sum_kernel(const float* x, float* out, int n) {
    __shared__ float s[256];
    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
void square(int64_t x, int64_t y, int n) {
    square_kernel<<<(n + 255) / 256, 256>>>((const float*)x, (float*)y, n); }
void sums(int64_t x, int64_t y, int n) {
    sum_kernel<<<(n + 255) / 256, 256>>>((const float*)x, (float*)y, n); }
"""
WITH_TORCH = r"""
torch::Tensor square(torch::Tensor x) {
    auto y = torch::empty_like(x);
    square_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
AGAIN = """
import sys, time
import torch
from helpers import cuda
source = sys.stdin.read()
start = time.perf_counter()
module = cuda.load_cuda("bench_host", source, ["square", "sums"], torch_headers=False, device="emulator")
print(time.perf_counter() - start if cuda.info(module).cached else "rebuilt")
"""


def best(run, times: int = 5) -> float:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    folder = tempfile.mkdtemp()
    os.environ["WORKBOOK_CACHE"] = folder
    try:
        import torch

        from helpers import cuda

        light = cuda.load_cuda(
            "bench_host", SOURCE, ["square", "sums"], torch_headers=False, device="emulator"
        )
        heavy_source = SOURCE.split("void square(")[0] + WITH_TORCH
        heavy = cuda.load_cuda("bench_host_torch", heavy_source, ["square"], device="emulator")
        process = subprocess.run(
            [sys.executable, "-c", AGAIN], input=SOURCE, capture_output=True, text=True, check=True
        )
        x = torch.randn(20_000_000)
        y = torch.empty_like(x)
        seconds = best(lambda: light.square(x.data_ptr(), y.data_ptr(), x.numel()))
        assert torch.equal(y, x * x)
        n = 1 << 20
        out = torch.empty(n // 256)
        reduction = best(lambda: light.sums(x.data_ptr(), out.data_ptr(), n))
        torch.testing.assert_close(out, x[:n].view(-1, 256).sum(1))
        through_torch = best(lambda: heavy.square(x))
        rows = [
            ("square, million threads a second", x.numel() / seconds / 1e6, "at least 50"),
            ("the same through a torch wrapper", x.numel() / through_torch / 1e6, ""),
            ("block sums of 1,048,576 elements, s", reduction, "at most 1.5"),
            ("cold build without torch headers, s", cuda.info(light).seconds, "at most 6"),
            ("cold build with torch headers, s", cuda.info(heavy).seconds, "at most 35"),
            ("the first again, in a new process, s", float(process.stdout), "at most 0.1"),
        ]
        for label, value, goal in rows:
            print(f"{label:<40} {value:8.3f}   {f'(goal: {goal})' if goal else ''}")
        print(f"({os.cpu_count()} cores, every access checked)")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
