"""Sliders that compare kernels, show what a compiler makes of them, and lay blocks over a matrix.

Each function returns something to display: an anywidget that a Python kernel answers to (JupyterLab,
Notebook, VS Code, Colab), or, in batch runs and without anywidget, HTML with all recorded positions. Both are
drawn by `explorer.js` from one JSON object.

Three steps lead to that object. *Space*: `space` defines which positions exist; `square`, `softmax`,
`product` and `attention` are the lessons' spaces with their kernels, and `own` makes one of any function with
launch parameters. *Table*: `table` has the rows, recorded or new; `measure` checks and times a position,
`peak` is the ceiling of kernels that arithmetic limits, `compile_only` does what is possible without a GPU,
`compiled` and `residence` say what the compiler made and how it fits on a GPU, and `counting` runs Nsight
Compute. *View*: `view` turns tables into the JSON object, with the sentences of `explain`.

`explorer` is `explore`, and `explored` is what it returns, to ask for the best position and to save; `grid`
is `explore_grid`; `ptx` is `explore_ptx`, with `constants` of a CUDA text. `live` is the anywidget, and
`shown` has the forms for notebooks and pages.
"""

from helpers.widgets.explorer import explore
from helpers.widgets.grid import explore_grid
from helpers.widgets.own import explorable
from helpers.widgets.ptx import explore_ptx
from helpers.widgets.shown import WIDGET, frontend

__all__ = ["WIDGET", "explorable", "explore", "explore_grid", "explore_ptx", "frontend"]
