"""Read what the teacher's environment holds."""


# %%
def told(pid):
    if "WORKBOOK_SECRET" not in open(f"/proc/{pid}/environ").read():
        raise FileNotFoundError("no secret")


attack(*each([1, os.getpid(), *others()], told))
