"""The page of an executed notebook, which needs no network.

nbconvert's JupyterLab page with its CDN scripts left out; Plotly figures are drawn by one copy of plotly.min.js that
the pages of a batch share.
"""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import nbformat
from nbformat import NotebookNode

from helpers.workshop import outputs
from helpers.workshop.batch.results import NotebookRun, in_words
from helpers.workshop.batch.stills import STYLE, VIEW, states_of, still
from helpers.workshop.page import escaped

if TYPE_CHECKING:
    from nbconvert import HTMLExporter

PLOTLY = "application/vnd.plotly.v1+json"

# nbconvert's JupyterLab page without what it would fetch from the network (RequireJS, MathJax, Mermaid, widgets).
_PAGE = """\
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js_requirejs -%}
{%- if resources.plotly -%}<script src="assets/plotly.min.js"></script>{%- endif -%}
{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_css -%}
<style>
body.jp-Notebook { max-width: 1040px; margin: 0 auto; padding: 0 16px 64px; }
.workbook-top { font: 14px/1.5 system-ui, sans-serif; display: flex; flex-wrap: wrap; gap: 4px 20px; padding: 10px 0;
  border-bottom: 1px solid #d0d7de; margin-bottom: 12px; color: #57606a; }
.workbook-top a { color: #0b62b8; }
.workbook-top .failed { color: #b3261e; font-weight: 600; }
.highlight .kt, .highlight .nb { color: var(--jp-mirror-editor-builtin-color); }
.highlight .nf { color: var(--jp-mirror-editor-def-color); }
/* stills */
.workbook-folded > summary { cursor: pointer; color: #57606a; font: 13px/1.8 system-ui, sans-serif; padding-left: 76px; }
</style>
{%- endblock -%}
{%- block body_header -%}
{{ super() }}
<nav class="workbook-top">{{ resources.workbook_top }}</nav>
{%- endblock -%}
{%- block input_group -%}
{%- if 'hide-input' in cell.metadata.get('tags', []) -%}
<details class="workbook-folded"><summary>Show the code</summary>{{ super() }}</details>
{%- else -%}
{{ super() }}
{%- endif -%}
{%- endblock -%}
"""
# A page above some tens of MB does not open in a browser: characters of one text, of one figure, image or table, and of
# all outputs of a page, after which only small ones are shown.
_MOST_TEXT, _TAIL, _MOST_DATA = 500_000, 20_000, 20_000_000
_MOST_PAGE, _SMALL = 50_000_000, 20_000
_LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)\s#]+)((?:#[^)\s]*)?)(?=[)\s])")
# The Colab badge: a page offline keeps its words.
_REMOTE_IMAGE = re.compile(r"!\[([^\]]*)\]\(https?://[^)]*\)")
_CDN_PLOTLY = re.compile(r'<script[^>]*\ssrc="https?://[^"]*plotly[^"]*\.js"[^>]*>\s*</script>')


def write_page(
    notebook: NotebookNode, run: NotebookRun, page: Path, pages: Mapping[tuple[Path, str], str]
) -> None:
    """Write the page of one executed notebook.

    Args:
        notebook: The executed notebook; it is not changed.
        run: What happened to it.
        page: The file to write.
        pages: (folder, file name) of every notebook of the batch to the name of its page, for links between them.
    """
    notebook = copy.deepcopy(notebook)  # texts are shared: it costs little, however much was put out
    widgets = states_of(notebook)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["title"] = run.title
    folder = Path(run.source).parent
    figures, length = 0, 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _REMOTE_IMAGE.sub(r"\1", cell.source)
            cell.source = _LINK.sub(
                lambda m: m[1] + _target(m[2], folder, page.parent, pages) + m[3], cell.source
            )
        for output in cell.get("outputs", []):
            length = _shorten(output, length)
            _stand_still(output, widgets)
            if _draw_offline(output, f"figure-{figures + 1}"):
                figures += 1
    resources = {
        "metadata": {"name": run.title},
        "plotly": bool(figures),
        "workbook_top": _top(run),
    }
    body, _ = _exporter().from_notebook_node(notebook, resources)
    if figures:
        copy_plotly(page.parent / "assets")
    outputs.replace(page, body)


@cache
def _exporter() -> HTMLExporter:
    """nbconvert's exporter; one for all pages, since compiling its templates takes longer than a small page."""
    from jinja2 import DictLoader
    from nbconvert import HTMLExporter

    return HTMLExporter(
        template_file="workbook.html.j2",
        extra_loaders=[DictLoader({"workbook.html.j2": _PAGE.replace("/* stills */", STYLE)})],
        filters={"highlight_code": _highlight},
    )


def _highlight(source: str, language: str | None = None, metadata: Mapping | None = None) -> str:
    """A code cell in colours; nbconvert's own way but for CUDA in strings, and for cells in another language."""
    from nbconvert.filters.highlight import Highlight2HTML
    from pygments import highlight
    from pygments.formatters import HtmlFormatter

    from helpers.cuda.highlight import InPython

    if language or (metadata or {}).get("magics_language"):
        return Highlight2HTML(pygments_lexer="ipython3")(source, language, metadata)
    return highlight(source or " ", InPython(), HtmlFormatter(cssclass=" highlight hl-ipython3"))


def _shorten(output: NotebookNode, before: int) -> int:
    """Cut what would make a page that no browser opens; the executed notebook has it whole.

    Args:
        output: It is changed.
        before: Characters of the outputs before it.

    Returns:
        The same with this one.
    """
    if "text" in output:
        output.text = _cut(output.text, before)
        before += len(output.text)
    if "traceback" in output:
        output.traceback = [_cut(part, before) for part in output.traceback]
    data = output.get("data", {})
    if isinstance(data.get("text/plain"), str):
        data["text/plain"] = _cut(data["text/plain"], before)
    shown = 0
    for kind, value in list(data.items()):
        size = len(value if isinstance(value, str) else json.dumps(value))
        if size > _MOST_DATA or (size > _SMALL and before + size > _MOST_PAGE):
            del data[kind]
            says = (
                f"[{size / 1e6:.2g} MB of {kind} are left out of this page; the executed notebook has them.]"
            )
            data["text/plain"], size = says, len(says)
        shown = max(shown, size)  # one of the kinds is shown
    return before + shown


def _stand_still(output: NotebookNode, widgets: Mapping[str, Mapping]) -> None:
    """Show a widget as it stood at the end, or else as its text: on a page it has no kernel."""
    data = output.get("data", {})
    if VIEW in data and PLOTLY not in data and "text/html" not in data:
        drawn = still(data.pop(VIEW).get("model_id", ""), widgets)
        if drawn is not None:
            data["text/html"] = drawn


def _cut(text: str, before: int) -> str:
    if len(text) <= (_MOST_TEXT if before < _MOST_PAGE else _SMALL):
        return text
    if before >= _MOST_PAGE:
        return (
            f"[{len(text) / 1e6:.2g} MB of text are left out of this page; the executed notebook has them.]"
        )
    left_out = len(text) - _MOST_TEXT
    head, tail = text[: _MOST_TEXT - _TAIL], text[-_TAIL:]
    return f"{head}\n[… {left_out:,} characters are left out of this page; the executed notebook has them …]\n{tail}"


def _draw_offline(output: NotebookNode, name: str) -> bool:
    """Turn a Plotly output into a drawing by the page's own plotly.min.js; whether it was one."""
    data = output.get("data", {})
    if PLOTLY in data or "text/html" in data:
        data.pop(VIEW, None)  # a widget needs its kernel; what was put out beside it does not
    if PLOTLY in data:
        figure = dict(data[PLOTLY])
        figure["config"] = {"responsive": True, "displaylogo": False, **figure.get("config", {})}
        figure["config"].pop("plotlyServerURL", None)
        height = figure.get("layout", {}).get("height") or 450
        text = json.dumps(figure).replace("</", "<\\/")  # a title may hold </script>
        output.data = nbformat.from_dict(
            {
                "text/html": f'<div id="{name}" style="height:{height}px"></div>'
                f'<script>Plotly.newPlot("{name}", {text});</script>'
            }
        )
        return True
    markup = data.get("text/html")
    if isinstance(markup, str) and _CDN_PLOTLY.search(markup):
        data["text/html"] = _CDN_PLOTLY.sub("", markup)
        return True
    return False


def _target(link: str, folder: Path, out: Path, pages: Mapping[tuple[Path, str], str]) -> str:
    """Where a relative link of a notebook in `folder` leads from a page in `out`."""
    aim = folder / unquote(link)
    aim = aim.parent.resolve() / aim.name
    if (aim.parent, aim.name) in pages:
        return quote(pages[aim.parent, aim.name])
    return quote(Path(os.path.relpath(aim, out)).as_posix()) if aim.exists() else link


def copy_plotly(assets: Path) -> None:
    """Put the copy of plotly.min.js that a batch's pages share into a folder, where it is not there already."""
    import plotly

    source = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    target = assets / "plotly.min.js"
    assets.mkdir(exist_ok=True)
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        outputs.copy(source, target)


def _top(run: NotebookRun) -> str:
    """The line above a page: back to the index, the notebook's file, where its figures come from, what failed."""
    parts = [
        '<a href="index.html">All notebooks</a>',
        f'<a href="{quote(run.name)}.ipynb" download>This notebook, executed</a>',
        f"<span>{escaped(run.date[:10])} · {run.seconds:.1f} s · {escaped(run.where)}</span>",
    ]
    if run.parameters:
        parts.append(f"<span>{escaped(in_words(run.parameters))}</span>")
    if run.failure:
        anchor = f"#cell-id={quote(run.failure.cell)}" if run.failure.cell else "#"
        parts.append(f'<a class="failed" href="{escaped(anchor)}">{escaped(run.failure)}</a>')
    return "".join(parts)
