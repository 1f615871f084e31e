"""Links: what leads nowhere is named, in pages, in documents and in notebooks, and on a web of our own."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path

import pytest

from helpers.workshop.book import links


def notebook(*cells: tuple[str, str, str]) -> str:
    made = [
        {"cell_type": kind, "id": name, "source": [source], "metadata": {}} for kind, name, source in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose links are all right."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "labs").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "kernel-workbook"\n')
    (tmp_path / "picture.png").write_bytes(b"x")
    (tmp_path / "README.md").write_text(
        "# Top\n\n## What's *new*, `here`?\n\n## Twice\n\n## Twice\n\n"
        "![x](picture.png) [a](#whats-new-here) [b](#twice-1) [c](notebooks/01_x.ipynb) [d](notebooks/) "
        '<a href="notebooks/01_x.ipynb#cell-id=first">e</a> [f](https://example.org/gone "title")\n\n'
        "`f[grid](x)` and\n\n```python\nkernel[grid](nowhere)\n```\n"
    )
    (tmp_path / "notebooks/01_x.ipynb").write_text(
        notebook(
            ("markdown", "title", "# A Title\n\nSee [the top](../README.md#top), [here](#A-Title)."),
            ("code", "first", "f[grid](no_link)"),
        )
    )
    return tmp_path


def test_good_links_are_good(checkout):
    assert links.broken_in_sources(checkout) == []


@pytest.mark.parametrize(
    "link, said",
    [
        ("none.md", "leads nowhere"),
        ("notebooks/01_y.ipynb", "leads nowhere"),
        ("#none", "README.md has no place of that name"),
        ("#twice-2", "README.md has no place of that name"),
        ("notebooks/01_x.ipynb#cell-id=second", "01_x.ipynb has no place of that name"),
        ("../elsewhere.md", "leaves the checkout"),
    ],
)
def test_a_link_to_nowhere_is_named(checkout, link, said):
    with (checkout / "README.md").open("a") as readme:
        readme.write(f"\n[x]({link})\n")
    (found,) = links.broken_in_sources(checkout)
    assert found.startswith(f"README.md: {link}") and said in found


def test_a_notebook_s_broken_link_is_named_too(checkout):
    (checkout / "labs/01_x.ipynb").write_text(notebook(("markdown", "goals", "[x](../notebooks/02_x.ipynb)")))
    assert links.broken_in_sources(checkout) == ["labs/01_x.ipynb: ../notebooks/02_x.ipynb leads nowhere."]


def test_pages_of_a_book(tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "index.html").write_text(
        '<link href="style.css"><a id="x" href="part/a.html#y">yes</a><a href="#x">yes</a><a href="part/">no index</a>'
        '<a href="https://example.org/none">not asked</a><img src="gone.png"><a href="part/a.html#z">no place</a>'
        '<a href="../above.html">out</a><a href="/etc/x.html">top</a><a href="mailto:x@example.org">mail</a>'
        '<script src="script.js"></script><a href="with%20space.html">yes</a>'
    )
    (tmp_path / "part/a.html").write_text('<p id="y"></p><a href="../index.html#x">yes</a><meta name="z">')
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static/macros.html").write_text('<link href="{{ a_template }}">')
    for name in ("style.css", "with space.html"):
        (tmp_path / name).write_text("")
    assert links.broken(tmp_path) == [
        "index.html: part/ leads nowhere.",
        "index.html: gone.png leads nowhere.",
        "index.html: part/a.html#z: part/a.html has no place of that name.",
        "index.html: ../above.html leaves the folder.",
        "index.html: /etc/x.html begins at the disk's top: it leads nowhere once the folder lies elsewhere.",
        "index.html: script.js leads nowhere.",
    ]


class Web(http.server.BaseHTTPRequestHandler):
    """A web where /here answers, /no-head only to GET, and the rest is gone."""

    def do_HEAD(self) -> None:
        self.answer(200 if self.path == "/here" else 405 if self.path == "/no-head" else 404)

    def do_GET(self) -> None:
        self.answer(200 if self.path in ("/here", "/no-head") else 404)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def web():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_what_the_web_does_not_have_is_named(checkout, web):
    text = f"[a]({web}/here#place) [b]({web}/no-head) {web}/gone. [c](http://127.0.0.1:9/) https://github.com/OWNER/REPO/x"
    (checkout / "README.md").write_text(text)
    found = links.addresses(checkout)
    assert set(found) == {f"{web}/here#place", f"{web}/no-head", f"{web}/gone", "http://127.0.0.1:9/"}
    said = links.unreachable(found)
    assert len(said) == 2
    assert f"README.md: {web}/gone answers 404." in said
    assert any(one.startswith("README.md: http://127.0.0.1:9/ does not answer (") for one in said)


def test_the_command(checkout, workbook, tmp_path):
    shown = workbook("links", cwd=checkout)
    assert (shown.returncode, shown.stdout) == (0, "Every link leads somewhere.\n")
    (checkout / "picture.png").unlink()
    shown = workbook("links", cwd=checkout)
    assert (shown.returncode, shown.stdout) == (1, "README.md: picture.png leads nowhere.\n")
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "a.html").write_text('<a href="b.html">x</a>')
    shown = workbook("links", str(pages), cwd=checkout)
    assert (shown.returncode, shown.stdout) == (1, "a.html: b.html leads nowhere.\n")
    for arguments in ([str(pages / "none")], [str(pages), "--external"]):
        shown = workbook("links", *arguments, cwd=checkout)
        assert shown.returncode == 2 and len(shown.stderr.splitlines()) == 1
