"""Kernel Workbook: what its lessons share. Each module has one duty; import the ones you need."""

import os
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("kernel-workbook")
except PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "0+unknown"

# torch's profiler writes "USDT: profiler_start" lines into a notebook unless told to be quiet before its first use.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
