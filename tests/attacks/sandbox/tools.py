"""What the attacks share: the processes above, and a cell that says whether anything worked. It begins each
of them.
"""

# %%
import glob
import os
import signal
import sys
import time


def above():
    """The processes between this one and the one that grades, with it."""
    found, pid = [], os.getpid()
    while pid > 1 and pid != PID:
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def attack(*tries):
    """Try each; raise what came of them."""
    stopped = []
    for one in tries:
        try:
            one()
        except OSError as error:
            stopped.append(type(error).__name__)
        else:
            raise RuntimeError("it worked")
    raise RuntimeError(f"stopped: {len(stopped)} of {len(tries)}" if tries else "nothing was tried")
