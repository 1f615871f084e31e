"""Leave files where all may write, which are the sandbox's own folders, and one that fills the disk."""


# %%
def large():
    with open("large", "wb") as file:
        file.truncate(3 << 30)
        os.posix_fallocate(file.fileno(), 0, 3 << 30)


def left():
    for folder in ("/dev/shm", "/tmp", "/var/tmp"):
        with open(f"{folder}/workbook-attack-PID", "w") as file:
            file.write("mine")


def many():
    for number in range(100_000):
        with open(f"large-{number}", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 20)
            if number % 2:
                os.unlink(f"large-{number}")


left()
attack(
    large,
    many,
    lambda: open("/mine", "w"),
    lambda: open("/dev/mine", "w"),
    lambda: open("/var/mine", "w"),
    lambda: open(os.path.join(sys.prefix, "mine"), "w"),
)
