"""Kernel Workbook: the code that its lessons share. Import the modules that you need, as in
`from helpers import timing`. Importing this package itself imports almost nothing else.

Every lesson uses these modules: `device` (available hardware and tools), `check` (compares a kernel with its
reference), `timing`, `plots`, `widgets`, `records` (runs a cell live and stores the result, or replays it)
and `predict` (questions before their answers). `capabilities` says what a GPU can run, `progress` stores the
predictions, `aliases` maps old names to new ones, and `atomic` writes files atomically. To inspect a kernel,
use `trace` (the profiler), `ptx` and `ncu` (Nsight Compute). To build one, use `cuda`, which compiles C++ and
CUDA. `kernels` has the kernels that several lessons use, and `lessons` has the code that only one lesson
uses. `lab` has the functions that the cells of a lab call, and `exercises` has the checks behind them. The
`workbook` command is a separate package that imports this one and is never imported by it.
"""

import os
import sys
from importlib.metadata import PackageNotFoundError, version

from helpers.aliases import RenamedModules

try:
    __version__ = version("kernel-workbook")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "0+unknown"

# Without this setting, torch's profiler prints "USDT: profiler_start" lines in notebooks. It must be set
# before the profiler's first use.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

# Appended, so that it's only asked about modules that don't exist under the requested name.
sys.meta_path.append(RenamedModules())
