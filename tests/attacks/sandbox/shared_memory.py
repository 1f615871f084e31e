"""Take memory that no process's size shows, or that outlives its process: memfd, System V's, message queues,
/dev/shm.
"""

# %%
import ctypes

libc = ctypes.CDLL(None, use_errno=True)
TOO_MUCH = 3 << 30


def made(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def filled(fd):
    os.posix_fallocate(fd, 0, TOO_MUCH)


attack(
    lambda: filled(os.memfd_create("attack")),
    lambda: filled(made(libc.syscall(447, 0))),  # memfd_secret
    lambda: made(libc.shmget(0, ctypes.c_size_t(1 << 30), 0o1600)),
    lambda: made(libc.msgget(0, 0o1600)),
    lambda: made(libc.semget(0, 1, 0o1600)),
    lambda: made(libc.mq_open(b"/workbook-attack-PID", os.O_CREAT | os.O_RDWR, 0o600, None)),
    lambda: filled(os.open("/dev/shm/workbook-attack-PID", os.O_CREAT | os.O_RDWR)),
)
