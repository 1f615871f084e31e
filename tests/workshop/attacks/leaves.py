"""Leave files where all may write, and one that fills the disk."""


# %%
def large():
    with open("large", "wb") as file:
        file.truncate(3 << 30)


attack(
    lambda: open("/dev/shm/workbook-attack-PID", "w"),
    lambda: open("/tmp/workbook-attack-PID", "w"),
    lambda: open("/var/tmp/workbook-attack-PID", "w"),
    large,
)
