"""Fill the disk with many files, each within the limit of one, and keep some of them without a name."""

# %%
kept = []
for number in range(100_000):
    fd = os.open(f"large-{number}", os.O_CREAT | os.O_RDWR)
    kept.append(fd)
    if number % 2:
        os.unlink(f"large-{number}")
    try:
        os.posix_fallocate(fd, 0, 1 << 20)
    except OSError:
        break
# %%
time.sleep(60)
