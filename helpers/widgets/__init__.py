"""Sliders that compare kernels, show what a compiler makes of them, and lay blocks over a matrix.

Each function returns something to show. Where widgets work (JupyterLab, VS Code) that is sliders over a FigureWidget;
elsewhere (Colab, pages, an old plotly or ipywidgets) it is a plain Plotly figure with its own sliders over the same
data. Both are put out together, so that a saved page keeps the plain one.
"""

from helpers.widgets.explorer import PLOTLY, WIDGET, explore, explore_grid, explore_ptx, frontend

__all__ = ["PLOTLY", "WIDGET", "explore", "explore_grid", "explore_ptx", "frontend"]
