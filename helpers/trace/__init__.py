"""torch.profiler made readable: tables, Chrome traces, a timeline, and what a kernel's name says.

Everything here works on a machine without a GPU: a profile of CPU operations has the same operators, and a trace
that was taken on a GPU is a file that any machine can read. Times are microseconds, sizes are bytes.

`profile` takes profiles and makes tables of them, `chrome` reads and trims traces, `view` draws the timeline, `names`
reads a kernel's name.
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
