"""Write the HTML page of an executed notebook, which needs no network.

It is nbconvert's JupyterLab page without its scripts from a CDN. Plotly figures are drawn by one copy of
plotly.min.js, which the pages of a batch share.
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

from helpers.widgets.shown import page_script
from workbook import outputs
from workbook.batch.notebook_runs import NotebookRun, in_words
from workbook.folds import fold_title
from workbook.page import BLOCKS, DARK_FIGURES, escaped
from workbook.static_widgets import PLOTLY, STYLE, VIEW, states_of, static_outputs

if TYPE_CHECKING:
    from nbconvert import HTMLExporter

# nbconvert's template without what it would load from the network: RequireJS, MathJax, Mermaid, widgets.
_PAGE = """\
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js_requirejs -%}
{%- if resources.plotly -%}<script src="assets/plotly.min.js"></script>{%- endif -%}
{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block notebook_css -%}
{{ super() }}
{%- set dark = '<style media="(prefers-color-scheme: dark)"' -%}
{{ resources.include_css("static/theme-dark.css") | replace("<style", dark) }}
{%- endblock -%}
{%- block html_head_css -%}
<style>
:root { color-scheme: light dark;
  --soft: light-dark(#57606a, #9198a1); --line: light-dark(#d0d7de, #3d444d); }
body.jp-Notebook { max-width: 1040px; margin: 0 auto; padding: 0 16px 64px; }
.workbook-top { font: 14px/1.5 system-ui, sans-serif; display: flex; flex-wrap: wrap; gap: 4px 20px;
  padding: 10px 0; border-bottom: 1px solid var(--line); margin-bottom: 12px; color: var(--soft); }
.workbook-top a { color: light-dark(#0b62b8, #58a6ff); }
.workbook-top .failed { color: light-dark(#b3261e, #ff7b72); font-weight: 600; }
.jp-RenderedMarkdown .highlight { margin-bottom: 1em; }
.jp-Cell-inputArea .highlight pre { white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 760px) {  /* nbconvert makes rows of a table of them, which can't scroll */
  body .jp-OutputArea-child, body .jp-OutputArea-child :is(.jp-OutputPrompt, .jp-OutputArea-output) {
    display: block; width: auto; margin-left: 0; } }
.kw-code { position: relative; }
.kw-copy { position: absolute; top: 2px; right: 2px; padding: 1px 8px; font: 12px/1.6 system-ui, sans-serif;
  color: var(--soft); background: var(--jp-cell-editor-background); border: 1px solid var(--line);
  border-radius: 4px; cursor: pointer; }
.kw-copy:is(:hover, :focus-visible) { color: var(--jp-content-font-color0); }
.kw-fades { mask-image: linear-gradient(to right, #000 calc(100% - 40px), transparent); }
@media print { .kw-copy { display: none; } .kw-fades { mask-image: none; } }
.highlight .kt, .highlight .nb { color: var(--jp-mirror-editor-builtin-color); }
.highlight .nf { color: var(--jp-mirror-editor-def-color); }
/* more */
.workbook-folded > summary { cursor: pointer; color: var(--soft); font: 13px/1.8 system-ui, sans-serif;
  padding-left: 76px; }
</style>
{%- endblock -%}
{%- block body_footer -%}
{%- if resources.explorer -%}<script>{{ resources.explorer }}</script>{%- endif -%}
<script>
{{ resources.blocks }}
for (const pre of document.querySelectorAll(".jp-Cell-inputArea .highlight pre")) {
  blocks.addCopyButton(pre.parentElement, pre.textContent.replace(/\\n$/, ""));
}
blocks.watchEdges(".jp-RenderedText, .jp-RenderedHTMLCommon, .jp-RenderedHTMLCommon :is(pre, [role=region])");
</script>
{{ super() }}
{%- endblock -%}
{%- block body_header -%}
{{ super() }}
<nav class="workbook-top">{{ resources.workbook_top }}</nav>
{%- endblock -%}
{%- block input_group -%}
{%- if cell | fold_title -%}
<details class="workbook-folded"><summary>Show the code: {{ cell | fold_title }}</summary>
{{ super() }}</details>
{%- else -%}
{{ super() }}
{%- endif -%}
{%- endblock -%}
"""
# Browsers don't open a page of many tens of MB, so these limits apply, in characters: to one text, of which
# the end is always shown; to one figure, image or table; and to all outputs of a page together, after which
# only small ones are shown.
_MOST_TEXT, _TAIL, _MOST_DATA = 500_000, 20_000, 20_000_000
_MOST_PAGE, _SMALL = 50_000_000, 20_000
_LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)\s#]+)((?:#[^)\s]*)?)(?=[)\s])")
# Such as the Colab badge: an offline page shows its alternative text.
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
        pages: Maps (folder, file name) of every notebook of the batch to the name of its page, so that links
            between notebooks become links between pages.
    """
    notebook = copy.deepcopy(notebook)  # cheap, because strings are shared
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
        if cell.cell_type == "code":
            cell.outputs = [one for output in cell.outputs for one in static_outputs(output, widgets)]
        for output in cell.get("outputs", []):
            length = _shorten(output, length)
            if _draw_offline(output, f"figure-{figures + 1}"):
                figures += 1
    resources = {
        "metadata": {"name": run.title},
        "plotly": bool(figures),
        "explorer": page_script() if _has_sliders(notebook) else "",
        "blocks": BLOCKS.read_text("utf-8"),
        "workbook_top": _top(run),
    }
    body, _ = _exporter().from_notebook_node(notebook, resources)
    if figures:
        copy_plotly(page.parent / "assets")
    outputs.replace(page, body)


def _has_sliders(notebook: NotebookNode) -> bool:
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return any("kx-packed" in str(output.get("data", {}).get("text/html", "")) for output in outputs)


@cache
def _exporter() -> HTMLExporter:
    """nbconvert's exporter, one for all pages, because it takes long to compile its templates."""
    from jinja2 import DictLoader
    from nbconvert import HTMLExporter

    page = _PAGE.replace("/* more */", f"{DARK_FIGURES}\n{STYLE}")
    return HTMLExporter(
        template_file="workbook.html.j2",
        extra_loaders=[DictLoader({"workbook.html.j2": page})],
        filters={"highlight_code": _highlight, "fold_title": _fold_title},
    )


def _fold_title(cell: NotebookNode) -> str:
    return escaped(fold_title(cell)) if cell.cell_type == "code" else ""


def _highlight(source: str, language: str | None = None, metadata: Mapping | None = None) -> str:
    """Highlight a code cell, with CUDA in its strings as CUDA; a `%%magic` cell as nbconvert does."""
    from nbconvert.filters.highlight import Highlight2HTML
    from pygments import highlight
    from pygments.formatters import HtmlFormatter

    from helpers.cuda.highlight import InPython

    if language or (metadata or {}).get("magics_language"):
        return Highlight2HTML(pygments_lexer="ipython3")(source, language, metadata)
    return highlight(source or " ", InPython(), HtmlFormatter(cssclass=" highlight hl-ipython3"))


def _shorten(output: NotebookNode, before: int) -> int:
    """Cut an output that would make the page too large; the executed notebook keeps all of it.

    Args:
        output: The output, which is changed.
        before: How many characters the outputs before it have.

    Returns:
        How many characters the outputs have with this one.
    """
    if "text" in output:
        output.text = _cut(output.text, before)
        before += len(output.text)
    if "traceback" in output:
        output.traceback = [_cut(part, before) for part in output.traceback]
    data = output.get("data", {})
    if isinstance(data.get("text/plain"), str):
        data["text/plain"] = _cut(data["text/plain"], before)
    longest = 0
    for kind, value in list(data.items()):
        size = len(value if isinstance(value, str) else json.dumps(value))
        if size > _MOST_DATA or (size > _SMALL and before + size > _MOST_PAGE):
            del data[kind]
            note = (
                f"[{size / 1e6:.2g} MB of {kind} are left out of this page; the executed notebook has them.]"
            )
            data["text/plain"], size = note, len(note)
        longest = max(longest, size)  # the page shows only one of them
    return before + longest


def _cut(text: str, before: int) -> str:
    if len(text) <= (_MOST_TEXT if before < _MOST_PAGE else _SMALL):
        return text
    if before >= _MOST_PAGE:
        return (
            f"[{len(text) / 1e6:.2g} MB of text are left out of this page; the executed notebook has them.]"
        )
    n_cut = len(text) - _MOST_TEXT
    head, tail = text[: _MOST_TEXT - _TAIL], text[-_TAIL:]
    return (
        f"{head}\n[… {n_cut:,} characters are left out of this page; the executed notebook has them "
        f"…]\n{tail}"
    )


def _draw_offline(output: NotebookNode, name: str) -> bool:
    """Have the page's own plotly.min.js draw an output, if it is a Plotly figure; return whether it is."""
    data = output.get("data", {})
    if PLOTLY in data or "text/html" in data:
        data.pop(VIEW, None)  # a widget needs its kernel, its other representations don't
    if PLOTLY in data:
        figure = dict(data[PLOTLY])
        figure["config"] = {"responsive": True, "displaylogo": False, **figure.get("config", {})}
        figure["config"].pop("plotlyServerURL", None)
        height = figure.get("layout", {}).get("height") or 450
        text = json.dumps(figure).replace("</", "<\\/")  # a title may contain </script>
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
    """Translate a relative link in a notebook in `folder` for a page in `out`."""
    target = folder / unquote(link)
    target = target.parent.resolve() / target.name
    if (target.parent, target.name) in pages:
        return quote(pages[target.parent, target.name])
    return quote(Path(os.path.relpath(target, out)).as_posix()) if target.exists() else link


def copy_plotly(assets: Path) -> None:
    """Copy plotly.min.js, which the pages of a batch share, into a folder unless it is there already."""
    import plotly

    source = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    target = assets / "plotly.min.js"
    assets.mkdir(exist_ok=True)
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        outputs.copy(source, target)


def _top(run: NotebookRun) -> str:
    """The line above a page: links to the index and the notebook, the origin of its figures, its failure."""
    facts = " · ".join(filter(None, [run.date[:10], f"{run.seconds:.1f} s", run.where]))
    parts = [
        '<a href="index.html">All notebooks</a>',
        f'<a href="{quote(run.name)}.ipynb" download>This notebook, executed</a>',
        f"<span>{escaped(facts)}</span>",
    ]
    if run.parameters:
        parts.append(f"<span>{escaped(in_words(run.parameters))}</span>")
    if run.failure:
        anchor = f"#cell-id={quote(run.failure.cell)}" if run.failure.cell else "#"
        parts.append(f'<a class="failed" href="{escaped(anchor)}">{escaped(run.failure)}</a>')
    return "".join(parts)
