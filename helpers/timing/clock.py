"""The host's clock and the wait for the GPU, out of reach of a script that replaces those of `time` and `torch.cuda`."""

from __future__ import annotations

import time

now_s = time.perf_counter  # kept from the start, whatever becomes of time.perf_counter later


def wait_for_gpu() -> None:
    """Return when the GPU has done all that it was given; by torch.accelerator, since torch.cuda's may be replaced."""
    import torch

    torch.accelerator.synchronize()
