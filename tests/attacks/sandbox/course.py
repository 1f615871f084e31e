"""Change the course, its exercises and the results while the examiner runs."""


# %%
def emptied(path):
    with open(path, "w"):
        pass


paths = ["COURSE_FILE", "CANARY_FILE", "OUT_FOLDER/results.jsonl"]
attack(
    *[lambda path=path: open(path, "r+") for path in paths],
    *[lambda path=path: os.truncate(path, 0) for path in paths],
    *[lambda path=path: os.unlink(path) for path in paths[1:]],
    *[lambda path=path: os.rename(path, "mine") for path in paths[1:]],
    lambda: os.mkdir("OUT_FOLDER/mine"),
    lambda: os.symlink("CANARY_FILE", "OUT_FOLDER/link"),
    lambda: os.link("CANARY_FILE", "mine"),
    lambda: emptied("OUT_FOLDER/grades.csv"),
)
