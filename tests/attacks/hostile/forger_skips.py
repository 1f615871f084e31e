"""Answer every call with: there is no room for this case."""

# %%
worker._call_here = lambda exercise, obj, case: Outcome(facts={"skipped": "no room"})
