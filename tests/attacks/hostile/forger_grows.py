"""Answer with a list of 2^60 parts, and with a number of a hundred thousand digits."""

# %%
nested = []
for i in range(60):
    nested = [nested, nested]

# %%
worker._call_here = lambda exercise, obj, case: Outcome(nested if exercise.id == "twice" else 10**100000)
