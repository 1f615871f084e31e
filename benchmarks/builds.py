"""What a build costs: stock load_inline against the helper, cold and from the cache, on the same C++ source."""

import os
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = "int64_t add(int64_t a, int64_t b) { return a + b; }"
AGAIN = f"""
import time
from helpers import build
import torch
start = time.perf_counter()
m = build.load_cpp("bench_add", {SOURCE!r}, ["add"], torch_headers=False)
print(time.perf_counter() - start if build.info(m).cached else "rebuilt")
"""


def main() -> None:
    folder = tempfile.mkdtemp()
    os.environ["WORKBOOK_CACHE"] = folder
    try:
        from torch.utils.cpp_extension import load_inline

        from helpers import build

        start = time.perf_counter()
        load_inline("stock_add", [SOURCE], functions=["add"], build_directory=folder)
        stock = time.perf_counter() - start
        module = build.load_cpp("bench_add", SOURCE, ["add"], torch_headers=False)
        cold = build.info(module).seconds
        again = subprocess.run(
            [sys.executable, "-c", AGAIN], capture_output=True, text=True, check=True
        ).stdout
        print(f"stock load_inline, cold            {stock:6.2f} s")
        print(f"load_cpp without torch headers     {cold:6.2f} s   {stock / cold:.1f} × faster than stock")
        print(f"the same again, in a new process   {float(again):6.3f} s   (goal: at most 0.1 s)")
        print("(the same function bound to Python; stock includes torch/extension.h)")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
