"""Leave memory that outlives its process: System V's, message queues, /dev/shm."""

# %%
libc.shmget(0, ctypes.c_size_t(1 << 20), 0o1600)
libc.msgget(0, 0o1600)
libc.semget(0, 1, 0o1600)
libc.mq_open(b"/workbook-attack-PID", os.O_CREAT | os.O_RDWR, 0o600, None)


def large():
    os.posix_fallocate(os.open("/dev/shm/workbook-attack-PID", os.O_CREAT | os.O_RDWR), 0, 3 << 30)


attack(large)
