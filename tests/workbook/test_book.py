"""workbook.book: a small book opened in Chromium, and the whole book of this checkout.

The browser opens the pages from disk and is offline, so a page that asks for a network fails here.
"""

from __future__ import annotations

import contextlib
import functools
import html.parser
import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import browser as harness
import nbformat
import plotly.graph_objects as go
import pytest
from commands import LESSONS, ROOT, command, environment
from playwright.sync_api import TimeoutError, expect
from small_checkout import BADGE, code

from helpers import plots
from helpers.predict import views
from helpers.predict.questions import Question
from helpers.records import PROVENANCE_MIME
from workbook.book import build_book, check_web_links
from workbook.book.lexers import printed
from workbook.book.plotly_html import described, figure_html
from workbook.static_widgets import PLOTLY
from workbook.usage import UsageError

SASS = """\
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   S2R R9, SR_TID.X ;
        /*0020*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0030*/                   EXIT ;
"""
PTX = """\
.version 8.7
.target sm_90a
.address_size 64
.visible .entry square(
	.param .u64 .ptr .global .align 1 square_param_0
)
{
	.reg .b32 	%r<5>;
	ld.param.b64 	%rd1, [square_param_0];
	ld.global.b32 	%r1, [%rd1];
	mul.f32 	%r2, %r1, %r1;
	st.global.b32 	[%rd1], %r2;
	ret;
}
"""
CUDA = 'source = r"""\n__global__ void square(float* x) { x[threadIdx.x] *= x[threadIdx.x]; }\n"""'
README = """\
# Small

| Lesson | Minutes | What it shows | Lab |
|---|---|---|---|
| [01 First](notebooks/01_first.ipynb) | 45 | What a `launch` costs | [lab](labs/01_first.ipynb), 20 min |
| [02 Second](notebooks/02_second.ipynb) | 30 | What it becomes | |
"""
GLOSSARY = """\
terms:
  - {term: warp, also: [warpy thing], cell: 02_second/drawn, meaning: 32 threads.}
  - {term: sector, cell: 01_first/section, meaning: 32 bytes.}
"""
GUIDE = """\
# Batches

Run [the first lesson](../../notebooks/01_first.ipynb#cell-id=kernel).
Then read [the README](../../README.md).
"""
SLIDERS = ".kw-figure input[type=range]"


INTRODUCTION = """\
A warp asks for sectors.
See [the lab](../labs/01_first.ipynb),
[the figure](02_second.ipynb#cell-id=drawn) and [a file](../pyproject.toml).
"""


def shown(kind: str, data: Any, **more: Any) -> nbformat.NotebookNode:
    return nbformat.v4.new_output("display_data", data={kind: data, **more})


def text(source: str, name: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell(source, id=name)


def moving_figure() -> go.Figure:
    """Two traces, a slider that changes one and a menu that hides the other."""
    fig = go.Figure(
        [go.Scatter(x=[1, 2], y=[3, 4], name="mine"), go.Scatter(x=[1, 2], y=[5, 6], name="copy")]
    )
    plots.layout(fig, "Bandwidth of two", "columns, N", "GB/s", note="NVIDIA H200, 2026-11-22")
    steps = [{"label": f"{n}", "method": "update", "args": [{"y": [[n, n + 1]]}, {}, [0]]} for n in (3, 30)]
    visible = {"both": [True, True], "mine": [True, False]}
    both = [
        {"label": name, "method": "update", "args": [{"visible": one}, {}]} for name, one in visible.items()
    ]
    return fig.update_layout(
        sliders=[{"steps": steps, "active": 0, "currentvalue": {"prefix": "warps: "}}],
        updatemenus=[{"buttons": both, "active": 0}],
    )


def first_lesson() -> nbformat.NotebookNode:
    badge = BADGE.format("https://colab.research.google.com/x")
    question = Question("small", "How many sectors?", choices=("4", "8"))
    reveal = shown("text/html", views.reveal_fold(question, "4", "Two rows."))
    copied = Question("copied", "How many bytes?", unit="bytes")
    ask_number = shown("text/html", views.question_html(copied))
    reveal_number = shown("text/html", views.reveal_fold(copied, 5586.0))
    share = Question("share", "What share?", unit="%", measured=True)
    ask_share = shown("text/html", views.question_html(share))
    reveal_share = shown("text/html", views.reveal_fold(share, 66.6))
    ask = shown("text/html", views.question_html(question))
    source = {"record": "a/b", "mode": "replayed", "gpu": "NVIDIA H200", "date": "2026-11-22", "text": "…"}
    styled = '<div style="border-left:4px solid #0072B2">Replayed: NVIDIA H200</div>'
    origin = shown("text/html", styled, **{PROVENANCE_MIME: source})
    wide = "<table><tr>" + "".join(f"<th>column {i}</th>" for i in range(40)) + "</tr></table>"
    return nbformat.v4.new_notebook(
        cells=[
            text(f"# 01 · First: a beginning\n\n{badge}\n\n{INTRODUCTION}", "title"),
            code("import hidden_plumbing", "setup", "setup"),
            code("folded_away = 1", "folded", "hide-input", outputs=(origin,)),
            text("## A section\n\nAnother warp, with zebrafish.", "section"),
            code(CUDA, "kernel"),
            code("ask()", "ask", outputs=(ask,)),
            code("print(ptx)", "ptx", outputs=(nbformat.v4.new_output("stream", text=PTX),)),
            code("print(sass)", "sass", outputs=(nbformat.v4.new_output("stream", text=SASS), reveal)),
            code("table", "table", outputs=(shown("text/html", wide),)),
            code("more()", "more", outputs=(ask_number, reveal_number, ask_share, reveal_share)),
        ]
    )


def second_lesson() -> nbformat.NotebookNode:
    figure = shown(PLOTLY, json.loads(moving_figure().to_json()))
    return nbformat.v4.new_notebook(
        cells=[
            text("# 02 · Second: what it becomes\n\nThirty minutes.", "title"),
            code("draw()", "drawn", outputs=(figure,)),
        ]
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with two executed lessons, a lab and a guide; its book is in build/book."""
    root = tmp_path_factory.mktemp("small")
    (root / "pyproject.toml").write_text(
        '[project]\nname = "kernel-workbook"\n[project.urls]\nRepository = "https://github.com/ada/kernels"\n'
    )
    documents = {"README.md": README, "docs/book/glossary.yaml": GLOSSARY, "docs/guide/batches.md": GUIDE}
    documents["docs/book/index.md"] = (ROOT / "docs/book/index.md").read_text("utf-8")
    for name, written in documents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(written, "utf-8")
    (root / "helpers" / "kernels").mkdir(parents=True)
    lab = nbformat.v4.new_notebook(
        cells=[
            text("# Lab 01 · First\n\n**Belongs to** [lesson 01](../notebooks/01_first.ipynb).", "title"),
            code("def answer():\n    raise NotImplementedError", "answer", "exercise"),
        ]
    )
    for folder, name, notebook in (
        ("notebooks", "01_first", first_lesson()),
        ("notebooks", "02_second", second_lesson()),
        ("labs", "01_first", lab),
    ):
        (root / folder).mkdir(exist_ok=True)
        nbformat.write(notebook, root / folder / f"{name}.ipynb")
    shutil.copytree(root / "notebooks", root / "build" / "course")
    book = build_book(root, root / "build" / "course", root / "build" / "book")
    assert book.stale == book.warnings == () and book.index == root / "build" / "book" / "index.html"
    return root


@pytest.fixture(scope="module")
def small_book(small: Path) -> Path:
    return small / "build" / "book"


@pytest.fixture(scope="module")
def whole_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book of this checkout: of the lessons that `make run` executed, or of those with stored outputs."""
    executed = ROOT / "build" / "course"
    if not all((executed / path.name).is_file() for path in LESSONS):
        executed = ROOT / "notebooks"
    out = tmp_path_factory.mktemp("whole") / "book"
    arguments = command("book", "--executed", executed, "--out", out)
    made = subprocess.run(arguments, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert f"{out}/index.html" in made.stdout
    assert all("has changed since" in line for line in made.stderr.splitlines()), made.stderr
    return out


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with harness.browser() as running:
        yield running


class Reader:
    """Opens the pages of a book offline and collects errors."""

    def __init__(self, chromium: Any, book: Path, width: int = 1280, theme: str = "light") -> None:
        self.book = book
        self.context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, offline=True
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(harness.SHOWS_WITHIN_MS)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda asked: self._asked(asked.url))

    def _asked(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.wrong.append(f"asks for {url}")

    def open(self, name: str) -> Any:
        file, _, query = name.partition("?")
        self.page.goto((self.book / file).as_uri() + (f"?{query}" if query else ""))
        return self.page

    def faults(self) -> list[str]:
        """What axe-core calls serious or critical, with all folds open and long listings cut."""
        self.page.evaluate(
            """() => {
              for (const fold of document.querySelectorAll('details')) fold.open = true;
              for (const box of document.querySelectorAll('.cell, .cell *'))
                while (box.children.length > 12) box.lastElementChild.remove();
              // An opening fold fades in, and half-way colors have too little contrast.
              for (const moving of document.getAnimations())
                if (moving.effect.getComputedTiming().endTime !== Infinity) moving.finish();
            }"""
        )
        return harness.accessibility_faults(self.page)


@pytest.fixture
def reader(chromium: Any, small_book: Path) -> Iterator[Reader]:
    made = Reader(chromium, small_book)
    yield made
    made.context.close()
    assert made.wrong == []


def settled_width(page: Any, most: int) -> int:
    """How wide a page is in pixels, as soon as it is narrow enough or has had time to become so."""
    with contextlib.suppress(TimeoutError):
        page.wait_for_function("most => document.documentElement.scrollWidth <= most", arg=most)
    return page.evaluate("document.documentElement.scrollWidth")


def pages(book: Path) -> list[str]:
    return sorted(str(p.relative_to(book)) for p in book.rglob("*.html") if "_static" not in p.parts)


# ---------------------------------------------------------------------------------------------- links


class Links(html.parser.HTMLParser):
    """The targets and the ids of an HTML page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets, self.ids = set(), set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            if value and (name == "src" or (name == "href" and tag in ("a", "link"))):
                self.targets.add(value)


def broken_links(book: Path) -> list[str]:
    """The links of a book's pages to a file, or to a place in a page, that isn't there."""
    found = {book / name: Links(book / name) for name in pages(book)}
    broken = []
    for page, links in found.items():
        for link in links.targets:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            place = unquote(parts.fragment)
            if not target.is_file() or (place and target in found and place not in found[target].ids):
                broken.append(f"{page.name}: {link}")
    return broken


def test_links_of_the_small_book(small_book):
    assert broken_links(small_book) == []
    found = Links(small_book / "notebooks" / "01_first.html").targets
    assert {"../labs/01_first.html", "02_second.html#cell-drawn"} <= found
    assert "https://github.com/ada/kernels/blob/main/pyproject.toml" in found
    assert "https://colab.research.google.com/github/ada/kernels/blob/main/notebooks/01_first.ipynb" in found
    assert not any("badge" in link for link in found)
    found = Links(small_book / "docs" / "guide" / "batches.html").targets
    assert "../../notebooks/01_first.html#cell-kernel" in found
    assert "https://github.com/ada/kernels/blob/main/README.md" in found


def test_a_link_that_leads_nowhere_is_a_warning(small, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(small, root)
    with (root / "docs/guide/batches.md").open("a") as guide:
        guide.write(
            "\n[a](../../notebooks/01_first.ipynb#cell-id=none) [b](../../labs/01_first.ipynb#none)\n"
        )
    book = build_book(root, root / "build" / "course", root / "build" / "book")
    assert len(book.warnings) == 2
    assert all(line.startswith("docs/guide/batches.md:") and "none" in line for line in book.warnings)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """The address of a web server with one page, here.html."""
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "here.html").write_text("here")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_links_to_the_web_are_checked_on_request(small, tmp_path, web):
    root = tmp_path / "copy"
    shutil.copytree(small, root)
    project = root / "pyproject.toml"
    project.write_text(project.read_text().replace("ada/kernels", "OWNER/REPO"))
    (root / "docs/guide/batches.md").write_text(f"# Batches\n\n[a]({web}/here.html) [b]({web}/gone.html)\n")
    (line,) = check_web_links(root, root / "build" / "course")
    assert "docs/guide/batches.md" in line and f"{web}/gone.html" in line


# ---------------------------------------------------------------------------------------------- reading


def test_the_first_page_has_a_slider_and_the_lessons(reader):
    page = reader.open("index.html")
    sliders = page.locator(".kw-hero .kx")
    bars = sliders.locator(".kx-bar")
    assert {"Triton rows", "CUDA C++", "torch.square"} <= set(bars.locator("b").all_text_contents())
    value = bars.first.locator(".kx-label span")
    assert re.fullmatch(r"[\d,]+ GB/s, \d+ % of copy", value.text_content())
    slider = sliders.locator("label.kx-slider").filter(has_text="BLOCK_SIZE").locator("input")
    slider.focus()
    page.keyboard.press("Home")
    assert value.text_content() == "wrong" and slider.get_attribute("aria-valuetext") == "64"
    page.keyboard.press("End")
    assert re.fullmatch(r"[\d,]+ GB/s, \d+ % of copy", value.text_content())
    assert re.search(r"NVIDIA H\d+, 20\d\d-\d\d-\d\d", sliders.locator(".kx-note").first.text_content())
    sliders.locator("label").filter(has_text=re.compile("^all$")).click()  # both GPUs, as paired bars
    assert bars.first.locator(".kx-track").count() == 2
    cards = page.locator(".kw-map li")
    assert cards.count() == 2 and cards.first.locator("code").text_content() == "launch"
    for words in ("45 min", "Lab 01, 20 min", "Open 01 First in Colab"):
        assert words in " ".join(cards.first.text_content().split())
    assert "git clone https://github.com/ada/kernels" in page.locator("pre").first.text_content()
    assert "plotly" not in page.content()


def test_a_figure_is_drawn_and_its_controls_work(reader):
    page = reader.open("notebooks/02_second.html")
    figure = page.locator(".kw-figure")
    page.wait_for_selector(".kw-figure[data-drawn]")
    assert "Bandwidth of two" in figure.locator("figcaption").text_content()
    now = "() => [...document.querySelector('.kw-plot').data[0].y]"
    assert page.evaluate(now) == [3, 4]
    slider = page.locator(SLIDERS)
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"({now})()[0] === 30")
    assert figure.locator("output").text_content() == "30" == slider.get_attribute("aria-valuetext")
    figure.locator("select").select_option("1")
    page.wait_for_function("() => document.querySelector('.kw-plot').data[1].visible === false")
    assert page.locator(".kw-plot").get_attribute("aria-label") == (
        "Bandwidth of two. NVIDIA H200, 2026-11-22. x: columns, N. y: GB/s. mine: 1 3, 2 4. copy: 1 5, 2 6. "
        "Sliders: warps."
    )


def test_code_folds_questions_and_provenance(reader):
    page = reader.open("notebooks/01_first.html")
    for cell, hidden in (("cell-folded", True), ("cell-setup", True), ("cell-kernel", False)):
        fold = page.locator(f"#{cell} details")
        assert fold.count() == hidden and (not hidden or fold.get_attribute("open") is None)
    assert "Replayed: NVIDIA H200" in page.locator("#cell-folded .kw-provenance").inner_text()
    assert page.locator("#cell-kernel .nb", has_text="threadIdx").count() == 2
    assert page.locator("#cell-ptx .highlight-ptx span").count() > 20
    assert page.locator("#cell-sass .highlight-sass .k", has_text="LDG.E.128").count() == 1
    answer = page.locator("#cell-sass details")
    assert not answer.locator("b", has_text="4").is_visible()
    answer.locator("summary").click()
    assert answer.locator("b", has_text="4").is_visible()
    page.locator("#cell-ask label", has_text="8").click()
    assert page.locator("#cell-ask input").nth(1).is_checked()
    assert "figures recorded on NVIDIA H200" in page.locator(".kw-facts").text_content()
    # The wide table scrolls, so the keyboard has to reach it.
    assert page.locator("#cell-table .kw-html").get_attribute("tabindex") == "0"


def test_a_reader_answers_and_the_page_remembers_it(reader):
    page = reader.open("notebooks/01_first.html")
    keyboard, ask, reveal = page.keyboard, page.locator(".kw-ask"), page.locator(".kw-reveal")
    for i in range(3):
        expect(reveal.nth(i).locator(".kw-verdict")).to_be_hidden()
    ask.nth(0).get_by_label("8").check()
    ask.nth(0).get_by_role("button", name="Save").click()
    expect(reveal.nth(0)).to_contain_text("You said 8; it is 4.")
    expect(reveal.nth(0)).to_contain_text("Two rows.")
    ask.nth(1).get_by_label("your answer, in bytes").fill("many")
    keyboard.press("Enter")
    expect(ask.nth(1).locator("[role=status]")).to_contain_text("not a number")
    ask.nth(1).get_by_label("your answer, in bytes").fill("5,000 bytes")
    keyboard.press("Enter")
    expect(reveal.nth(1)).to_contain_text("You said 5,000 bytes; it is 5,586 bytes.")
    ask.nth(2).get_by_label("to, in %").fill("60")
    ask.nth(2).get_by_label("from, in %").fill("80 %")
    keyboard.press("Enter")
    page.reload()
    expect(reveal.nth(0)).to_contain_text("You said 8; it is 4.")
    expect(reveal.nth(1)).to_contain_text("You said 5,000 bytes; it is 5,586 bytes.")
    expect(reveal.nth(2)).to_contain_text("You said 60 to 80 %; it is 66.6 %: ✓ inside the range.")
    expect(ask.nth(1).get_by_label("your answer, in bytes")).to_have_value("5,000 bytes")
    expect(ask.nth(1).get_by_label("your answer, in bytes")).to_be_disabled()


def test_code_is_copied_whole_and_never_cut_off(reader):
    page = reader.open("notebooks/01_first.html")
    page.set_viewport_size({"width": 400, "height": 800})
    page.evaluate("() => { navigator.clipboard.writeText = (text) => { window.copied = text; }; }")
    cell = page.locator("#cell-kernel")
    for width in (400, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        wide = "pre => pre.scrollWidth > pre.clientWidth + 1"
        assert not cell.locator("pre").first.evaluate(wide), width
    cell.get_by_role("button", name="Copy this code").click()
    expect(cell.locator(".kw-copy")).to_have_text("Copied")
    assert page.evaluate("window.copied") == CUDA.strip("\n")
    fades = page.locator("#cell-table .kw-html")
    assert "kw-fades" in fades.get_attribute("class")  # more of the table is to the right
    # The new width's layout can still change the box by some pixels, so that its end has to be reached again.
    at_the_end = "box => { box.scrollTo(box.scrollWidth, 0); return !box.classList.contains('kw-fades'); }"
    page.wait_for_function(at_the_end, arg=fades.element_handle())


def test_a_finished_lesson_has_a_tick_that_stays(reader):
    page = reader.open("notebooks/01_first.html")
    page.get_by_label("Mark as done").check()
    page.reload()
    expect(page.get_by_label("Mark as done")).to_be_checked()
    page = reader.open("index.html")
    expect(page.locator(".kw-map a.kw-finished")).to_have_count(1)
    page = reader.open("notebooks/01_first.html")
    page.get_by_label("Mark as done").uncheck()
    page.reload()
    expect(page.get_by_label("Mark as done")).not_to_be_checked()


def test_a_lesson_can_be_downloaded(reader, small):
    page = reader.open("notebooks/02_second.html")
    link = page.get_by_role("link", name="Download the notebook")
    target = (small / "build" / "book" / "notebooks" / link.get_attribute("href")).resolve()
    assert nbformat.read(target, as_version=4).cells[0].source.startswith("# 02 · Second")


def test_figures_follow_the_dark_theme(chromium, small_book):
    for theme, changed in (("light", False), ("dark", True)):
        reader = Reader(chromium, small_book, 1280, theme)
        figure = reader.open("notebooks/02_second.html").locator(".kw-figure")
        assert ("invert" in figure.evaluate("box => getComputedStyle(box).filter")) == changed
        reader.context.close()


def test_previous_and_next_and_the_sidebar(reader):
    page = reader.open("notebooks/01_first.html")
    page.locator("a.right-next").click()
    page.wait_for_url("**/02_second.html")
    assert page.locator("a.left-prev").get_attribute("href") == "01_first.html"
    sidebar = page.locator(".bd-sidebar-primary")
    for name in ("02 Second", "Batches", "Glossary"):
        assert sidebar.get_by_text(name, exact=True).is_visible()


def test_a_term_of_another_lesson_has_a_tooltip(reader):
    page = reader.open("notebooks/01_first.html")
    terms = page.locator("a.kw-term")
    assert terms.all_text_contents() == ["warp", "warp"]  # once a section; "sectors" are this lesson's own
    assert not page.locator("#kw-tip").is_visible()
    terms.first.hover()
    assert page.locator("#kw-tip").inner_text() == "32 threads."
    page.keyboard.press("Escape")
    assert not page.locator("#kw-tip").is_visible()
    terms.last.focus()
    assert page.locator("#kw-tip").is_visible() and terms.last.get_attribute("aria-describedby") == "kw-tip"
    terms.last.click()
    page.wait_for_url("**/glossary.html#term-warp")


def test_search_finds_a_word(reader):
    page = reader.open("search.html?q=zebrafish")
    page.wait_for_selector("ul.search li")
    page.wait_for_function(
        "() => !document.querySelector('#search-progress')?.textContent.includes('Searching')"
    )
    found = [a.get_attribute("href") for a in page.locator("ul.search li a").all()]
    assert len(found) == 1 and "notebooks/01_first.html" in found[0]
    field = page.locator(".bd-main input[name=q]")
    field.fill("")  # and again as one types
    expect(page.locator("ul.search li")).to_have_count(0)
    field.press_sequentially("zebraf")
    expect(page.locator("ul.search li a")).to_have_attribute("href", re.compile("notebooks/01_first.html"))


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (400, "dark")])
def test_the_small_book_is_accessible(chromium, small_book, width, theme):
    reader = Reader(chromium, small_book, width, theme)
    for name in pages(small_book):
        page = reader.open(name)
        fits = f"document.documentElement.scrollWidth <= {width}"
        page.wait_for_function(fits, timeout=harness.SHOWS_WITHIN_MS)  # once its style has been applied
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        if page.locator(".kw-figure").count():
            page.locator(".kw-figure").scroll_into_view_if_needed()
            page.wait_for_selector(".kw-figure[data-drawn]")
        assert reader.faults() == [], name
    assert reader.wrong == []
    reader.context.close()


# ---------------------------------------------------------------------------------------------- parts


def test_the_description_of_a_figure():
    bars = go.Figure(go.Bar(x=["a", "b"], y=[1.5, 2000.0], name="<b>mine</b>"))
    assert described(bars.to_dict()) == "Figure. mine: a 1.5, b 2,000."
    long = json.loads(go.Figure(go.Scatter(y=list(range(50)), x=list(range(50)))).to_json())
    assert described(long) == "Figure. 50 values from 0 to 49."
    heat = go.Figure(go.Heatmap(z=[[1, None], [3, 4]]))
    assert "3 values from 1 to 4" in described(heat.to_dict())


def test_a_title_cannot_end_the_script():
    made = figure_html({"data": [], "layout": {"title": {"text": "a </script> b"}}})
    assert made.count("</script>") == 2  # in the caption, where it is only text, and at the end of the data
    assert "<\\/script>" not in made.split("<figcaption>")[1].split("</figcaption>")[0]


@pytest.mark.parametrize(
    "text", ["", "squares agree\n", "1 2 3\n4 5 6\n", "error: threadIdx.x is undefined;"]
)
def test_text_that_is_not_code_is_not_colored(text):
    assert printed(text) is None


# ---------------------------------------------------------------------------------------------- refusals


def test_a_changed_lesson_is_reported_and_the_old_book_replaced(small, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(small, root)
    lesson = nbformat.read(root / "notebooks" / "02_second.ipynb", 4)
    lesson.cells[0].source += " More."
    nbformat.write(lesson, root / "notebooks" / "02_second.ipynb")
    (root / "build" / "book" / "old.html").write_text("")
    book = build_book(root, root / "build" / "course", root / "build" / "book")
    (line,) = book.stale
    assert "02_second.ipynb" in line
    assert sorted(p.name for p in (root / "build").iterdir()) == ["book", "course"]
    assert not (root / "build" / "book" / "old.html").exists()


def test_a_book_that_cannot_be_built_is_refused(small, tmp_path):
    with pytest.raises(UsageError, match=r"01_first.ipynb, 02_second.ipynb.* `workbook run notebooks --out"):
        build_book(small, tmp_path, tmp_path / "book")
    executed = tmp_path / "executed"
    shutil.copytree(small / "notebooks", executed)
    failed = nbformat.read(executed / "01_first.ipynb", 4)
    failed.cells[4].outputs = [nbformat.v4.new_output("error", ename="E", evalue="x", traceback=["E: x"])]
    nbformat.write(failed, executed / "01_first.ipynb")
    with pytest.raises(UsageError, match="cell kernel"):
        build_book(small, executed, tmp_path / "book")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("kept")
    with pytest.raises(UsageError, match="mine"):
        build_book(small, small / "notebooks", mine)
    assert (mine / "thesis.txt").read_text() == "kept" and not (tmp_path / "book").exists()


# ------------------------------------------------------------------------------------------- the whole book


def loads(page: Path) -> set[Path]:
    """The page and the files that it loads at once."""
    found = re.findall(r'(?:src|href)="([^"?]+\.(?:js|css|svg|png|woff2))[?"]', page.read_text("utf-8"))
    return {page, *((page.parent / unquote(link)).resolve() for link in found)}


def test_links_and_sizes_of_the_whole_book(whole_book):
    assert broken_links(whole_book) == []
    for name in pages(whole_book):
        page = whole_book / name
        assert sum(p.stat().st_size for p in loads(page) if p.is_file()) <= 1_500_000, name
        text = page.read_text("utf-8")
        assert not re.search(r"(?<![\w.])/(?:root|home/\w+|work)/", text), name
        assert "Plotly.newPlot" not in text and "cdn." not in text, name
    files = [p for p in whole_book.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < 60_000_000
    assert sum(p.name.startswith("plotly") for p in files) == 1
    for path in LESSONS:
        assert (whole_book / "notebooks" / f"{path.stem}.html").is_file()
    assert (whole_book / "index.html").read_text().count("<li><p><strong>") == len(LESSONS)


def test_the_whole_book_is_accessible(chromium, whole_book):
    """Alternately narrow and wide, light and dark; no page scrolls sideways at 400 pixels."""
    found = {}
    for i, name in enumerate(pages(whole_book)):
        reader = Reader(chromium, whole_book, 400, ("light", "dark")[i % 2])
        page = reader.open(name)
        wide = settled_width(page, 400)
        page.set_viewport_size({"width": (1280, 400)[i // 2 % 2], "height": 900})
        if faults := reader.faults() + reader.wrong + [f"is {wide} pixels wide"] * (wide > 400):
            found[name] = faults
        reader.context.close()
    assert found == {}
