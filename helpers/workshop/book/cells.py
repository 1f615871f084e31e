"""A notebook made ready for the book: what needs a kernel or a network is replaced, what is printed gets its colours."""

from __future__ import annotations

import copy
import html
import posixpath
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import nbformat
from nbformat import NotebookNode

from helpers.workshop.book.course import Entry, colab, tags
from helpers.workshop.book.figures import PLOTLY, figure_html
from helpers.workshop.book.lexers import printed
from helpers.workshop.project import UNPUBLISHED, Project

_PROVENANCE = "application/vnd.kernel-workbook.provenance+json"
_IMAGES = ("image/svg+xml", "image/png", "image/jpeg")
_BADGE = re.compile(r"^\[!\[[^\]]*\]\(https?://[^)]*\)\]\([^)]*\)\s*\n", re.MULTILINE)
_REMOTE_IMAGE = re.compile(r"!\[([^\]]*)\]\(https?://[^)]*\)")
_LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\((?!\w+:|#|/)([^)\s#]+)(#[^)\s]*)?\)")
_HEADING = re.compile(r"^# .+$", re.MULTILINE)
_TABLE = re.compile(r"<table\b")
# nbconvert's anchors of cells, which the lessons' own pages have too.
_CELL_ANCHOR = "#cell-id="
# A text above this is cut; the executed notebook has it whole.
_MOST_TEXT = 60_000
# Setup and parameters are the same everywhere, and nobody reads them first.
_FOLDED = frozenset({"setup", "hide-input"})


@dataclass(frozen=True)
class Shelf:
    """What a page may link to: the checkout, and the notebooks that have a page."""

    project: Project
    lessons: dict[str, Entry]
    labs: dict[str, Entry]

    @property
    def paths(self) -> Collection[str]:
        """The notebooks in the book, from the checkout."""
        return {entry.path for entry in (*self.lessons.values(), *self.labs.values())}


def prepared(entry: Entry, shelf: Shelf) -> NotebookNode:
    """A notebook for MyST-NB: one kind of output each, links that lead somewhere, a line of facts under the title."""
    notebook = copy.deepcopy(entry.notebook)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python", "pygments_lexer": "ipython3"},
        }
    )
    facts = _facts(entry, shelf)
    for i, cell in enumerate(notebook.cells):
        found = set(tags(cell))
        cell.metadata = nbformat.from_dict(
            {"tags": sorted(found | ({"hide-input"} if found & _FOLDED else set()))}
        )
        if cell.cell_type == "markdown":
            cell.source = _linked(_REMOTE_IMAGE.sub(r"\1", _BADGE.sub("", cell.source)), entry, shelf)
            if i == 0:
                cell.source = _HEADING.sub(lambda match: f"{match[0]}\n\n{facts}\n", cell.source, count=1)
        elif cell.cell_type == "code":
            cell.metadata["kw_cell"] = cell.get("id", f"cell-{i}")
            cell.outputs = [made for output in cell.outputs if (made := _output(output)) is not None]
    return notebook


def anchor(cell: str) -> str:
    """The id that a page gives to a code cell."""
    return f"cell-{cell}"


def target(link: str, fragment: str, entry: Entry, shelf: Shelf) -> str | None:
    """Where a relative link of a notebook leads from its page; None: nowhere that a page can say."""
    folder = posixpath.dirname(entry.path)
    aim = posixpath.normpath(posixpath.join(folder, unquote(link)))
    fragment = fragment.replace(_CELL_ANCHOR, "#cell-")
    if aim in shelf.paths:
        return posixpath.relpath(aim.removesuffix(".ipynb") + ".html", folder) + fragment
    if (
        not (shelf.project.root / aim).exists()
        or aim.startswith("..")
        or shelf.project.repository == UNPUBLISHED
    ):
        return None
    kind = "tree" if (shelf.project.root / aim).is_dir() else "blob"
    return f"https://github.com/{shelf.project.repository}/{kind}/main/{quote(aim)}{fragment}"


def _linked(text: str, entry: Entry, shelf: Shelf) -> str:
    """A text whose relative links lead to pages of the book, or to the repository; else their words alone stay."""
    spans = re.split(r"(```.*?```|`[^`\n]*`)", text, flags=re.DOTALL)  # f[grid](x) in code is no link

    def one(match: re.Match) -> str:
        aim = target(match[2], match[3] or "", entry, shelf)
        # As HTML: MyST would look a path up among its documents, and these are pages already.
        return match[1] if aim is None else f'<a href="{html.escape(aim)}">{_inline(match[1])}</a>'

    return "".join(part if i % 2 else _LINK.sub(one, part) for i, part in enumerate(spans))


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)


def _facts(entry: Entry, shelf: Shelf) -> str:
    """The line under the title: minutes, the lab or lesson of the same number, Colab, where the figures come from."""
    parts = [f"<span>{entry.minutes} minutes</span>"] if entry.minutes else []
    lesson = entry.path.startswith("notebooks/")
    other = (shelf.labs if lesson else shelf.lessons).get(entry.stem)
    if other:
        folder, word = ("labs", "Lab") if lesson else ("notebooks", "Lesson")
        parts.append(f'<a href="../{folder}/{quote(entry.stem)}.html">{word} {html.escape(other.name)}</a>')
    if address := colab(shelf.project, entry):
        parts.append(f'<a href="{html.escape(address)}">Open in Colab</a>')
    if said := figures_of(entry.notebook):
        parts.append(f"<span>{html.escape(said)}</span>")
    return f'```{{raw}} html\n<p class="kw-facts">{"".join(parts)}</p>\n```'


def figures_of(notebook: NotebookNode) -> str:
    """Where a notebook's measurements come from, in a few words; "" where it shows none."""
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
    """One output in the one form that the page shows; None where a page has nothing to show of it."""
    if output.output_type == "stream":
        coloured = printed(output.text) if output.name == "stdout" else None
        if coloured is not None:
            return _html(coloured)
        return nbformat.v4.new_output("stream", name=output.name, text=_cut(output.text))
    if output.output_type == "error":
        return output
    data = output.get("data", {})
    if PLOTLY in data:
        return _html(figure_html(data[PLOTLY]))
    if isinstance(data.get("text/html"), str):
        kind = "kw-provenance" if _PROVENANCE in data else "kw-html"
        return _html(f'<div class="{kind}">{_wide(data["text/html"])}</div>')
    for image in _IMAGES:
        if image in data:
            return _html(_image(image, data[image], str(data.get("text/plain", ""))))
    if "text/markdown" in data:
        return nbformat.v4.new_output("display_data", data={"text/markdown": data["text/markdown"]})
    if "text/plain" in data:
        coloured = printed(data["text/plain"])
        return _html(coloured) if coloured else nbformat.v4.new_output(
            "display_data", data={"text/plain": _cut(data["text/plain"])}
        )  # fmt: skip
    return None


def _html(text: str) -> NotebookNode:
    return nbformat.v4.new_output("display_data", data={"text/html": text})


def _wide(text: str) -> str:
    """HTML whose tables scroll by themselves where the page is narrow."""
    if not _TABLE.search(text) or "kw-pane" in text:
        return text
    return re.sub(
        r"<table\b.*?</table>", lambda m: f'<div class="kw-wide">{m[0]}</div>', text, flags=re.DOTALL
    )


def _image(kind: str, data: Any, words: str) -> str:
    text = "".join(data) if isinstance(data, list) else data
    alt = html.escape(re.sub(r"^<.*>$", "", words) or "Figure", quote=True)
    if kind == "image/svg+xml":
        return f'<div class="kw-html" role="img" aria-label="{alt}">{text}</div>'
    return f'<img alt="{alt}" src="data:{kind};base64,{text.strip()}">'


def _cut(text: str) -> str:
    if len(text) <= _MOST_TEXT:
        return text
    left = f"[… {len(text) - _MOST_TEXT:,} characters are left out of this page; the executed notebook has them …]"
    return f"{text[:_MOST_TEXT]}\n{left}\n"
