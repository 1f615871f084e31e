"""Kernel Workbook: what its lessons share. Each module has one duty; import the ones you need."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("kernel-workbook")
except PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "0+unknown"
