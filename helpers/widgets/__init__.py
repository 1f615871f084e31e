"""Sliders that compare kernels, show what a compiler makes of them, and lay blocks over a matrix.

Each function returns something to show. Where widgets work (JupyterLab, VS Code) that is sliders over a
FigureWidget; elsewhere (Colab, pages, an old plotly or ipywidgets) it is a plain Plotly figure with its own
sliders over the same data. Both are put out together, so that a saved page keeps the plain one.

`space` says what sliders move over; `square` and `softmax` are the lessons' spaces with their kernels, `own`
makes one of any function with launch parameters, and `compiled` says what a compiler made of those. `measure`
checks and times a point; `compile_only` does what can be done of it without a GPU, and `residence` says how a
launch lies on one; `table` has the rows, recorded or measured; `counting` runs Nsight Compute on them, and
`explain` puts a row, and the difference between two kernels, into words. `explorer` is `explore`, with
`figure` and, without widgets, `plain`; `explored` is what it returns, to ask for the best point and to save;
`grid` is `explore_grid`; `ptx` is `explore_ptx`, with `panes` and `diffs`, and `constants` of a CUDA text.
`controls` and `shown` are what the three share; `live_figure.js` is the browser's side of their figures.
"""

from helpers.widgets.explorer import explore
from helpers.widgets.grid import explore_grid
from helpers.widgets.own import explorable
from helpers.widgets.ptx import explore_ptx
from helpers.widgets.shown import PLOTLY, WIDGET, frontend

__all__ = ["PLOTLY", "WIDGET", "explorable", "explore", "explore_grid", "explore_ptx", "frontend"]
