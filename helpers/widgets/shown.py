"""What the functions of `helpers.widgets` return, and which form a frontend gets."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers import device

if TYPE_CHECKING:
    import ipywidgets

WIDGET = "application/vnd.jupyter.widget-view+json"
PLOTLY = "application/vnd.plotly.v1+json"


def frontend() -> str:
    """ "widgets" where a FigureWidget can be expected to work, else "plain".

    Colab shows FigureWidgets unreliably, and plotly before 6 or ipywidgets before 8 need extensions of their
    own. WORKBOOK_WIDGETS=plain or =widgets decides instead; batch runs set plain, since nobody can move a
    widget there.
    """
    wanted = os.environ.get("WORKBOOK_WIDGETS")
    if wanted in ("plain", "widgets"):
        return wanted
    if "google.colab" in sys.modules:
        return "plain"
    versions = [device.package_version(package) for package in ("plotly", "ipywidgets", "anywidget")]
    if None in versions or int(versions[0].split(".")[0]) < 6 or int(versions[1].split(".")[0]) < 8:
        return "plain"
    try:
        import plotly.basewidget  # noqa: F401, what go.FigureWidget needs; a figure made to try would send its 5 MB
    except Exception:  # of whatever kind: then it does not work here
        return "plain"
    return "widgets"


@dataclass(frozen=True, repr=False, eq=False)
class Shown:
    """What a notebook shows: widgets for a live kernel, and a plain figure or HTML for everything else.

    Attributes:
        text: for a terminal.
        plain: a Plotly figure, or HTML text.
        explorer: the live form, with its controls as attributes and all of it in `box`; None where only the
            plain form is.
    """

    text: str
    plain: Any
    explorer: Any = None

    @property
    def widget(self) -> ipywidgets.Widget | None:
        """The live form as one widget."""
        return None if self.explorer is None else self.explorer.box

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": self.text}
        if isinstance(self.plain, str):
            bundle["text/html"] = self.plain
        elif "google.colab" in sys.modules:
            # Colab knows Plotly only as HTML.
            bundle["text/html"] = self.plain.to_html(include_plotlyjs="cdn", full_html=False)
        else:
            bundle[PLOTLY] = json.loads(self.plain.to_json())
        if self.widget is not None:
            bundle[WIDGET] = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return bundle
