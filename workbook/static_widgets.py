"""Show the final state of a notebook's widgets as plain HTML, without a script or a network.

The controls have no handlers, so they can't be moved. Only the widgets of ipywidgets itself can be shown.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import nbformat
from nbformat import NotebookNode

STATE = "application/vnd.jupyter.widget-state+json"
PLOTLY = "application/vnd.plotly.v1+json"
VIEW = "application/vnd.jupyter.widget-view+json"
_REFERENCE = "IPY_MODEL_"
_DEEPEST = 30  # boxes within boxes; a box may contain itself
STYLE = """\
.static-widget { font: 13px/1.6 system-ui, sans-serif; }
.static-widget .row { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center; }
.static-widget .column { display: flex; flex-direction: column; gap: 4px; }
.static-widget label { display: inline-flex; gap: 8px; align-items: center; }
.static-widget .title { font-weight: 600; margin-top: 6px; }
.static-widget progress { width: 300px; } .static-widget input[type=range] { width: 180px; }"""


def states_of(notebook: NotebookNode) -> Mapping[str, Mapping[str, Any]]:
    """The saved widget states of a notebook, by model id."""
    widgets = notebook.metadata.get("widgets", {})
    return (widgets.get(STATE) or {}).get("state", {})


def static_outputs(output: NotebookNode, states: Mapping[str, Mapping[str, Any]]) -> list[NotebookNode]:
    """An output whose widget, which needs a kernel, is HTML instead.

    Args:
        output: Any output of a cell. One with another form that a page shows is returned as it is.
        states: The notebook's saved widget states.

    Returns:
        The HTML, followed by the Plotly figures that the widget shows. If a part of the widget is missing or
        unknown, such as one of another library, the output without its widget.
    """
    data = output.get("data", {})
    if VIEW not in data or PLOTLY in data or "text/html" in data:
        return [output]
    figures: list[NotebookNode] = []
    rest = {kind: value for kind, value in data.items() if kind != VIEW}
    try:
        drawn = _Widgets(states, figures).html(data[VIEW].get("model_id", ""), 0)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        figures.clear()
    else:
        rest["text/html"] = f'<div class="static-widget">{drawn}</div>'
    return [nbformat.from_dict({**output, "data": rest}), *figures]


@dataclass(frozen=True)
class _Widgets:
    """The states of a notebook's widgets, and the Plotly figures met so far."""

    states: Mapping[str, Mapping[str, Any]]
    figures: list[NotebookNode]

    def html(self, model: str, depth: int) -> str:
        if depth > _DEEPEST:
            raise ValueError(model)
        widget = self.states[model.removeprefix(_REFERENCE)]
        state, name = widget["state"], widget["model_name"].removesuffix("Model")
        if name in ("Box", "HBox", "VBox", "GridBox", "Tab", "Accordion", "Stack"):
            children = [self.html(child, depth + 1) for child in state["children"]]
            if name in ("Tab", "Accordion"):
                titles = state.get("titles") or [
                    state.get("_titles", {}).get(str(i), "") for i in range(len(children))
                ]
                pairs = zip(titles, children, strict=True)
                children = [f'<div class="title">{_text(title)}</div>{child}' for title, child in pairs]
            return f'<div class="{"row" if name in ("Box", "HBox") else "column"}">{"".join(children)}</div>'
        if name == "Output":
            return "".join(self._output(output, depth + 1) for output in state["outputs"])
        if name == "Image":
            return f'<img alt="" src="data:image/{_text(state["format"])};base64,{_buffer(widget, "value")}">'
        control = _CONTROLS[name](state)
        return control if name in ("Button", "ToggleButton") else _labelled(state, control)

    def _output(self, output: Mapping[str, Any], depth: int) -> str:
        if output["output_type"] == "stream":
            return f"<pre>{_text(''.join(output['text']))}</pre>"
        if output["output_type"] == "error":
            return f"<pre>{_text(output['ename'])}: {_text(output['evalue'])}</pre>"
        data = output["data"]
        if PLOTLY in data:
            self.figures.append(nbformat.from_dict(dict(output)))
            return ""
        if VIEW in data:
            return self.html(data[VIEW]["model_id"], depth)
        if "text/html" in data:
            return "".join(data["text/html"])
        for kind in ("image/png", "image/jpeg"):
            if kind in data:
                return f'<img alt="" src="data:{kind};base64,{_text(data[kind])}">'
        return f"<pre>{_text(''.join(data.get('text/plain', '')))}</pre>"


def _labelled(state: Mapping[str, Any], control: str) -> str:
    description = state.get("description", "")
    return f"<label>{_text(description)} {control}</label>" if description else control


def _buffer(widget: Mapping[str, Any], path: str) -> str:
    return _text(next(b["data"] for b in widget["buffers"] if b["path"] == [path]))


def _text(value: object) -> str:
    return html.escape(str(value))


def _input(kind: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda state: f'<input type="{kind}" value="{_text(state["value"] or "")}" disabled>'


def _slider(state: Mapping[str, Any]) -> str:
    value = state["value"]
    if isinstance(value, (list, tuple)):
        return f"<span>{_text(' – '.join(map(str, value)))}</span>"
    ends = f'min="{_text(state["min"])}" max="{_text(state["max"])}" step="any"'
    return f'<input type="range" {ends} value="{_text(value)}" disabled> <span>{_text(value)}</span>'


def _chosen(state: Mapping[str, Any]) -> str:
    index, labels = state["index"], state["_options_labels"]
    several = index if isinstance(index, (list, tuple)) else [] if index is None else [index]
    return f"<b>{_text(', '.join(labels[i] for i in several)) or '–'}</b>"


def _progress(state: Mapping[str, Any]) -> str:
    least = float(state["min"])
    return (
        f'<progress max="{float(state["max"]) - least:g}" '
        f'value="{float(state["value"]) - least:g}"></progress>'
    )


def _checkbox(state: Mapping[str, Any]) -> str:
    return f'<input type="checkbox" {"checked" if state["value"] else ""} disabled>'


_CONTROLS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "HTML": lambda state: str(state["value"]),
    "HTMLMath": lambda state: str(state["value"]),
    "Label": lambda state: f"<span>{_text(state['value'])}</span>",
    "Valid": lambda state: f"<span>{'✓' if state['value'] else '✗'}</span>",
    "Textarea": lambda state: f"<pre>{_text(state['value'])}</pre>",
    "Button": lambda state: f"<button disabled>{_text(state['description'])}</button>",
    "ToggleButton": lambda state: f"<button disabled>{_text(state['description'])}</button>",
    "Checkbox": _checkbox,
    **dict.fromkeys(
        ("Text", "Combobox", "IntText", "FloatText", "BoundedIntText", "BoundedFloatText"), _input("text")
    ),
    **dict.fromkeys(
        ("IntSlider", "FloatSlider", "FloatLogSlider", "IntRangeSlider", "FloatRangeSlider"), _slider
    ),
    **dict.fromkeys(("IntProgress", "FloatProgress"), _progress),
    **dict.fromkeys(
        ("Dropdown", "Select", "RadioButtons", "ToggleButtons", "SelectMultiple", "SelectionSlider"), _chosen
    ),
}
