"""Moves sliders without a browser: sends what `explorer.js` sends, and reads what it would draw."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

from helpers.widgets.shown import Shown


def page_data(html: str) -> dict[str, Any]:
    """The data behind the sliders of a page."""
    packed = re.search(r'<script type="application/x-workbook-explorer">([^<]+)</script>', html)[1]
    return json.loads(zlib.decompress(base64.b64decode(packed)))


class Sliders:
    """The sliders of `explore`, as a browser has them."""

    def __init__(self, shown: Shown) -> None:
        self.shown, self.sent = shown, []
        if shown.widget is None:
            self.data = page_data(shown.html)
        else:
            self.data = json.loads(json.dumps(shown.widget.data))
            shown.widget.send = self.sent.append
        self.at = self.data["start"]

    def move(self, **values: Any) -> None:
        """Move sliders to values, written as their labels are; ask Python for what is missing."""
        for axis, value in values.items():
            i = [one["name"] for one in self.data["axes"]].index(axis)
            text = f"{value:,}" if isinstance(value, int) else str(value)
            self.at = [*self.at[:i], self.data["axes"][i]["values"].index(text), *self.at[i + 1 :]]
        kernels = [k for k in range(len(self.data["kernels"])) if self.row_at(k) is None]
        if self.shown.widget is not None:
            self.shown.widget.state = self.state
            if kernels and self.data["measures"]:
                self.ask("rows", kernels=kernels)

    @property
    def state(self) -> dict[str, Any]:
        mapped = [kernel["mapped"] for kernel in self.data["kernels"]].index(True)
        return {"at": self.at, "gpu": 0, "mapped": mapped}

    def ask(self, kind: str, **more: Any) -> None:
        """Send a message as the browser does, and take in what comes back."""
        self.shown.widget._hear(None, {"kind": kind, **self.state, **more}, None)
        for message in self.sent:
            self.data["gpus"][0]["rows"] |= message.get("rows", {})

    def row_at(self, kernel: int, gpu: int = 0) -> dict[str, Any] | None:
        mapped = self.data["kernels"][kernel]["mapped"]
        axes = range(len(self.at)) if mapped else self.data["sizes"]
        key = f"{kernel}|{','.join(str(self.at[i]) for i in axes)}"
        return self.data["gpus"][gpu]["rows"].get(key)

    def row(self, kernel: str, gpu: int = 0) -> dict[str, Any] | None:
        """What is drawn of a kernel here."""
        return self.row_at([one["name"] for one in self.data["kernels"]].index(kernel), gpu)
