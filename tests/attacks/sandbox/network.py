"""Send something away, and reach others by sockets of every kind."""

# %%
import socket


def told():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("127.0.0.1", PORT_NUMBER))
        for _ in range(3):  # that nobody listened is known from the second one on
            sender.send(b"mine")
            time.sleep(0.1)


attack(
    lambda: socket.create_connection(("127.0.0.1", PORT_NUMBER), timeout=2),
    lambda: socket.create_connection(("192.0.2.1", 80), timeout=2),
    told,
    lambda: socket.socket(socket.AF_UNIX).connect("SOCKET_FILE"),
    lambda: socket.socket(socket.AF_UNIX).connect("\0SOCKET_NAME"),
    lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
)
