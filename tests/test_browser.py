"""The sliders in a real browser: lessons in JupyterLab moved by keyboard and mouse, pages opened from disk.

The expected figures are read from the stored records, not from the widgets' own code. Screenshots are saved
in build/screenshots. If Chromium is missing, the tests install it as root, or fail with the command to run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import browser as harness
import debian
import firefox
import nbformat
import pytest
from commands import ROOT, recorded
from playwright.sync_api import expect

from workbook import batch
from workbook.batch import findings, notebook_runs, report

SCREENSHOTS = ROOT / "build" / "screenshots"
SLIDERS = {
    "02_load_inline": "grid-picture",
    "03_triton": "try-block-size",
    "04_ptx": "try-it",
}


def found(rows: list[dict], **point: Any) -> dict:
    (row,) = [r for r in rows if all(r[k] == v for k, v in point.items())]
    return row


def speed(name: str, **point: Any) -> str:
    """A point's recorded bandwidth, as the figures show it."""
    return f"{found(recorded(name)['rows'], **point)['gb_per_s']:,.0f} GB/s"


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with harness.browser() as running:
        yield running


def write_notebook(folder: Path, name: str, cells: dict[str, str]) -> None:
    """Write a notebook with code cells, given as id to source."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(text.strip(), id=key) for key, text in cells.items()],
        metadata={"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
    )
    nbformat.write(notebook, folder / f"{name}.ipynb")


def settings(**variables: str) -> str:
    """Code that sets environment variables in a kernel, before it imports helpers."""
    return f"import os\nos.environ.update({variables!r})\n"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address and folder of a JupyterLab without a GPU, with copies of the lessons that have sliders."""
    folder = tmp_path_factory.mktemp("lab")
    for name in SLIDERS:
        shutil.copy(ROOT / "notebooks" / f"{name}.ipynb", folder)
    with harness.jupyterlab(folder, CUDA_VISIBLE_DEVICES="") as address:
        yield address, folder


@pytest.fixture
def opened(chrome: Any, lab: tuple[str, Path]) -> Iterator[Callable[..., harness.Page]]:
    """Open a notebook in the lab and run all its cells; errors on the page fail the test at its end."""
    pages = []

    def run(name: str, script: str = "") -> harness.Page:
        page = harness.Page(chrome.new_page(viewport={"width": 1440, "height": 1200}))
        pages.append(page)
        page.page.add_init_script(script)
        page.run_notebook(f"{lab[0]}/lab/workspaces/{name}/tree/{name}.ipynb")
        return page

    yield run
    for page in pages:
        page.page.close()
    assert [error for page in pages for error in page.errors] == []


@pytest.fixture
def lesson(opened: Callable) -> Callable[[str], tuple[harness.Page, Any]]:
    """Open a lesson and run all of it; the page and the cell with the sliders."""

    def run(name: str) -> tuple[harness.Page, Any]:
        page = opened(name)
        cell = page.cell(SLIDERS[name])
        cell.locator(".kx input[type=range]").first.wait_for()
        return page, cell

    return run


def slider(where: Any, name: str) -> Any:
    """The slider with that label."""
    return where.locator("label.kx-slider").filter(has_text=name).first.locator("input")


def press(page: harness.Page, where: Any, name: str, key: str) -> None:
    slider(where, name).focus()
    page.page.keyboard.press(key)


def drag(page: harness.Page, where: Any, name: str, share: float) -> None:
    """Drag a slider with the mouse to a share of its length."""
    knob = slider(where, name)
    knob.scroll_into_view_if_needed()
    box = knob.bounding_box()
    now, last = (float(knob.evaluate(f"one => one.{what}")) for what in ("value", "max"))
    places = [box["x"] + 8 + part * (box["width"] - 16) for part in (now / last, share)]
    mouse = page.page.mouse
    mouse.move(places[0], box["y"] + box["height"] / 2)
    mouse.down()
    mouse.move(places[1], box["y"] + box["height"] / 2, steps=6)
    mouse.up()


def choose(where: Any, text: str) -> None:
    """Pick a radio button or tick a box by its label."""
    where.locator("label", has=where.page.locator("input")).filter(
        has_text=re.compile(rf"^{text}$")
    ).first.click()


def theme(page: harness.Page, name: str) -> None:
    """Switch JupyterLab to its theme "Light" or "Dark"; the server keeps it for the pages that follow."""
    page.page.evaluate(
        f"() => jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {name}'}})"
    )


def see(where: Any, text: str) -> None:
    """Wait until an element shows a text."""
    expect(where).to_contain_text(text)


def controls_stay_in_view(page: harness.Page, body: Any) -> None:
    """Scroll to the end of a tall explorer: its controls must still be on the screen, above it."""
    body.locator(".kx-panes").last.evaluate("panes => panes.scrollIntoView({block: 'end'})")
    controls = body.locator(".kx-controls").first
    expect(controls).to_be_in_viewport(ratio=1)
    assert controls.bounding_box()["y"] > body.locator(".kx-facts").first.bounding_box()["y"]


def screenshot(page: harness.Page, name: str) -> None:
    page.page.wait_for_timeout(300)
    page.page.screenshot(path=str(SCREENSHOTS / f"{name}.png"))


def save(page: harness.Page, path: Path) -> int:
    """Save the notebook that is open in JupyterLab; its size in bytes."""
    page.page.evaluate("async () => { await jupyterapp.commands.execute('docmanager:save'); }")
    return path.stat().st_size


# ------------------------------------------------------------------------------------------- JupyterLab


def test_the_grid_of_lesson_02(lesson, lab):
    page, cell = lesson("02_load_inline")
    sweep, point = (
        "load_inline/shape-sweep",
        {"kernel": "CUDA C++", "block_x": 32, "block_y": 16, "n_cols": 4096},
    )
    title, status = cell.locator(".kx-title"), cell.locator(".kx [role=status]").first
    press(page, cell, "block, x", "ArrowRight")
    see(title, "Blocks of 32 × 16")
    see(status, "4 sectors")
    see(status, speed(sweep, **point))
    for label, key, moved in (
        ("block, y", "ArrowRight", {"block_y": 32}),
        ("columns, N", "ArrowLeft", {"n_cols": 1024}),
    ):
        press(page, cell, label, key)
        point |= moved
        see(status, speed(sweep, **point))
    drag(page, cell, "block, x", 1.0)
    see(status, "1024 × 32 is refused")
    drag(page, cell, "block, x", 0.0)
    see(title, "Blocks of 1 × 32")
    see(status, "32 sectors")
    cell.locator(".kx-grid").hover(position={"x": 3, "y": 3})
    see(cell.locator(".kx-tip"), "element (0, 0)")
    screenshot(page, "lab-02-grid")
    assert save(page, lab[1] / "02_load_inline.ipynb") < 1_000_000


def test_the_kernels_of_lesson_03(lesson, lab):
    page, cell = lesson("03_triton")
    rows = recorded("triton/launch-sweep")["rows"]
    figure, status = cell.locator(".kx-figure").first, cell.locator(".kx-lines").first
    point = {"block_size": 4096, "num_warps": 8, "n_cols": 4096, "dtype": "float32"}
    axes = {
        "block_size": ("BLOCK_SIZE", 8192),
        "num_warps": ("num_warps", 16),
        "n_cols": ("columns, N", 8192),
    }
    # To the other GPU's records, to both, and back; the position stays.
    names = [
        one.strip() for one in cell.locator("fieldset", has_text="GPU").locator("label").all_text_contents()
    ]
    for name in (names[1], "all", names[0]):
        choose(cell, name)
        see(cell.locator(".kx-note").first, f"replayed: NVIDIA {name if name != 'all' else names[0]}")
        expect(figure.locator(".kx-track")).to_have_count(10 if name == "all" else 5)
    theme(page, "Dark")
    for axis, (label, value) in axes.items():
        press(page, cell, label, "ArrowRight")
        point[axis] = value
        for kernel in ("Triton rows", "Triton flat"):
            row = found(rows, kernel=kernel, **point)
            see(figure, f"{row['gb_per_s']:,.0f} GB/s" if row["verdict"] == "ok" else row["verdict"])
            registers = f"{kernel}: {row['registers']:.0f} registers"
            see(status, registers if row["verdict"] == "ok" else f"{kernel}: {row['verdict']}")
    choose(cell, "bfloat16")
    see(cell.locator(".kx-title"), "square of 4,096 × 8,192 bfloat16")
    # With the mouse to the smallest block, which leaves out most of a row.
    drag(page, cell, "BLOCK_SIZE", 0.0)
    see(status, "Triton rows: wrong")
    drag(page, cell, "columns, N", 0.0)
    flat = {"kernel": "Triton flat", "num_warps": 16, "block_size": 64, "n_cols": 256, "dtype": "bfloat16"}
    see(figure, speed("triton/launch-sweep", **flat))
    # A click on the map goes there.
    cell.locator(".kx-cell").nth(2).click()
    see(slider(cell, "BLOCK_SIZE").locator("xpath=../output"), "8,192")
    see(slider(cell, "num_warps").locator("xpath=../output"), "4")
    # With the keyboard, to the map of the other kernel and to one kernel less.
    cell.locator("fieldset", has_text="Map of").locator("input").first.focus()
    page.page.keyboard.press("ArrowRight")
    see(cell.locator(".kx-figure").nth(1), "Triton flat: GB/s")
    cell.locator("input[type=checkbox]").nth(3).focus()
    page.page.keyboard.press("Space")
    expect(figure.locator(".kx-track")).to_have_count(4)
    screenshot(page, "lab-03-explore-moved")
    # The second set of sliders, in a cell of its own.
    cell = page.cell("try-alignment")
    point = {"kernel": "Triton rows", "padding": 1, "offset": 0, "n_cols": 4096, "dtype": "float32"}
    for label, moved in (("row padding", {}), ("first element", {"offset": 1})):
        press(page, cell, label, "ArrowRight")
        see(cell.locator(".kx-figure").first, speed("triton/alignment-sweep", **(point | moved)))
    # A slider of your own.
    cell = page.cell("own-slider")
    see(cell.locator(".js-plotly-plot"), "4 warps")
    cell.locator(".noUi-handle").press("ArrowRight")
    see(cell.locator(".js-plotly-plot"), "8 warps")
    assert save(page, lab[1] / "03_triton.ipynb") < 1_200_000


def test_the_ptx_of_lesson_04(lesson, lab):
    page, cell = lesson("04_ptx")
    facts, panes = cell.locator(".kx [role=status]").first, cell.locator(".kx-panes").first
    see(facts, "loads per thread2")
    press(page, cell, "BLOCK_SIZE", "ArrowRight")
    see(facts, "loads per thread4 (was 2)")
    see(panes, "lines new (+)")
    press(page, cell, "num_warps", "ArrowLeft")
    see(facts, "loads per thread8 (was 4)")
    # The pane of the PTX stays, with its scroll position, when the SASS arrives.
    panes.locator(".kx-pane").first.evaluate("pane => { pane.mark = true; }")
    expect(panes.locator(".kx-text")).to_have_count(2)
    assert panes.locator(".kx-pane").first.evaluate("pane => pane.mark")
    for target in ("sm_80", "sm_75"):
        choose(cell, target)
        see(panes, f".target {target}")
    drag(page, cell, "BLOCK_SIZE", 0.0)
    see(facts, "loads per thread1 (was 8)")
    choose(cell, "strides and sizes are multiples of 16")
    see(facts, "widest load (bytes)4")
    # Select the line of the load with the keyboard: its instructions light up, and only they.
    lines = cell.locator(".kx-source label[data-source]")
    lines.nth(3).locator("input").check()
    page.page.keyboard.press("ArrowDown")
    expect(lines.nth(4).locator("input")).to_be_checked(timeout=harness.SHOWS_WITHIN_MS)
    lit = "rgba(0, 114, 178, 0.5)"  # the fifth line's color
    number = lines.nth(4).get_attribute("data-source")
    expect(panes.locator(f'[data-source="{number}"]').first).to_have_css("background-color", lit)
    other = lines.nth(1).get_attribute("data-source")
    expect(panes.locator(f'[data-source="{other}"]').first).not_to_have_css("background-color", lit)
    see(panes.locator(".kx-pane").nth(1).locator(".kx-bytes", has_text="B").last, "4 B")
    choose(cell, "diff of SASS")
    see(cell.locator(".kx-sides"), "kept: BLOCK_SIZE 1,024, num_warps 4, target sm_90")
    see(cell.locator(".kx-sides"), "now: BLOCK_SIZE 64, num_warps 2, target sm_75")
    cell.locator("button", has_text="Compare with this position").click()
    see(panes.locator("[role=status]"), "0 lines changed (~), 0 only left (-), 0 only right (+)")
    screenshot(page, "lab-04-diff")
    page.page.set_viewport_size({"width": 1000, "height": 700})
    choose(cell, "PTX and SASS")
    controls_stay_in_view(page, cell)
    page.page.set_viewport_size({"width": 700, "height": 700})
    edge_fades(panes.locator(".kx-text").first)
    assert save(page, lab[1] / "04_ptx.ipynb") < 1_000_000


def edge_fades(box: Any) -> None:
    """The right edge of a box is faded until one has scrolled there; its scrollbar never is."""
    bar = box.evaluate("box => box.offsetWidth - box.clientWidth")
    end = f"calc(100% - {bar}px)" if bar else "100%"
    faded = re.escape(f"rgba(0, 0, 0, 0) {end}, rgb(0, 0, 0) {end}")
    expect(box).to_have_css("mask-image", re.compile(faded))
    box.evaluate("box => box.scrollTo(box.scrollWidth, 0)")
    expect(box).to_have_css("mask-image", "none")


OWN = {
    "setup": settings(WORKBOOK_REPLAY="h100") + "from helpers import device\n\ndevice.prepare()",
    "kernel": """
import torch, triton, triton.language as tl
from helpers import widgets

@triton.jit
def square_kernel(y_ptr, x_ptr, n_cols, BLOCK_SIZE: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * n_cols
    cols = tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + start + cols, mask=cols < n_cols)
    tl.store(y_ptr + start + cols, x * x, mask=cols < n_cols)

def square_mine(x, BLOCK_SIZE, num_warps):
    y = torch.empty_like(x)
    square_kernel[(x.shape[0],)](y, x, x.shape[1], BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps)
    return y""",
    "explore": """shown = widgets.explore(
    square_mine, against=[torch.square], n_cols=[256, 1024], dtype=["float32"],
    BLOCK_SIZE=[512, 1000, 1024, 8192], num_warps=[1, 4, 8])
shown""",
}


def test_your_own_kernel_and_its_saved_page(chrome, opened, lab):
    """Sliders reach a wrong point, a refused one and a spill; then the page opens without a network."""
    write_notebook(lab[1], "own", OWN)
    page = opened("own")
    page.page.evaluate("() => jupyterapp.commands.execute('application:toggle-left-area')")
    cell = page.cell("explore")
    cell.locator(".kx input[type=range]").first.wait_for()
    figure, status = cell.locator(".kx-figure").first, cell.locator(".kx-lines").first
    see(cell.locator(".kx-note").first, "compiled for sm_90")
    see(status, "square_mine: right on 3 × 1,024 in Triton's interpreter, not timed")
    press(page, cell, "BLOCK_SIZE", "ArrowLeft")
    see(status, "square_mine: refused: square_kernel does not compile for sm_90")
    press(page, cell, "BLOCK_SIZE", "ArrowLeft")
    see(status, "square_mine: wrong: it writes only the first 512 of 1,024 columns in each row: 50.0 %")
    expect(figure.locator(".kx-wrong")).to_have_text("wrong")
    expect(figure.locator(".kx-track i")).to_have_count(0)  # nothing wrong has a length
    press(page, cell, "columns, N", "ArrowLeft")
    see(status, "square_mine: right on 3 × 256")
    for _ in range(3):
        press(page, cell, "BLOCK_SIZE", "ArrowRight")
    press(page, cell, "num_warps", "ArrowLeft")
    see(status, "bytes spilled")
    theme(page, "Dark")
    cell.locator("button", has_text="Compile and check the whole map").click()
    expect(cell.locator(".kx-none")).to_have_count(0)
    cell.locator("button", has_text="Save page and table").click()
    see(cell.get_by_text("saved:"), "saved: square_mine.html and square_mine.csv")
    screenshot(page, "own-dark")
    context = chrome.new_context(viewport={"width": 1000, "height": 1300}, offline=True)
    page = harness.Page(context.new_page())
    page.page.goto((lab[1] / "square_mine.html").as_uri())
    body = page.page.locator(".kx")
    see(body.locator(".kx-note").first, "not timed")
    press(page, body, "BLOCK_SIZE", "Home")
    press(page, body, "num_warps", "Home")
    # An SM holds 32 blocks of one warp, half of its threads; with 1,024 columns the kernel is wrong.
    see(body.locator(".kx-figure").first, "right, 50 % occupied")
    press(page, body, "num_warps", "ArrowRight")
    press(page, body, "columns, N", "End")
    see(body.locator(".kx-figure").first, "wrong")
    context.close()
    assert page.errors == []


QUESTIONS = {
    "ask-number": 'predict.ask("sectors", "How many sectors does a warp ask for?", unit="sectors")',
    "answer-number": "touched = 4\npredict.reveal('sectors', touched, because='Two rows of `two` sectors.')",
    "ask-choice": 'predict.ask("which", "Which element?", choices=["m[0, 1]", "m[0, 2]", "m[1, 0]"])',
    "answer-choice": 'predict.reveal("which", "m[0, 2]")',
    "ask-range": 'predict.ask("share", "What share of the copy\'s speed?", unit="%", measured=True)',
    "answer-range": 'predict.reveal("share", 66.6)',
    "review": "predict.review()",
}


def run_cell(page: harness.Page, name: str) -> None:
    """Run one cell of the notebook that is open."""
    page.cell(name)
    page.page.evaluate("() => jupyterapp.commands.execute('notebook:run-cell')")


def saved(cell: Any, words: str) -> None:
    see(cell.locator("[role=status]"), f"saved: {words}. You can change it")


FIGURE = "import plotly.graph_objects as go\ngo.Figure(go.Bar(y=[1, 2]))"


def test_figures_follow_jupyterlabs_dark_theme(opened, lab):
    write_notebook(
        lab[1], "dark", {"begin": "from helpers import device\ndevice.prepare()", "figure": FIGURE}
    )
    page = opened("dark")
    drawn = page.cell("figure").locator(".js-plotly-plot")
    theme(page, "Light")
    expect(drawn).to_have_css("filter", "none")
    theme(page, "Dark")
    expect(drawn).to_have_css("filter", re.compile("invert"))


def test_notebook_7(chrome, tmp_path):
    """Sliders over records, recompiled PTX and a prediction work in Notebook 7 as in JupyterLab."""
    cells = {
        "begin": settings(WORKBOOK_PROGRESS=str(tmp_path / "progress"), WORKBOOK_STRICT="")
        + "from helpers import predict, widgets",
        "explore": "widgets.explore()",
        "ptx": "widgets.explore_ptx()",
        "ask-number": QUESTIONS["ask-number"],
        "answer-number": QUESTIONS["answer-number"],
    }
    write_notebook(tmp_path, "seven", cells)
    with harness.jupyterlab(tmp_path, "notebook", CUDA_VISIBLE_DEVICES="") as address:
        page = harness.Page(chrome.new_page(viewport={"width": 1280, "height": 1200}))
        page.run_notebook(f"{address}/notebooks/seven.ipynb")
        for name, changes in (("explore", ".kx-figure"), ("ptx", ".kx-facts")):
            cell = page.cell(name)
            cell.locator(".kx-slider input").first.wait_for()
            before = cell.locator(changes).first.inner_text()
            cell.locator(".kx-slider input").first.press("ArrowRight")
            expect(cell.locator(changes).first).not_to_have_text(before)
        number = page.cell("ask-number")
        number.locator("input").fill("8")
        number.locator("input").press("Enter")
        see(page.cell("answer-number"), "You said 8 sectors; it is 4 sectors.")
        screenshot(page, "notebook-7")
        # The exception is an error of Notebook's own settings, also in an empty notebook.
        assert [error for error in page.errors if "reading 'schema'" not in error] == []


def test_questions_in_jupyterlab(opened, lab, tmp_path):
    """Predictions made by keyboard and mouse are revealed and survive a reload and a new kernel."""
    begin = settings(WORKBOOK_PROGRESS=str(tmp_path), WORKBOOK_STRICT="") + "from helpers import predict"
    write_notebook(lab[1], "asked", {"begin": begin, **QUESTIONS})
    # Running all cells at once reveals nothing.
    page = opened("asked")
    keyboard = page.page.keyboard
    see(page.cell("answer-number"), "You haven't answered yet.")
    expect(page.cell("answer-number").get_by_text("It is 4 sectors.")).to_be_hidden()
    see(page.cell("review"), "answered any question yet")
    # A number that is typed after that: Enter saves it, and the folded answer below opens.
    number = page.cell("ask-number")
    number.locator("input").click()
    keyboard.type("many")
    keyboard.press("Enter")
    see(number.locator("[role=status]"), "“many” is not a number")
    number.locator("input").fill("8")
    keyboard.press("Enter")
    see(page.cell("answer-number"), "You said 8 sectors; it is 4 sectors.")
    see(page.cell("answer-number"), "Two rows")
    see(page.cell("ask-number"), "before you saw the answer")
    expect(page.cell("ask-number").locator("input")).to_be_disabled()
    # A choice in a new kernel: Enter saves it, and then Shift+Enter runs the next cell, which reveals it.
    page.page.evaluate("() => document.querySelectorAll('form').forEach((old) => old.dataset.old = '')")
    page.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    for name in ("begin", "ask-number", "ask-range", "ask-choice"):
        run_cell(page, name)
    choice = page.cell("ask-choice")
    choice.locator("form:not([data-old])").wait_for()
    choice.locator("input[type=radio]").first.focus()
    keyboard.press("Space")
    keyboard.press("ArrowDown")
    expect(choice.get_by_label("m[0, 2]")).to_be_checked()
    see(choice.locator("[role=status]"), "not saved yet")
    keyboard.press("Enter")
    saved(choice, "m[0, 2]")
    keyboard.press("Shift+Enter")
    see(page.cell("answer-choice"), "You said m[0, 2]; it is m[0, 2]: ✓ right.")
    # A range: it is saved when the field is left, and a reload of the page keeps it.
    part = page.cell("ask-range")
    part.get_by_label("from, in %").click()
    keyboard.type("50")
    keyboard.press("Tab")
    keyboard.type("80 %")
    keyboard.press("Tab")
    keyboard.press("Tab")
    saved(part, "50 to 80 %")
    page.page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    page.page.reload()
    page.page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.content?.widgets?.length > 1")
    part = page.cell("ask-range")
    expect(part.get_by_label("to, in %")).to_have_value("80")
    saved(part, "50 to 80 %")
    # A new runtime without the stored answers, as in Colab: the browser still knows them.
    (tmp_path / "predictions.json").unlink()
    page.page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    for name in ("begin", "ask-number", "ask-range"):
        run_cell(page, name)
    saved(page.cell("ask-range"), "50 to 80 %")
    see(page.cell("ask-number"), "You said 8 sectors before you saw the answer")
    run_cell(page, "answer-range")
    see(page.cell("answer-range"), "You said 50 to 80 %; it is 66.6 %: ✓ inside the range.")
    run_cell(page, "review")
    see(page.cell("review"), "Right: 0 of 1")  # of what this kernel asked
    theme(page, "Dark")
    page.cell("ask-number")
    screenshot(page, "lab-predict-dark")


def test_a_lab_in_jupyterlab(opened, lab, tmp_path):
    """A right answer, a wrong one, the table, and the starter's cell back: as a learner sees them."""
    kept = {"WORKBOOK_PROGRESS": str(tmp_path)}
    cells = {
        "begin": settings(**kept) + "from helpers.lab import NotYet, check, progress, reset",
        "right": "def sectors_of_a_run(first_byte, n_bytes):\n"
        "    return 0 if n_bytes == 0 else (first_byte + n_bytes - 1) // 32 - first_byte // 32 + 1",
        "check-right": 'check("sectors-of-a-run", sectors_of_a_run)',
        "check-wrong": 'try:\n    check("sectors-of-a-run", lambda first_byte, n_bytes: -(-n_bytes // 32))\n'
        "except NotYet as told:\n    print(told)",
        "table": 'progress("05_ncu")',
        "again": 'reset("sectors-of-a-run")',
    }
    write_notebook(lab[1], "try", cells)
    page = opened("try")
    see(page.cell("check-right"), "cases agree")
    see(page.cell("check-wrong"), "Hint:")
    see(page.cell("table"), "1 of 6 exercises passed")
    new = page.page.evaluate(
        "() => jupyterapp.shell.currentWidget.content.widgets.map(c => c.model.sharedModel.source)"
    )
    screenshot(page, "lab-of-a-learner")
    assert len(new) == len(cells) + 1 and "NotImplementedError" in new[-1] and "def " in new[-1]
    table = subprocess.run(
        [sys.executable, "-c", "from helpers.lab import progress; print(progress('05_ncu'))"],
        env={**os.environ, **kept},
        capture_output=True,
        text=True,
    )
    assert "sectors-of-a-run" in table.stdout
    assert "passed" not in table.stdout.split("\n")[2], "reset did not forget the pass"


def test_sliders_and_questions_are_accessible_in_jupyterlab(opened, lab):
    """Only what the workbook draws is checked, because JupyterLab has faults of its own."""
    cells = OWN | {
        "launch": "widgets.explore()",
        "grid": "widgets.explore_grid()",
        "ptx": "widgets.explore_ptx(aligned=True)",
        "ask": "from helpers import predict\n" + QUESTIONS["ask-choice"],
        "reveal": QUESTIONS["answer-choice"],
    }
    write_notebook(lab[1], "accessible", cells)
    page = opened("accessible")
    page.page.evaluate("() => jupyterapp.commands.execute('application:toggle-left-area')")
    # Several widgets share the page, and each keeps its own choices.
    for group in page.page.locator(".kx fieldset:has(input[type=radio])").all():
        expect(group.locator("input:checked")).to_have_count(1)
    drawn = {name: ".kx" for name in ("launch", "explore", "grid", "ptx")} | {
        "ask": "form",
        "reveal": "details",
    }
    found = {}
    for shade in ("Light", "Dark"):
        theme(page, shade)
        for width in (1000, 400):
            page.page.set_viewport_size({"width": width, "height": 1200})
            for name, element in drawn.items():
                cell = page.cell(name)
                cell.locator(element).first.wait_for()
                if faults := harness.accessibility_faults(page.page, f'[data-cell="{name}"] {element}'):
                    found[name, shade, width] = faults
                screenshot(page, f"accessible-{name}-{shade.lower()}-{width}")
    assert found == {}


# ------------------------------------------------------------------------------------------- pages


WIDE = """from IPython.display import HTML
HTML('<p style="width: 2000px">wide</p>')"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of the sliders' cells, as `workbook run` makes them of a lesson."""
    folder = tmp_path_factory.mktemp("pages")
    needed = {
        "02_load_inline": ("grid-picture",),
        "03_triton": ("imports", "try-block-size"),
        "04_ptx": ("imports", "kernel-square-rows", "compile-square-rows", "try-it"),
    }
    for name, ids in needed.items():
        notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
        notebook.cells = [c for c in notebook.cells if c["id"] in ("setup", "parameters", *ids)]
        notebook.cells.append(nbformat.v4.new_code_cell(WIDE, id="wide"))
        notebook.cells.append(nbformat.v4.new_code_cell(FIGURE, id="figure"))
        nbformat.write(notebook, folder / f"{name}.ipynb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        report = batch.run_course([folder / f"{name}.ipynb" for name in needed], out=folder / "out")
    assert report.ok, repr(report)
    return folder / "out"


@pytest.fixture
def offline(chrome: Any, pages: Path) -> Iterator[Callable]:
    """Open a page from disk in a browser that has no network."""
    opened = []

    def open_page(name: str) -> harness.Page:
        context = chrome.new_context(viewport={"width": 1200, "height": 1000}, offline=True)
        page = harness.Page(context.new_page())
        opened.append(page)
        page.page.goto((pages / f"{name}.html").as_uri())
        return page

    yield open_page
    for page in opened:
        page.page.context.close()
    assert [error for page in opened for error in page.errors] == []


def batch_of(out: Path, ended: int, points: int = 12) -> None:
    """Write the index of a batch of points on a plane, of which the first ones have ended."""
    rows = []
    for i in range(points):
        at, name = {"n_rows": 8 ** (i % 4), "warps": 2 ** (i // 4)}, f"point-{i}"
        found = tuple(
            findings.Figure(f"{n}_gb_per_s", 100.0 * (i + 1), "live, a GPU") for n in ("ours", "theirs")
        )
        status = "waiting" if i >= ended else "failed" if i == 2 else "ok"
        rows.append(
            notebook_runs.NotebookRun(name, "/s.ipynb", "A sweep", status, at, seconds=2.0, figures=found)
        )
    running = {f"point-{ended}": "cell 3 of 9, sweep"} if ended < points else None
    date = "2026-11-22T10:00:00+00:00"
    report.write_index(notebook_runs.RunReport(out, date, 9.0, tuple(rows), running=running, left_s=75))


def test_the_index_of_a_batch_draws_its_grid_and_reloads(chrome, tmp_path):
    batch_of(tmp_path, 5)
    context = chrome.new_context(viewport={"width": 1200, "height": 1000}, offline=True)
    page = harness.Page(context.new_page())
    body, plots = page.page.locator("body"), page.page.locator(".js-plotly-plot")
    page.page.goto((tmp_path / "index.html").as_uri())
    see(body, "4 ok, 1 failed, 1 running, 6 waiting")
    see(body, "1 min 15 s")
    see(plots.first, "failed")
    expect(plots.locator(".gtitle")).to_have_count(2)
    screenshot(page, "batch-runs")
    page.page.mouse.wheel(0, 400)
    batch_of(tmp_path, 12)  # the page reloads by itself
    see(body, "11 ok, 1 failed")
    expect(plots.locator(".gtitle")).to_have_count(2)
    assert page.page.evaluate("scrollY") > 0
    see(plots.nth(1), "theirs (GB/s)")
    assert "reload" not in page.page.content()
    context.close()
    assert page.errors == []


def test_the_page_of_lesson_02_keeps_its_sliders(offline):
    page = offline("02_load_inline")
    body = page.page.locator(".kx").first
    title, status = body.locator(".kx-title"), body.locator("[role=status]").first
    drag(page, body, "block, x", 0.0)
    press(page, body, "block, y", "End")
    see(title, "Blocks of 1 × 256")
    point = {"kernel": "CUDA C++", "block_x": 1, "block_y": 256}
    see(status, speed("load_inline/shape-sweep", **point, n_cols=4096))
    see(status, "32 sectors")
    for _ in range(2):
        press(page, body, "columns, N", "ArrowLeft")
    see(status, speed("load_inline/shape-sweep", **point, n_cols=781))
    press(page, body, "block, x", "End")
    see(status, "1024 × 256 is refused")
    screenshot(page, "page-02-grid")


def test_the_page_of_lesson_03_keeps_its_sliders(offline):
    page = offline("03_triton")
    rows = recorded("triton/launch-sweep")["rows"]
    body = page.page.locator(".kx").first
    figure = body.locator(".kx-figure").first
    point = {"kernel": "Triton flat", "block_size": 4096, "num_warps": 8, "n_cols": 4096, "dtype": "float32"}
    for axis, label, key, value in (
        ("block_size", "BLOCK_SIZE", "ArrowLeft", 2048),
        ("num_warps", "num_warps", "ArrowRight", 16),
        ("n_cols", "columns, N", "ArrowLeft", 2048),
    ):
        press(page, body, label, key)
        point[axis] = value
        see(figure, f"{found(rows, **point)['gb_per_s']:,.0f} GB/s")
    choose(body, "bfloat16")
    point["dtype"] = "bfloat16"
    see(figure, f"{found(rows, **point)['gb_per_s']:,.0f} GB/s")
    cells = body.locator(".kx-cell")
    shown = found(rows, **{**point, "kernel": "Triton rows", "block_size": 8192, "num_warps": 1})
    see(cells.first, f"{shown['gb_per_s']:,.0f}")
    see(cells.last, "wrong")
    # A screen reader hears values, not positions, and nothing moves by itself.
    expect(slider(body, "BLOCK_SIZE")).to_have_attribute("aria-valuetext", "2,048")
    assert page.page.evaluate("document.getAnimations().length") == 0
    screenshot(page, "page-03-explore")
    # Another GPU: the same position.
    choose(body, "H100")
    see(body.locator(".kx-note").first, "H100")
    see(slider(body, "BLOCK_SIZE").locator("xpath=../output"), "2,048")


def test_the_page_of_lesson_04_keeps_its_sliders(offline):
    page = offline("04_ptx")
    body = page.page.locator(".kx").first
    facts = body.locator("[role=status]").first
    press(page, body, "BLOCK_SIZE", "ArrowRight")
    see(facts, "loads per thread4 (was 2)")
    drag(page, body, "BLOCK_SIZE", 0.0)
    see(slider(body, "BLOCK_SIZE").locator("xpath=../output"), "256")
    # As far as registers spill.
    press(page, body, "BLOCK_SIZE", "End")
    press(page, body, "num_warps", "Home")
    spilled = r"spilled \(bytes per thread\)"
    expect(facts).to_contain_text(re.compile(rf"{spilled}[1-9]"))
    press(page, body, "num_warps", "End")
    expect(facts).to_contain_text(re.compile(rf"{spilled}0"))
    screenshot(page, "page-04-ptx")
    for width in (1200, 400):
        page.page.set_viewport_size({"width": width, "height": 700})
        controls_stay_in_view(page, body)
        edge_fades(body.locator(".kx-panes .kx-text").first)
        body.locator(".kx-panes .kx-text").first.evaluate("box => box.scrollTo(0, 0)")


def test_code_on_a_page_is_copied_and_never_cut_off(offline):
    page = offline("04_ptx")
    page.page.evaluate("() => { navigator.clipboard.writeText = (text) => { window.copied = text; }; }")
    for width in (1280, 400):
        page.page.set_viewport_size({"width": width, "height": 800})
        blocks = page.page.locator(".jp-Cell-inputArea .highlight pre").all()
        assert not [one for one in blocks if one.evaluate("pre => pre.scrollWidth > pre.clientWidth + 1")]
    cell = page.page.locator('[id="cell-id=kernel-square-rows"]')
    cell.get_by_role("button", name="Copy this code").click()
    assert page.page.evaluate("window.copied").startswith("@triton.jit\ndef square_rows_kernel(")
    printed = page.page.locator('[id="cell-id=wide"] .jp-OutputArea-output')
    expect(printed).to_have_class(re.compile("kw-fades"))  # more is to the right, and the keyboard gets there
    expect(printed).to_have_attribute("tabindex", "0")
    printed.evaluate("box => box.scrollTo(box.scrollWidth, 0)")
    expect(printed).not_to_have_class(re.compile("kw-fades"))


def lightness(color: str) -> float:
    """The mean of a CSS color's red, green and blue, from 0 to 255."""
    return sum(map(float, re.findall(r"[\d.]+", color)[:3])) / 3


def test_the_pages_of_a_batch_follow_the_dark_theme(chrome, pages, tmp_path):
    batch_of(tmp_path, 12)
    for theme in ("light", "dark"):
        context = chrome.new_context(color_scheme=theme, offline=True)
        page = context.new_page()
        for path in (pages / "04_ptx.html", tmp_path / "index.html"):
            page.goto(path.as_uri())
            drawn = page.locator(".js-plotly-plot").first
            expect(drawn).to_have_css("filter", re.compile("invert" if theme == "dark" else "none"))
            ink, back = page.evaluate(
                "(({color, backgroundColor: b}) => [color, b])(getComputedStyle(document.body))"
            )
            assert (lightness(ink) > 200 and lightness(back) < 40) == (theme == "dark")
            assert (lightness(ink) < 60 and lightness(back) > 240) == (theme == "light")
        context.close()


# nbconvert draws these: its prompts and some of its colors of code have too little contrast.
NBCONVERT = (".jp-InputPrompt", ".jp-OutputPrompt", ".jp-InputArea .highlight")


@pytest.mark.parametrize(("width", "theme"), [(1000, "light"), (400, "dark")])
def test_the_pages_of_a_batch_are_accessible(chrome, pages, width, theme):
    viewport = {"width": width, "height": 1000}
    context = chrome.new_context(viewport=viewport, color_scheme=theme, offline=True)
    found = {}
    for path in sorted(pages.glob("*.html")):
        page = harness.Page(context.new_page())
        page.page.goto(path.as_uri())
        if path.stem in SLIDERS:
            page.page.locator(".kx input[type=range]").first.wait_for()
        wide = page.page.evaluate("document.documentElement.scrollWidth")
        faults = [f"is {wide} pixels wide"] * (wide > width)
        if faults := faults + harness.accessibility_faults(page.page, outside=NBCONVERT) + page.errors:
            found[path.name] = faults
    context.close()
    assert found == {}


def test_a_page_works_in_firefox(pages, tmp_path):
    """Firefox unpacks the recorded positions, and a slider moves by keyboard."""
    point = {"kernel": "CUDA C++", "block_x": 16, "block_y": 16, "n_cols": 4096}
    sweep = "load_inline/shape-sweep"
    with firefox.tab(tmp_path, (pages / "02_load_inline.html").as_uri()) as tab:
        tab.wait(
            f"document.querySelector('.kx [role=status]').textContent.includes('{speed(sweep, **point)}')"
        )
        tab.evaluate("document.querySelector('.kx-slider input').focus()")
        tab.press(firefox.ARROW_RIGHT)
        moved = speed(sweep, **point | {"block_x": 32})
        tab.wait("document.querySelector('.kx-title').textContent.includes('Blocks of 32 × 16')")
        tab.wait(f"document.querySelector('.kx [role=status]').textContent.includes('{moved}')")


# ------------------------------------------------------------------------------------------- without Chromium


def test_without_chromium_the_error_has_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(debian.shutil, "which", lambda name: None)
    monkeypatch.setattr(debian.os, "geteuid", lambda: 1000)
    with pytest.raises(RuntimeError, match="sudo apt-get install -y chromium"):
        harness.chromium()
