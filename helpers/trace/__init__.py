"""Readable torch.profiler results: tables, Chrome traces, a timeline, and parsed kernel names.

Everything here works without a GPU: a profile of CPU operations contains the same operators, and a trace
recorded on a GPU is a file that any machine can read. Times are in microseconds, and sizes are in bytes.

The modules: `profile` records profiles and turns them into tables, `chrome` reads and trims traces, `view`
draws the timeline, and `names` parses kernel names.
"""

from helpers.trace.chrome import Trace, load_trace
from helpers.trace.names import KernelName, read_kernel_name, short_name
from helpers.trace.profile import call_tree, capture, kernels, ops, profile_table
from helpers.trace.view import timeline

__all__ = [
    "KernelName",
    "Trace",
    "call_tree",
    "capture",
    "kernels",
    "load_trace",
    "ops",
    "profile_table",
    "read_kernel_name",
    "short_name",
    "timeline",
]
