"""The worker process, which runs points for `executor` one after another.

For each `Point` that it receives on its channel, it sends a message when a cell begins, and the row at the
end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from multiprocessing.connection import Connection

from workbook import supervisor
from workbook.batch.messages import CellBegins, Done, Ready
from workbook.batch.point import Stopped
from workbook.batch.watch import Watch
from workbook.batch.work import run_point


def main(channel: int, scratch: str) -> None:
    """Run points until the channel is closed, then exit. The caller has put a supervisor above this process.

    Args:
        channel: The file descriptor of a `Connection`.
        scratch: A folder for the temporary files of this process and of Jupyter, such as connection files.
            The supervisor removes it. Kernels keep the machine's own folder for what their cells write.
    """
    tempfile.tempdir = scratch
    supervisor.adopt_orphans()
    os.set_inheritable(channel, False)
    worker = _Worker(Connection(channel))
    signal.signal(signal.SIGTERM, lambda number, frame: worker.stop())
    # In the main thread nbclient would install signal handlers of its own.
    thread = threading.Thread(target=worker.serve, name="points")
    thread.start()
    thread.join()
    os._exit(0)


class _Worker:
    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        self._stop = threading.Event()
        self._watch: Watch | None = None

    def stop(self) -> None:
        """Kill the running kernel. If the notebook has ended already, it is still written."""
        self._stop.set()
        if self._watch is not None:
            self._watch.kill()

    def serve(self) -> None:
        def report(index: int, total: int, cell: str) -> None:
            with contextlib.suppress(OSError):
                self._channel.send(CellBegins(index, total, cell))

        with contextlib.suppress(EOFError, OSError):  # the runner ended
            self._channel.send(Ready(os.getpid()))
            while True:
                point = self._channel.recv()
                self._watch = Watch(point, self._stop, report)
                try:
                    done = Done(run_point(point, self._watch))
                except Stopped:
                    done = Done(None)
                except Exception as error:
                    done = Done(None, f"{type(error).__name__}: {error}")
                self._watch = None
                supervisor.end_descendants()  # also what a cell started in another session
                self._channel.send(done)
