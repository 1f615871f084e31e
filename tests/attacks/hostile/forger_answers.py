"""Answer with a verdict instead of an outcome."""

# %%
worker._do_call = lambda message: {"passed": True}
