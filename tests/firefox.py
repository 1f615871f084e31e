"""A page in a real Firefox, driven by WebDriver BiDi over Firefox's own websocket."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import debian
import websocket

ARROW_RIGHT = "\ue014"
WITHIN_S = 60


class Tab:
    """The only tab of a running Firefox."""

    def __init__(self, connection: websocket.WebSocket) -> None:
        self._connection, self._numbers = connection, itertools.count(1)
        self._call("session.new", capabilities={})
        self._context = self._call("browsingContext.getTree")["contexts"][0]["context"]

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": params}))
        while (answer := json.loads(self._connection.recv())).get("id") != number:
            pass  # an event
        if answer["type"] == "error":
            raise RuntimeError(f"{method}: {answer['message']}")
        return answer["result"]

    def open(self, address: str) -> None:
        self._call("browsingContext.navigate", context=self._context, url=address, wait="complete")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression if it is plain, and None if it raises."""
        target = {"context": self._context}
        found = self._call("script.evaluate", expression=expression, target=target, awaitPromise=True)
        return found["result"].get("value") if found["type"] == "success" else None

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + WITHIN_S
        while self.evaluate(condition) is not True:
            assert time.monotonic() < until, f"not true within {WITHIN_S} s: {condition}"
            time.sleep(0.1)

    def press(self, key: str) -> None:
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        source = {"type": "key", "id": "keyboard", "actions": keys}
        self._call("input.performActions", context=self._context, actions=[source])


@contextlib.contextmanager
def tab(profile: Path, address: str) -> Iterator[Tab]:
    """Open an address in a headless Firefox with an empty profile."""
    path = debian.program("firefox-esr", "firefox-esr", "firefox", needed_by="The tests in Firefox")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running = subprocess.Popen(
        [path, "--headless", "--no-remote", "--profile", profile, f"--remote-debugging-port={port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + WITHIN_S
        while True:
            try:
                connection = websocket.create_connection(
                    f"ws://127.0.0.1:{port}/session", timeout=WITHIN_S, suppress_origin=True
                )
                break
            except OSError:
                assert time.monotonic() < until, f"Firefox did not start within {WITHIN_S} s"
                time.sleep(0.2)
        with contextlib.closing(connection):
            opened = Tab(connection)
            opened.open(address)
            yield opened
    finally:
        running.terminate()
        running.wait(20)
