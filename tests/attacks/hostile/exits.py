"""Leave in good order: two cells that a shell survives, and an exercise that ends the process
with status 0.
"""

# %%
import sys

sys.exit(0)

# %%
exit()

# %% count-blocks
import os


def n_blocks(n):
    os._exit(0)
