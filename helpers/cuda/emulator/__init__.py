"""Runs CUDA C++ on the CPU, one thread after another. For correctness, never for timing.

`translate` rewrites the source to C++ at the level of `tokens`, and `include` has the headers that provide
threads, memory and functions. `checked` wraps the functions of a built module with checks, and traces calls:
`record` stores every access, `tracing` the launches.
"""

from helpers.cuda.emulator.checked import (
    EmulatorError,
    LaunchTrace,
    Recording,
    attach,
    record,
    tracing,
    unwritten_allowed,
)
from helpers.cuda.emulator.translate import Unsupported, cpp_file

__all__ = [
    "EmulatorError",
    "LaunchTrace",
    "Recording",
    "Unsupported",
    "attach",
    "cpp_file",
    "record",
    "tracing",
    "unwritten_allowed",
]
