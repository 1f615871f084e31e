"""What the functions of `helpers.widgets` return, and how notebooks and pages display it."""

from __future__ import annotations

import base64
import html
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import device

WIDGET = "application/vnd.jupyter.widget-view+json"
SCRIPT = Path(__file__).with_name("explorer.js")


def frontend() -> str:
    """ "widgets" if a Python kernel can answer to sliders here, otherwise "plain".

    WORKBOOK_WIDGETS=plain or =widgets overrides this. Batch runs set it to plain, because their kernel has
    ended before anybody moves a slider.
    """
    wanted = os.environ.get("WORKBOOK_WIDGETS")
    if wanted in ("plain", "widgets"):
        return wanted
    return "widgets" if device.package_version("anywidget") else "plain"


@dataclass(frozen=True, repr=False, eq=False)
class Shown:
    """What a notebook displays: a widget, or HTML where widgets don't work.

    Attributes:
        text: for a terminal.
        html: for a viewer without widgets, such as GitHub's.
        widget: the live form; None if there is no kernel to answer, as in a batch run.
    """

    text: str
    html: str
    widget: Any = None

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        bundle = {"text/plain": self.text, "text/html": self.html}
        if self.widget is None:
            return bundle
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        # anywidget adds where Colab finds its manager of custom widgets.
        made = getattr(self.widget, "_repr_mimebundle_", lambda: None)()
        metadata = made[1] if isinstance(made, tuple) else {}
        return {WIDGET: view, **bundle}, metadata


def pack(data: Mapping[str, Any]) -> str:
    """Data for `explorer.js` as text: JSON, compressed by zlib, in base64."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def page_html(data: Mapping[str, Any], still: str) -> str:
    """An explorer for a page: its data, and what is displayed without a script.

    Args:
        data: for `explorer.js`, with all positions that the page's sliders reach.
        still: the HTML of the first position.
    """
    packed = f'<script type="application/x-workbook-explorer">{pack(data)}</script>'
    return f'<div class="kx-packed">{packed}{still}</div>'


def page_script() -> str:
    """The script that starts every explorer of a page; it also works on a page that was opened from disk."""
    lines = SCRIPT.read_text("utf-8").rpartition("\n// ---")[0]  # without the last section, anywidget's
    lines = lines.replace("\nexport ", "\n")
    return f'(() => {{\n"use strict";\n{lines}\nupgrade(document);\n}})();'


def table_html(columns: list[str], rows: list[list[str]], caption: str) -> str:
    """A small HTML table; the cells are HTML."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f"<table><caption>{html.escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
