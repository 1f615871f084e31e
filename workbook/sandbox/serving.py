"""Answer the requests of `process.Process` from inside: the loop that code which nobody trusts runs below."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

from workbook.sandbox.messages import MAX_BYTES, Source, frame, receive


def sentence(error: BaseException) -> str:
    """An error in a line, without calling more of the code that raised it than must be."""
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error).strip().splitlines()
    except Exception:  # the code may define the exception
        text = []
    first = " ".join(text[: 2 if text[0].endswith(":") else 1]) if text else ""
    return type(error).__name__ + (f": {first[:300]}" if first else "")


class Server:
    """Answers a request {"do": "name", ...} with what `_do_name(message)` returns, a dict.

    A reply repeats the token of its request. What this class needs is bound when it is made, before any code
    runs that could replace it.
    """

    def __init__(self, requests: int, replies: int) -> None:
        import torch

        self._requests, self._replies, self._pid = requests, replies, os.getpid()
        for fd in (requests, replies):
            os.set_inheritable(fd, False)
        self._load, self._save = torch.load, torch.save
        self._read, self._write = os.readv, os.write
        self._frame, self._source = frame, Source
        self._handlers = {name: getattr(self, name) for name in dir(self) if name.startswith("_do_")}
        self._untrusted = False  # whether code runs that an interrupt may stop
        self._interrupted = False  # whether an interrupt came since the request did
        self._token = ""

    def serve(self) -> None:
        """Say hello, and answer until the other side closes the pipe."""
        import torch

        self._send({"token": "", "pid": self._pid, "gpu": torch.cuda.is_available()})
        self._heed_interrupts()
        while (payload := receive(self._requests, self._read)) is not None:
            message = self._load(self._source(payload), weights_only=True)
            self._token = message["token"]
            try:
                reply = self._handlers[f"_do_{message['do']}"](message)
            except KeyboardInterrupt:  # from the other side, which knows of it, or the code's own
                reply = {"error": "KeyboardInterrupt", "error_type": "KeyboardInterrupt"}
            if os.getpid() != self._pid:
                os._exit(0)  # the code forked, and this is the copy
            self._send({"token": message["token"], **reply})
            self._heed_interrupts()

    def _heed_interrupts(self) -> None:
        """From here on an interrupt means the next request; the code may have installed another handler."""
        self._interrupted = False
        signal.signal(signal.SIGINT, self._on_interrupt)

    def _on_interrupt(self, number: int, frame: object) -> None:
        self._interrupted = True
        if self._untrusted:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def _untrusted_code(self) -> Iterator[None]:
        self._untrusted = True
        try:
            if self._interrupted:  # it came while the call was prepared
                raise KeyboardInterrupt
            yield
        finally:
            self._untrusted = False

    def _send(self, reply: dict[str, Any]) -> None:
        rest = self._frame(reply, self._save)
        if len(rest) > MAX_BYTES:
            rest = self._frame({"token": reply["token"], "too_large": True}, self._save)
        while rest:
            rest = rest[self._write(self._replies, rest) :]
