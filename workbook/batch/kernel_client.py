"""Start a notebook's kernel and receive every message that it sends.

`KernelClient` extends papermill's client in three ways.

*It starts a kernel again if one of its ports is taken.* jupyter_client looks for five free ports and releases
them before the kernel binds them, so another process can take one in between. A kernel that cannot bind its
shell, stdin or control port exits. A kernel that cannot bind its iopub port reports the error and then hangs,
because it waits at exit for the socket that it never bound.

*It lifts the limits of the message queues.* A ZeroMQ publisher drops messages without a word when 1,000 of
them wait for a slow reader. If a dropped message holds an output, the output is missing. If it is the "idle"
that ends a cell, the cell hangs.

*It looks for a kernel's replies twice a second.* A ZeroMQ socket wakes its reader once for what arrives. When
nbclient sends an Output widget's contents to the kernel, with a second, synchronous view of the same socket,
this consumes the wake-up of a reply that arrives at that moment. Without another look, the cell hangs.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from queue import Empty
from typing import IO, Any

from papermill.clientwrap import PapermillNotebookClient

_STARTS = 4  # kernels that are started for one notebook before it counts as failed
_PORT_TAKEN = "Address already in use"
_CHECK_INTERVAL_S = 0.2
_LOOK_AGAIN_S = 0.5
# A kernel's own stderr gets the Python line of a crash in C++. ipykernel keeps that stream under a private
# name after it has redirected file descriptor 2.
#
# The publisher's limit belongs to each connection and is copied when the port is bound, which is before any
# code of ours runs. So it is lifted before each cell, when the client is connected. A ZeroMQ socket may only
# be used by the thread that owns it.
_SETUP = """\
import faulthandler, sys
import zmq
from IPython import get_ipython
from ipykernel.kernelapp import IPKernelApp

def lift_limit():
    thread = IPKernelApp.instance().iopub_thread
    thread.schedule(lambda: thread.socket.setsockopt(zmq.SNDHWM, 0))

get_ipython().events.register("pre_execute", lift_limit)
faulthandler.enable(getattr(sys.stderr, "_original_stdstream_copy", 2), all_threads=False)
"""


class KernelClient(PapermillNotebookClient):
    """papermill's client, with a reliable start and without lost messages."""

    def create_kernel_manager(self) -> Any:
        """Create the manager of a kernel that is not started yet."""
        manager = super().create_kernel_manager()
        self.owns_km = True
        if {"ipykernel", "ipykernel_launcher"} & set(manager.kernel_spec.argv):
            self.extra_arguments = [f"--IPKernelApp.exec_lines=exec({_SETUP!r}, {{}})"]
        return manager

    def start_new_kernel(self, *, stderr: IO[str], **options: Any) -> None:
        """Start a kernel process.

        Args:
            stderr: The file that gets its stderr.
            **options: What `KernelManager.start_kernel` takes.
        """
        self._log, self._options = stderr, options
        self._log_start = os.fstat(stderr.fileno()).st_size
        super().start_new_kernel(stderr=stderr, **options)

    def start_new_kernel_client(self) -> Any:
        """Connect to the kernel and wait for its first answer; start another one if it died before that.

        Raises:
            RuntimeError: It did not answer within `startup_timeout`, or died `_STARTS` times.
        """
        deadline = time.monotonic() + self.startup_timeout
        for starts_left in reversed(range(_STARTS)):
            try:
                with self._kill_if_port_is_taken():
                    client = super().start_new_kernel_client()
                break
            except RuntimeError:
                if not starts_left or time.monotonic() > deadline:
                    raise
            self.create_kernel_manager()
            self.start_new_kernel(stderr=self._log, **self._options)
        client.iopub_channel.socket.rcvhwm = 0
        client.shell_channel.get_msg = _looking_again(client.shell_channel.get_msg)
        return client

    @contextlib.contextmanager
    def _kill_if_port_is_taken(self) -> Iterator[None]:
        answered, process = threading.Event(), self.km.provisioner.process

        def watch_log() -> None:
            while not answered.wait(_CHECK_INTERVAL_S):
                if _PORT_TAKEN in self._read_log():
                    process.kill()
                    return

        watcher = threading.Thread(target=watch_log, name="ports", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            answered.set()
            watcher.join()

    def _read_log(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size - self._log_start, self._log_start).decode(errors="replace")


def _looking_again(get_msg: Callable[..., Awaitable[dict]]) -> Callable[..., Awaitable[dict]]:
    """A channel's `get_msg` that doesn't wait longer than `_LOOK_AGAIN_S` for a wake-up."""

    async def get(timeout: float | None = None) -> dict:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _LOOK_AGAIN_S if deadline is None else min(_LOOK_AGAIN_S, deadline - time.monotonic())
            try:
                return await get_msg(timeout=max(0.0, left))
            except Empty:
                if deadline is not None and time.monotonic() >= deadline:
                    raise

    return get
