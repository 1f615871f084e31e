"""Every relative link of a document or a notebook leads to a file, and its anchor to a heading or a cell."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from commands import ROOT
from markdown_it import MarkdownIt

DOCUMENTS = ("*.md", "docs/*.md", "docs/guide/*.md", ".github/**/*.md")
NOTEBOOKS = ("notebooks/*.ipynb", "labs/*.ipynb", "labs/solutions/*.ipynb")
SOURCES = [path for pattern in (*DOCUMENTS, *NOTEBOOKS) for path in sorted(ROOT.glob(pattern))]
_HTML = re.compile(r'<(?:a|img)\b[^>]*?\b(?:href|src)="([^"]+)"')


def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text("utf-8"))["cells"]


def markdown(path: Path) -> str:
    if path.suffix != ".ipynb":
        return path.read_text("utf-8")
    return "\n\n".join("".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "markdown")


def links(text: str) -> Iterator[str]:
    """The targets of a text's links and images, in Markdown and in HTML."""
    for block in MarkdownIt().enable("table").parse(text):
        for token in (block, *(block.children or ())):
            yield from filter(None, (token.attrGet("href"), token.attrGet("src")))
            if token.type in ("html_block", "html_inline"):
                yield from _HTML.findall(token.content)


def anchors(path: Path) -> set[str]:
    """The places in a file that a link can name: GitHub's and JupyterLab's headings, and cells."""
    headings = re.findall(r"^#+ +(.+)$", markdown(path), re.MULTILINE)
    if path.suffix == ".ipynb":
        named = {f"cell-id={cell['id']}" for cell in cells(path)}
        return named | {heading.replace(" ", "-") for heading in headings}
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(path: Path, root: Path) -> list[str]:
    found = []
    for link in links(markdown(path)):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        anchored = parts.fragment and target.suffix in (".md", ".ipynb")
        if (
            not target.is_relative_to(root)
            or not target.exists()
            or (anchored and unquote(parts.fragment) not in anchors(target))
        ):
            found.append(link)
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    assert broken(path, ROOT) == []


def test_a_broken_link_is_found(tmp_path):
    notebook = {"cells": [{"cell_type": "code", "id": "first", "source": ["f[grid](x)"]}]}
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    good = "[a](a.ipynb#cell-id=first) [b](#what-s-new) `f[grid](x)` [c](https://example.org/none)"
    bad = ["none.md", "a.ipynb#cell-id=none", "#none", "../outside.md", "none.png"]
    text = "".join(f"[x]({link})\n" for link in bad[:-1])
    (tmp_path / "b.md").write_text(f'# What-s *new*?\n\n{good}\n\n{text}\n<img src="{bad[-1]}">\n')
    assert broken(tmp_path / "b.md", tmp_path) == bad
