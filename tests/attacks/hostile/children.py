"""Leave two processes behind: a session of its own, and a daemon that ignores what can be ignored.

PID stands for the test's own process, so that it finds no other test's.
"""

# %%
import os
import signal
import subprocess

subprocess.Popen(["sleep", "600.PID"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:  # its parent is gone at once
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.execvp("sleep", ["sleep", "601.PID"])
    os._exit(0)
