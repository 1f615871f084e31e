"""Handle SIGTERM like Ctrl-C, and ignore both while a batch shuts down."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C and SIGTERM, and restore the previous handlers at the end.

    Python can set signal handlers in its main thread only, so in any other thread this does nothing.
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
    """Ignore both signals until `interruptible` ends, so that a second Ctrl-C can't interrupt the shutdown.

    Call this where the KeyboardInterrupt was caught. The process then ends with its own exit status.
    """
    # If an interrupt leaves an exec() of a string (dataclasses call one), CPython remembers that. Under
    # `python -m` it then ends the process by SIGINT, whatever its exit status. The next exec() clears this.
    exec("")
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
