"""A Plotly figure as HTML, with a caption, controls and a description in words.

Plotly draws sliders and menus as SVG, which the keyboard cannot reach. In the book each of them is a range
input or a select, and `assets/book.js` carries out the same steps. The figure's data stays as the notebook
has it.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

# The space that Plotly leaves for a title, a menu and sliders, in pixels.
_TITLE, _MENU, _BELOW = 45, 35, 70
# If a trace has more values, the description gives only their number and range.
_MOST_VALUES = 12
_TAG = re.compile(r"<[^<>]+>")


def figure_html(figure: Mapping[str, Any]) -> str:
    """A figure's HTML: its caption, its controls, its description, and its data for plotly.js.

    Args:
        figure: The data of a notebook's Plotly output.
    """
    layout = dict(figure.get("layout", {}))
    sliders, menus = layout.pop("sliders", None) or [], layout.pop("updatemenus", None) or []
    title = _title(layout.pop("title", None))
    height = _fit(layout, bool(title), bool(sliders), bool(menus))
    controls = [_slider(one, i) for i, one in enumerate(sliders)]
    controls += [_menu(one, len(sliders) + i) for i, one in enumerate(menus)]
    steps = [one.get("steps") or [] for one in sliders] + [one.get("buttons") or [] for one in menus]
    data = {
        "data": figure.get("data", []),
        "layout": layout,
        "controls": [
            [{"method": s.get("method", "update"), "args": s.get("args", [])} for s in all_] for all_ in steps
        ],
    }
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")  # a title may hold </script>
    name, note = (*title, "")[:2] if title else ("", "")
    caption = f"<figcaption>{name}{f'<small>{note}</small>' if note else ''}</figcaption>" if name else ""
    shows = html.escape(described(figure), quote=True)
    controls_html = f'<div class="kw-controls">{"".join(controls)}</div>' if controls else ""
    return (
        f'<figure class="kw-figure">{caption}{controls_html}'
        f'<div class="kw-wide"><div class="kw-plot" role="img" aria-label="{shows}" '
        f'style="height:{height}px"></div></div>'
        f'<script type="application/json">{text}</script></figure>'
    )


def described(figure: Mapping[str, Any]) -> str:
    """A figure in words: its title, its axes, and each visible trace's values, or their number and range."""
    layout = figure.get("layout", {})
    parts = [plain(part) for part in _title(layout.get("title"))] or ["Figure"]
    for axis in ("xaxis", "yaxis"):
        if words := plain(_text((layout.get(axis) or {}).get("title"))):
            parts.append(f"{axis[0]}: {words}")
    for trace in figure.get("data", []):
        if trace.get("visible") in (False, "legendonly"):
            continue
        if words := _trace(trace):
            parts.append(words)
    moves = [
        plain(_text((one.get("currentvalue") or {}).get("prefix"))) for one in layout.get("sliders") or []
    ]
    if moves := [one.rstrip(": ") for one in moves if one]:
        parts.append(f"Sliders: {', '.join(moves)}")
    return ". ".join(part.rstrip(".") for part in parts) + "."


def plain(text: str) -> str:
    """A text from Plotly without its tags."""
    return " ".join(html.unescape(_TAG.sub(" ", text)).split())


def _text(title: Any) -> str:
    """The text of a title, which Plotly accepts as a string or as a mapping."""
    return str(title.get("text") or "") if isinstance(title, Mapping) else str(title or "")


def _title(title: Any) -> list[str]:
    """A title's lines as HTML: the title itself, and the smaller note below it."""
    lines = [re.sub(r"</?sub>", "", line).strip() for line in re.split(r"<br\s*/?>", _text(title))]
    lines = [line for line in lines if line]
    return [lines[0], " ".join(lines[1:])] if len(lines) > 1 else lines


def _fit(layout: dict[str, Any], title: bool, sliders: bool, menus: bool) -> int:
    """Remove the space of what is HTML now from a layout; returns the height that remains, in pixels."""
    height = layout.pop("height", None) or 450
    layout.pop("width", None)
    margin = dict(layout.get("margin") or (layout.get("template", {}).get("layout", {}).get("margin")) or {})
    top, bottom = margin.get("t", 70), margin.get("b", 60)
    margin["t"] = max(24, top - _TITLE * title - _MENU * menus)
    margin["b"] = min(bottom, _BELOW) if sliders else bottom
    layout["margin"] = margin
    return int(height - (top - margin["t"]) - (bottom - margin["b"]))


def _slider(slider: Mapping[str, Any], i: int) -> str:
    labels = [str(step.get("label", "")) for step in slider.get("steps") or []]
    active = min(int(slider.get("active") or 0), max(0, len(labels) - 1))
    name = plain(_text((slider.get("currentvalue") or {}).get("prefix"))).rstrip(": ") or "Step"
    now = html.escape(plain(labels[active])) if labels else ""
    label_data = html.escape(json.dumps([plain(label) for label in labels]), quote=True)
    return (
        f'<label><span>{html.escape(name)}: <output>{now}</output></span><input type="range" min="0" '
        f'max="{max(0, len(labels) - 1)}" step="1" value="{active}" aria-valuetext="{now}" '
        f'data-control="{i}" '
        f'data-labels="{label_data}"></label>'
    )


def _menu(menu: Mapping[str, Any], i: int) -> str:
    active = int(menu.get("active") or 0)
    labels = [html.escape(plain(str(button.get("label", "")))) for button in menu.get("buttons") or []]
    options = "".join(
        f'<option value="{k}"{" selected" if k == active else ""}>{label}</option>'
        for k, label in enumerate(labels)
    )
    return f'<label><span>Show</span><select data-control="{i}">{options}</select></label>'


def _trace(trace: Mapping[str, Any]) -> str:
    """One trace in words; "" if it has no numbers."""
    name = plain(str(trace.get("name") or ""))
    horizontal = trace.get("orientation") == "h"
    values = _values(trace.get("z") if trace.get("z") is not None else trace.get("x" if horizontal else "y"))
    numbers = [v for v in values if isinstance(v, (int, float)) and v == v]
    if not numbers:
        return ""
    positions = [] if trace.get("z") is not None else _values(trace.get("y" if horizontal else "x"))
    lead = f"{name}: " if name else ""
    if len(values) <= _MOST_VALUES and len(positions) == len(values):
        pairs = [
            f"{_value_text(p)} {_value_text(v)}"
            for p, v in zip(positions, values, strict=True)
            if v is not None
        ]
        return lead + ", ".join(pairs)
    return f"{lead}{len(numbers)} values from {_value_text(min(numbers))} to {_value_text(max(numbers))}"


def _values(data: Any) -> list[Any]:
    """A trace's values in one list; Plotly 6 and later store arrays of numbers as bytes."""
    if isinstance(data, Mapping) and "bdata" in data:
        import numpy as np

        return np.frombuffer(base64.b64decode(data["bdata"]), np.dtype(str(data["dtype"]))).tolist()
    if not isinstance(data, Sequence) or isinstance(data, str):
        return []
    flat: list[Any] = []
    for one in data:
        flat += _values(one) if isinstance(one, (Mapping, list, tuple)) else [one]
    return flat


def _value_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if type(value) is int else plain(str(value))
