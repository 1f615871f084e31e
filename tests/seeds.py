"""Where the tests' random numbers come from: the name of what draws them, and one number, TEST_SEED (0 by default).

`make test` uses 0, so that every run of it is the same. `make soak` goes on with 1, 2, 3, ….
"""

from __future__ import annotations

import hashlib
import os
import random

NUMBER = int(os.environ.get("TEST_SEED") or 0)

# Of a kernel that a test starts: what its notebook draws without a seed of its own. torch is seeded when the notebook
# has imported it, since some of its settings have to be made before that.
KERNEL_STARTUP = """\
def _sow(seed):
    import random, sys

    def imported(*_):
        if "torch" in sys.modules:
            random.seed(seed)  # the import may have drawn from it, or not
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
    """n seeds for a test that tries several in a row: 0 to n - 1, with another TEST_SEED others."""
    return range(NUMBER * n, NUMBER * n + n)


def sow(seed: int) -> None:
    """Seed `random`, numpy and torch."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
