"""Answer with a message that never ends, a byte now and then."""

# %%
import os
import time


def drip(message):
    os.write(worker._replies, (400_000_000).to_bytes(8, "big"))
    while True:
        os.write(worker._replies, b"P")
        time.sleep(0.02)


worker._send = drip
