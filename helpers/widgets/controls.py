"""The controls that the sliders of `helpers.widgets` share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helpers.widgets.space import axis_title, label, word


def live_figure(fig: Any) -> Any:
    """A FigureWidget of a fixed width: it cannot know that of its place when it is first drawn.

    It is what JupyterLab has for an output in a window of 1,000 pixels.
    """
    widget = _live_figure_class()(fig)
    widget.layout.width = 820
    widget._config = {**(widget._config or {}), "displayModeBar": False}
    return widget


@functools.cache
def _live_figure_class() -> type:
    """A FigureWidget whose browser side may load for as long as it takes; `live_figure.js` says why."""
    import plotly.graph_objects as go
    import traitlets

    told_by = [name for name in go.FigureWidget.class_trait_names() if name.startswith("_py2js_")]

    class LiveFigure(go.FigureWidget):
        _esm = Path(__file__).with_name("live_figure.js").read_text(encoding="utf-8")
        _plotly_module = traitlets.Unicode(str(go.FigureWidget._esm)).tag(sync=True)
        _told_by = traitlets.List(traitlets.Unicode(), told_by).tag(sync=True)

    return LiveFigure


def labelled_slider(axis: str, values: Sequence[Any], value: Any, *, continuous: bool = True) -> Any:
    """A slider over given values, with its name and unit beside it."""
    import ipywidgets as w

    options = [(label(v), v) for v in values]
    # ipywidgets 8 renamed it.
    tooltip = "tooltip" if hasattr(w.DOMWidget, "tooltip") else "description_tooltip"
    return w.SelectionSlider(
        options=options, value=value, description=word(axis), continuous_update=continuous,
        style={"description_width": "11em"}, layout={"width": "100%"},
        **{tooltip: axis_title(axis)},
    )  # fmt: skip


def grid_of(sliders: Sequence[Any]) -> Any:
    """Sliders two beside each other where there is room, one under another where there is not."""
    import ipywidgets as w

    columns = "repeat(auto-fit, minmax(min(100%, 26em), 1fr))"
    layout = {"grid_template_columns": columns, "grid_gap": "0 1.5em", "max_width": "72em"}
    return w.GridBox(list(sliders), layout=layout)
