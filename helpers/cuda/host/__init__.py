"""CUDA C++ on the host, thread by thread: the text that nvcc gets, without a GPU. For correctness, never for timing.

`translate` rewrites the text to C++, on the level of `tokens`; `include` has the headers that give it threads, memory
and functions; `checked` puts the checks around a built module's functions, and records what a call does: `record` all of it,
`tracing` which kernels are launched.
"""

from helpers.cuda.host.checked import (
    HostCudaError,
    LaunchTrace,
    Recording,
    attach,
    record,
    tracing,
    unwritten_allowed,
)
from helpers.cuda.host.translate import Unsupported, cpp_file

__all__ = [
    "HostCudaError",
    "LaunchTrace",
    "Recording",
    "Unsupported",
    "attach",
    "cpp_file",
    "record",
    "tracing",
    "unwritten_allowed",
]
