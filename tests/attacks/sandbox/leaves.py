"""Leave files where all may write, and one that fills the disk. In a sandbox those folders are its own."""


# %%
def large():
    with open("large", "wb") as file:
        file.truncate(3 << 30)
        os.posix_fallocate(file.fileno(), 0, 3 << 30)


def left():
    for folder in ("/dev/shm", "/tmp", "/var/tmp"):
        with open(f"{folder}/workbook-attack-PID", "w") as file:
            file.write("mine")


if "SANDBOX_KIND":
    left()
attack(
    *[]
    if "SANDBOX_KIND"
    else [
        lambda: open("/dev/shm/workbook-attack-PID", "w"),
        lambda: open("/tmp/workbook-attack-PID", "w"),
        lambda: open("/var/tmp/workbook-attack-PID", "w"),
    ],
    large,
)
