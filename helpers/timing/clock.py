"""The host's clock and the wait for the GPU.

Both are bound when this module is imported, so a script that replaces functions of `time` or `torch.cuda`
cannot affect them.
"""

from __future__ import annotations

import time

now_s = time.perf_counter  # stays the original even if time.perf_counter is replaced later


def wait_for_gpu() -> None:
    """Wait until the GPU has finished all work that was submitted.

    This uses torch.accelerator, because a script may have replaced torch.cuda's function.
    """
    import torch

    torch.accelerator.synchronize()
