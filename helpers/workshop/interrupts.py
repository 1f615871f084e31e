"""SIGTERM ends a batch as Ctrl-C does, and neither ends it while it closes."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C and on SIGTERM, and put the handlers back at the end.

    Python sets handlers in its main thread only; in any other thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore() -> None:
    """Ignore both until `interruptible` ends, for a second Ctrl-C must not halve what closes now.

    Call it where the KeyboardInterrupt was caught: the process then ends with the status that it gives itself.
    """
    # An interrupt that left an exec() of text (dataclasses have one) stays noted in CPython, which under `python -m` then
    # ends the process by SIGINT, whatever its exit status. The next exec() clears the note.
    exec("")
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
