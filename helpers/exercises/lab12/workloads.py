"""The attention layers that lab 12's last exercise counts, and a GPU's data sheet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# The data sheet of an H100 SXM: dense float16 on its tensor cores, and its memory.
TFLOP_PER_S, GB_PER_S = 989, 3350
HEAD_SIZE, ITEMSIZE = 128, 2  # of float16

PROMPT, SHORT, KERNELS = "prompt", "short prompt", "prompt, three kernels"
TOKEN, GROUPED, BATCH, GUESSES = "token", "token, 8 key heads", "token, batch 64", "16 tokens, 8 key heads"
_COLUMNS = ("layer", "kernels", "batch", "heads", "kv_heads", "n_queries", "n_keys")
_ROWS = (
    (PROMPT, 1, 1, 32, 32, 4096, 4096),
    (SHORT, 1, 1, 32, 32, 256, 256),
    (KERNELS, 3, 1, 32, 32, 4096, 4096),
    (TOKEN, 1, 1, 32, 32, 1, 32_768),
    (GROUPED, 1, 1, 32, 8, 1, 32_768),
    (BATCH, 1, 64, 32, 32, 1, 32_768),
    (GUESSES, 1, 1, 32, 8, 16, 32_768),
)


def table() -> pd.DataFrame:
    """One row per layer: its name, how many kernels compute it, and its sizes.

    With one kernel, q, k and v are read once and the result is written once. With three, the scores and the
    weights are written and read, too. All tensors are float16 with a head size of 128, and no key is masked.
    """
    import pandas as pd

    return pd.DataFrame(_ROWS, columns=_COLUMNS)
