"""The anywidget that connects `explorer.js` with Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import anywidget
import traitlets

from helpers.widgets.shown import SCRIPT, pack


class LiveExplorer(anywidget.AnyWidget):
    """Sliders in a notebook.

    Attributes:
        data: what `explorer.js` draws. Positions that arrive later are added to it, so that a view that is
            opened later, for example after the page was reloaded, has them too.
        state: where the sliders are: "at", the positions, and what the kind of explorer adds.
    """

    _esm = SCRIPT.read_text("utf-8")
    data = traitlets.Dict().tag(sync=True, to_json=lambda value, widget: pack(value))
    state = traitlets.Dict().tag(sync=True)

    def __init__(self, data: dict[str, Any], answer: Callable[[Mapping[str, Any]], None]) -> None:
        """Create the widget.

        Args:
            data: for `explorer.js`.
            answer: called with each message from the browser.
        """
        super().__init__(data=data)
        self._answer = answer
        self.on_msg(self._hear)

    def in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task:
        """Run a coroutine while the kernel is idle; an error is reported in the browser."""

        async def reported() -> None:
            try:
                await work
            except Exception as error:
                self.send({"error": f"{type(error).__name__}: {error}"})

        return asyncio.ensure_future(reported())

    def _hear(self, widget: Any, message: Mapping[str, Any], buffers: Any) -> None:
        try:
            self._answer(message)
        except Exception as error:  # whatever fails, the browser has to stop waiting, and show why
            self.send({"answer": True, "error": f"{type(error).__name__}: {error}"})
