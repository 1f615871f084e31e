"""An executed notebook, prepared for MyST-NB.

Links lead to the book's pages or to the repository, each output has one form, and code that a cell printed
is colored.
"""

from __future__ import annotations

import copy
import html
import posixpath
import re
from typing import Any
from urllib.parse import quote, unquote

import nbformat
from nbformat import NotebookNode

from workbook.book.course import Course, Entry, tags
from workbook.book.lexers import printed
from workbook.book.plotly_html import figure_html
from workbook.static_widgets import PLOTLY, states_of, static_outputs

_PROVENANCE = "application/vnd.kernel-workbook.provenance+json"
_IMAGES = ("image/svg+xml", "image/png", "image/jpeg")
_BADGE = re.compile(r"^\[!\[[^\]]*\]\(https?://[^)]*\)\]\([^)]*\)\s*\n", re.MULTILINE)
_REMOTE_IMAGE = re.compile(r"!\[([^\]]*)\]\(https?://[^)]*\)")
_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)  # f[grid](x) in code is not a link
_LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\((?!\w+:|#|/)([^)\s#]+)(#[^)\s]*)?\)")
_HEADING = re.compile(r"^# .+$", re.MULTILINE)
# Longer text is cut; the executed notebook has all of it.
_MOST_TEXT = 60_000
# Setup is the same in every lesson, so it is folded.
_FOLDED = frozenset({"setup", "hide-input"})
_PREDICTS = re.compile(r"^predict\.(ask|reveal|review)\(", re.MULTILINE)
_FOLDS = {
    "ask": "a question to predict",
    "reveal": "the answer to a prediction",
    "review": "your predictions",
}


def prepared(entry: Entry, course: Course) -> NotebookNode:
    """A notebook for MyST-NB, with a line of facts under its title.

    Each code cell's metadata `kw_cells` names the cell and the text cells below it, for links to them.
    """
    notebook = copy.deepcopy(entry.notebook)
    widgets = states_of(notebook)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python", "pygments_lexer": "ipython3"},
        }
    )
    facts = _facts(entry, course)
    names: list[str] = []
    for i, cell in enumerate(notebook.cells):
        found = set(tags(cell))
        fold = _fold(cell.source, found) if cell.cell_type == "code" else ""
        shown_tags = found | ({"hide-input"} if fold or found & _FOLDED else set())
        cell.metadata = nbformat.from_dict({"tags": sorted(shown_tags)})
        if fold:
            prompts = {
                f"code_prompt_{verb}": f"{verb.capitalize()} the code: {fold}" for verb in ("show", "hide")
            }
            cell.metadata["mystnb"] = prompts
        if cell.cell_type == "code":
            names = cell.metadata["kw_cells"] = []
            cell.outputs = [
                converted
                for output in cell.outputs
                for one in static_outputs(output, widgets)
                if (converted := _output(one)) is not None
            ]
        else:
            cell.source = _REMOTE_IMAGE.sub(r"\1", _BADGE.sub("", relinked(cell.source, entry.path, course)))
            if i == 0:
                cell.source = _HEADING.sub(lambda match: f"{match[0]}\n\n{facts}\n", cell.source, count=1)
        names.append(cell.get("id", f"cell-{i}"))
    return notebook


def _fold(source: str, tags: set[str]) -> str:
    """What a code cell that the page folds holds; "" if the page shows its code."""
    if "setup" in tags:
        return "the setup, the same in every notebook"
    if match := _PREDICTS.search(source):
        return _FOLDS[match[1]]
    if "hide-input" not in tags:
        return ""
    first = source.split("\n", 1)[0].strip()
    return first.lstrip("# ") if first.startswith("#") else "what makes the output below"


def relinked(text: str, path: str, course: Course) -> str:
    """A document's Markdown, with relative links that work in the book.

    Sphinx resolves links to the book's own pages. A link to any other file leads to the repository; before
    the repository has an address, only the link's words remain.

    Args:
        text: The Markdown.
        path: The document, from the checkout.
        course: What the book shows.
    """

    def link(match: re.Match) -> str:
        words, to, anchor = match[1], match[2], match[3] or ""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(to)))
        linked = course.project.root / target
        if target in course.paths or (linked.is_file() and linked.suffix == ".png"):
            return match[0]
        if target.startswith("..") or not linked.exists() or not course.project.published:
            return words
        kind = "tree" if linked.is_dir() else "blob"
        address = f"https://github.com/{course.project.repository}/{kind}/main/{quote(target)}{anchor}"
        return f"[{words}]({address})"

    parts = _CODE.split(text)
    return "".join(part if i % 2 else _LINK.sub(link, part) for i, part in enumerate(parts))


def _facts(entry: Entry, course: Course) -> str:
    """The line under the title: minutes, the lab or lesson of the same number, Colab, the figures' GPU."""
    parts = [f"<span>{entry.minutes} minutes</span>"] if entry.minutes else []
    lesson = entry.path.startswith("notebooks/")
    if other := (course.labs if lesson else course.lessons).get(entry.stem):
        folder, word = ("labs", "Lab") if lesson else ("notebooks", "Lesson")
        parts.append(f'<a href="../{folder}/{quote(entry.stem)}.html">{word} {html.escape(other.name)}</a>')
    parts.append(f'<a href="../_static/ipynb/{quote(entry.path)}" download>Download the notebook</a>')
    if course.project.published:
        address = html.escape(entry.colab(course.project.repository))
        parts.append(f'<a href="{address}">Open in Colab</a>')
    if gpus := figures_of(entry.notebook):
        parts.append(f"<span>{html.escape(gpus)}</span>")
    return f'```{{raw}} html\n<p class="kw-facts">{"".join(parts)}</p>\n```'


def figures_of(notebook: NotebookNode) -> str:
    """Which GPUs a notebook's figures were recorded or measured on; "" if it shows none."""
    found: dict[str, set[str]] = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if origin := output.get("data", {}).get(_PROVENANCE):
                found.setdefault(origin["mode"], set()).add(origin["gpu"])
    words = {"replayed": "figures recorded on", "live": "figures measured on"}
    return "; ".join(
        f"{words.get(mode, mode)} {', '.join(sorted({g for one in gpus for g in one.split(' and ')}))}"
        for mode, gpus in sorted(found.items())
    )


def _output(output: NotebookNode) -> NotebookNode | None:
    """One output in the form that the page shows; None if the page cannot show it."""
    if output.output_type == "stream":
        if output.name == "stdout" and (colored := printed(output.text)):
            return _html(colored)
        return nbformat.v4.new_output("stream", name=output.name, text=_cut(output.text))
    if output.output_type == "error":
        return output
    data = output.get("data", {})
    if PLOTLY in data:
        return _html(figure_html(data[PLOTLY]))
    if isinstance(data.get("text/html"), str):
        kind = "kw-provenance" if _PROVENANCE in data else "kw-html"
        return _html(f'<div class="{kind}">{data["text/html"]}</div>')
    for image in _IMAGES:
        if image in data:
            return _html(_image(image, data[image], str(data.get("text/plain", ""))))
    if "text/markdown" in data:
        return nbformat.v4.new_output("display_data", data={"text/markdown": data["text/markdown"]})
    if "text/plain" in data:
        if colored := printed(data["text/plain"]):
            return _html(colored)
        return nbformat.v4.new_output("display_data", data={"text/plain": _cut(data["text/plain"])})
    return None


def _html(text: str) -> NotebookNode:
    return nbformat.v4.new_output("display_data", data={"text/html": text})


def _image(kind: str, data: Any, words: str) -> str:
    text = "".join(data) if isinstance(data, list) else data
    alt = html.escape(re.sub(r"^<.*>$", "", words) or "Figure", quote=True)
    if kind == "image/svg+xml":
        return f'<div class="kw-html" role="img" aria-label="{alt}">{text}</div>'
    return f'<img alt="{alt}" src="data:{kind};base64,{text.strip()}">'


def _cut(text: str) -> str:
    if len(text) <= _MOST_TEXT:
        return text
    n_cut = len(text) - _MOST_TEXT
    return f"{text[:_MOST_TEXT]}\n[… {n_cut:,} more characters are in the executed notebook …]\n"
