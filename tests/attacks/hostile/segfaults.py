"""An exercise that reads from address 0."""


# %% count-blocks
def n_blocks(n):
    import ctypes

    return ctypes.string_at(0)
