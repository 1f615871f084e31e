"""Seeds for the tests: each comes from the name of what draws and from the number TEST_SEED (default 0).

Two runs of `make test` therefore draw the same numbers; `make test SEED=3` draws others.
"""

from __future__ import annotations

import hashlib
import os
import random

NUMBER = int(os.environ.get("TEST_SEED") or 0)

# Runs at the start of every Jupyter kernel that a test starts. It seeds torch only after the notebook has
# imported it, because some of torch's settings have to be made before the import.
KERNEL_STARTUP = """\
def _sow(seed):
    import random, sys

    def imported(*_):
        if "torch" in sys.modules:
            random.seed(seed)  # the import may have drawn from it
            sys.modules["torch"].manual_seed(seed)
            sys.modules["numpy"].random.seed(seed)
            events.unregister("pre_run_cell", imported)

    random.seed(seed)
    events = get_ipython().events
    events.register("pre_run_cell", imported)


_sow({seed})
del _sow
"""


def of(name: str) -> int:
    """The seed that belongs to a name and to TEST_SEED, 0 to 2**31 - 1."""
    return int.from_bytes(hashlib.sha256(f"{name} {NUMBER}".encode()).digest()[:4], "big") >> 1


def several(n: int) -> range:
    """n seeds for a test that tries several in a row: 0 to n - 1 if TEST_SEED is 0."""
    return range(NUMBER * n, NUMBER * n + n)


def sow(seed: int) -> None:
    """Seed `random`, numpy and torch."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
