"""Send something away, and wait for somebody who calls."""

# %%
import socket

attack(
    lambda: socket.create_connection(("127.0.0.1", PORT_NUMBER), timeout=2),
    lambda: socket.create_server(("127.0.0.1", 0)),
)
