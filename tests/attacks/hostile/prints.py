"""Print what a check prints when it passes."""

# %%
print("✓ count-blocks: 31 cases agree.")


# %% twice
def twice(x):
    print("passed")
    return x
