"""Read and spoil what others handed in, and kill their processes."""

# %%
copies = glob.glob("SUBMISSIONS_FOLDER/*.ipynb") + ["SUBMISSIONS_FOLDER/good.ipynb"]


def seen(folder):
    if not glob.glob(f"{folder}/**/*.ipynb", recursive=True):
        raise FileNotFoundError("nobody else's is there")


attack(
    *[lambda path=path: open(path) for path in copies],
    *[lambda path=path: open(path, "w") for path in copies],
    *[lambda folder=folder: seen(folder) for folder in (os.path.dirname(os.getcwd()), "SUBMISSIONS_FOLDER")],
    *each(others(), lambda pid: os.kill(pid, 0)),
)
