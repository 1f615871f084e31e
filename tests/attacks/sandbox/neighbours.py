"""Read and spoil what others handed in, and kill their processes."""

# %%
copies = glob.glob("SUBMISSIONS_FOLDER/*.ipynb") + ["SUBMISSIONS_FOLDER/good.ipynb"]
own = [pid for pid in [os.getpid(), *above()]]
others = []
for path in glob.glob("/proc/[0-9]*/stat"):
    try:
        text = open(path).read()
        command = open(path.replace("stat", "cmdline")).read()
    except OSError:
        continue
    pid, parent = int(path.split("/")[2]), int(text.rpartition(")")[2].split()[1])
    # Of this test's processes only: where the attack worked, it would hit others.
    if pid not in own and (parent in own or "workbook-grade" in command) and "OUT_FOLDER" in command:
        others.append(pid)


def seen(folder):
    if not set(os.listdir(folder)) - {os.path.basename(os.getcwd())}:
        raise FileNotFoundError("nobody else's is there")


attack(
    *[lambda path=path: open(path) for path in copies],
    *[lambda path=path: open(path, "w") for path in copies],
    *[lambda folder=folder: seen(folder) for folder in (os.path.dirname(os.getcwd()), "SUBMISSIONS_FOLDER")],
    *[lambda pid=pid: os.kill(pid, 0) for pid in (*others, *above())],
)
