"""A cell and a check that never end; both heed an interrupt."""

# %%
while True:
    pass


# %% twice
def twice(x):
    while True:
        pass
