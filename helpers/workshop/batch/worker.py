"""The process that runs points for `executor`, one after another, and the messages between the two.

It hears `Point`s on its channel and answers each with what its cells do and then with its row.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from multiprocessing.connection import Connection

from helpers.workshop import supervisor
from helpers.workshop.batch.messages import CellBegins, Done, Ready
from helpers.workshop.batch.point import Held, Stopped
from helpers.workshop.batch.watch import Watch
from helpers.workshop.batch.work import run_point


def main(channel: int) -> None:
    """Run points until the channel is closed; does not return. A supervisor is above this process already.

    Args:
        channel: A file descriptor.
    """
    supervisor.adopt_orphans()
    os.set_inheritable(channel, False)
    worker = _Worker(Connection(channel))
    signal.signal(signal.SIGTERM, lambda number, frame: worker.stop())
    # nbclient would put handlers of its own in the main thread.
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
        """End the kernel that runs; a notebook that has ended is still written."""
        self._stop.set()
        if self._watch is not None:
            self._watch.kill()

    def serve(self) -> None:
        def tell(index: int, total: int, cell: str) -> None:
            with contextlib.suppress(OSError):
                self._channel.send(CellBegins(index, total, cell))

        with contextlib.suppress(EOFError, OSError):  # the runner has ended
            self._channel.send(Ready(os.getpid()))
            while True:
                point = self._channel.recv()
                self._watch = Watch(point, self._stop, tell)
                try:
                    done = Done(run_point(point, self._watch))
                except Stopped:
                    done = Done(None)
                except Held as error:
                    done = Done(None, held=str(error))
                except Exception as error:
                    done = Done(None, f"{type(error).__name__}: {error}")
                self._watch = None
                supervisor.end_descendants()  # what a cell started in a session of its own
                self._channel.send(done)
