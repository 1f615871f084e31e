"""workbook.batch.pages: what becomes of a notebook's cells on its page."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from small_checkout import code

from workbook.batch import notebook_runs, pages


def page_of(folder: Path, *cells: nbformat.NotebookNode) -> str:
    """The page of a notebook that was executed, as text."""
    run = notebook_runs.NotebookRun("01_x", str(folder / "01_x.ipynb"), "Title", "ok", {})
    pages.write_page(nbformat.v4.new_notebook(cells=list(cells)), run, folder / "01_x.html", {})
    return (folder / "01_x.html").read_text()


def test_a_cell_tagged_hide_input_is_a_closed_fold(tmp_path):
    printed = nbformat.v4.new_output("stream", text="what it printed")
    folded = code("plumbing = 1", "folded", "hide-input", outputs=(printed,))
    page = page_of(tmp_path, code("shown = 1", "plain"), folded, code("also_shown = 1", "last", "other"))
    before, _, rest = page.partition("<details")
    inside, _, after = rest.partition("</details>")
    assert "plumbing" in inside and "Show the code" in inside and " open" not in inside.split(">")[0]
    assert ">shown" in before and "also_shown" in after and "what it printed" in after
    assert page.count("<details") == 1


def test_cuda_inside_python_is_highlighted_as_cuda(tmp_path):
    source = 'CUDA = r"""\n__global__ void f(float* x) {\n    x[threadIdx.x] = 1;  // mine\n}\n"""\nn = 1 < 2'
    bash = code("%%bash\necho one", "shell")
    page = page_of(tmp_path, code(source, "kernel"), bash, code("", "empty"))
    assert re.search(r'<span class="kr?">__global__</span>', page)
    assert '<span class="nb">threadIdx</span>' in page and '<span class="c1">// mine' in page
    assert '<span class="o">&lt;</span>' in page and '<span class="nb">echo</span>' in page


def test_pages_do_not_influence_each_other(tmp_path):
    """They come from one exporter."""
    figure = nbformat.v4.new_output("display_data", data={pages.PLOTLY: {"data": [], "layout": {}}})
    plain = page_of(tmp_path, code("alone = 1", "only"))
    with_figure = page_of(tmp_path, code("figure = 1", "figure", outputs=(figure,)), code("%%bash\nls", "sh"))
    assert "Plotly.newPlot" in with_figure and "alone" not in with_figure
    assert page_of(tmp_path, code("alone = 1", "only")) == plain and "plotly.min.js" not in plain
