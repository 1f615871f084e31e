"""An exercise that takes memory until somebody stops it."""


# %% count-blocks
def n_blocks(n):
    kept = []
    while True:
        kept.append(b"x" * 10**8)
