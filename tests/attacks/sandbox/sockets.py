"""Reach others without TCP: UDP, a socket that is a file, the kernel's own, raw packets, io_uring."""

# %%
import ctypes
import socket

libc = ctypes.CDLL(None, use_errno=True)


def io_uring():
    if libc.syscall(425, 1, ctypes.create_string_buffer(256)) < 0:
        raise OSError(ctypes.get_errno(), "io_uring_setup")


def told():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"mine", ("127.0.0.1", PORT_NUMBER))


def called():
    socket.socket(socket.AF_UNIX).connect("SOCKET_FILE")


attack(
    told,
    called,
    lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    io_uring,
)
