"""What takes the nap's place in lesson 09's kernel without one. It imports Triton, so nothing imports it before a launch."""

from __future__ import annotations

import triton


@triton.jit
def no_nap(like):
    """Look again at once."""
