"""Kernel Workbook: what its lessons share. Nothing is imported here; take what you need, as in `from helpers import timing`.

What every lesson uses: `device` (what hardware and tools are here), `check` (a kernel against its reference), `timing`,
`plots`, `widgets`, `records` (run live and keep, or replay) and `predict` (questions before their answers; `store` keeps
them, `whole` writes files whole or not at all). What looks into a kernel: `trace` (the profiler), `ptx`
and `ncu` (Nsight Compute). What builds one: `cuda` compiles C++ and CUDA, `kernels` holds those that several lessons need,
`lessons` what one lesson alone needs. `lab` is what a lab's cells call, `exercises` what they check. `workshop` keeps and
runs the course behind the `workbook` command; no lesson imports it.
"""

import os
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("kernel-workbook")
except PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "0+unknown"

# torch's profiler writes "USDT: profiler_start" lines into a notebook unless told to be quiet before its first use.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
