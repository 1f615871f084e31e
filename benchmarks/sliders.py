"""How quickly a slider answers, in a real browser: from the key press to the repainted figure.

    python benchmarks/sliders.py

JupyterLab shows the sliders' cells of lessons 02, 03 and 04; each slider is moved by keyboard, and the
browser's own clock runs from the key's event to the frame after it was drawn again. The same sliders are also
moved on the static pages that a batch writes. With a GPU, a position that was never measured is compiled,
checked and measured, and then visited again. Each figure is printed with the project's target and their ratio
(below 1 is within the target).
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import nbformat

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import browser as harness  # noqa: E402

from helpers import device  # noqa: E402
from workbook import batch  # noqa: E402

MOVE_MS, PAGE_MOVE_MS, PTX_MS, FIRST_PAINT_MS = 60, 40, 300, 500
PAGE_MB, LIVE_S, AGAIN_S = 1.5, 1.5, 0.1
CELLS = {
    "02_load_inline": ("grid-picture",),
    "03_triton": ("imports", "try-block-size"),
    "04_ptx": ("imports", "kernel-square-rows", "compile-square-rows", "try-it"),
}
ROUNDS = 5
VIEWPORT = {"width": 1440, "height": 1200}


def against(what: str, figure: float, unit: str, target: float) -> None:
    """One line: a figure, its target, their ratio."""
    print(f"{what:<52} {figure:>8.3g} {unit:<3} target {target:>5g} {unit:<3} ratio {figure / target:.2f}")


def moves(page: harness.Page, where) -> dict[str, list[float]]:
    """Milliseconds of each move of each slider in a cell or on a page."""
    times: dict[str, list[float]] = {}
    sliders = where.locator(".kx-slider")
    for i in range(sliders.count()):
        knob = sliders.nth(i).locator("input")
        at_end = knob.evaluate("input => input.value === input.max")
        keys = ("ArrowLeft", "ArrowRight") if at_end else ("ArrowRight", "ArrowLeft")
        for key in keys * ROUNDS:
            times.setdefault(sliders.nth(i).locator("span").first.text_content(), []).append(
                harness.timed_press(page.page, knob, key, where.locator(".kx").first)
            )
            page.page.wait_for_timeout(120)
    return times


def ptx_moves(page: harness.Page, where) -> dict[str, list[float]]:
    """Milliseconds until the panes show new code; each position is compiled for the first time."""
    times: dict[str, list[float]] = {}
    sliders, panes = where.locator(".kx-slider"), where.locator(".kx-panes").first
    for i, key in [*[(0, "ArrowRight")] * 3, *[(1, "ArrowRight")] * 2, *[(0, "ArrowLeft")] * 4]:
        name = sliders.nth(i).locator("span").first.text_content()
        knob = sliders.nth(i).locator("input")
        times.setdefault(name, []).append(harness.timed_press(page.page, knob, key, panes))
        page.page.wait_for_timeout(120)
    return times


def report(lesson: str, what: str, times: dict[str, list[float]], target: float) -> None:
    for slider, found in times.items():
        middle, worst = statistics.median(found), max(found)
        print(f"  {lesson}, {slider:<20} median {middle:>5.0f} ms, worst {worst:>5.0f} ms")
    every = [t for found in times.values() for t in found]
    against(f"{lesson}: {what}", statistics.median(every), "ms", target)


def write_lessons(folder: Path) -> None:
    """Write the lessons without the cells that the sliders don't need."""
    for lesson, ids in CELLS.items():
        notebook = nbformat.read(ROOT / "notebooks" / f"{lesson}.ipynb", as_version=4)
        notebook.cells = [c for c in notebook.cells if c["id"] in ("setup", "parameters", *ids)]
        nbformat.write(notebook, folder / f"{lesson}.ipynb")


def in_jupyterlab() -> None:
    """Moves in JupyterLab among recorded positions, PTX that is compiled anew, and the first paint."""
    with tempfile.TemporaryDirectory() as name:
        write_lessons(Path(name))
        without_gpu = {"CUDA_VISIBLE_DEVICES": "", "TRITON_CACHE_DIR": f"{name}/.triton"}
        with harness.jupyterlab(Path(name), **without_gpu) as server, harness.browser() as chrome:
            for lesson, ids in CELLS.items():
                address = f"{server}/lab/workspaces/{lesson}/tree/{lesson}.ipynb"
                page = harness.Page(chrome.new_page(viewport=VIEWPORT))
                page.run_notebook(address)
                cell = page.cell(ids[-1])
                cell.locator(".kx-slider").first.wait_for()
                page.page.wait_for_timeout(1500)
                if lesson == "04_ptx":
                    report(lesson, "PTX compiled and painted; SASS follows", ptx_moves(page, cell), PTX_MS)
                else:
                    report(lesson, "move in JupyterLab", moves(page, cell), MOVE_MS)
                page.page.close()
                # The same kernel, and a browser that has nothing in its cache.
                page = harness.Page(chrome.new_page(viewport=VIEWPORT))
                page.open_notebook(address)
                first = harness.timed_first_paint(page, ids[-1])
                against(f"{lesson}: first paint after the cell ended", first, "ms", FIRST_PAINT_MS)
                page.page.close()


def on_static_pages() -> None:
    """Moves on the pages of a batch, which have every recorded position, and the size of these pages."""
    with tempfile.TemporaryDirectory() as name, harness.browser() as chrome:
        folder = Path(name)
        write_lessons(folder)
        lessons = ("02_load_inline", "03_triton")
        notebooks = [folder / f"{lesson}.ipynb" for lesson in lessons]
        with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=""):
            made = batch.run_course(notebooks, out=folder / "out")
        if not made.ok:
            raise RuntimeError(repr(made))
        for lesson in lessons:
            path = folder / "out" / f"{lesson}.html"
            page = harness.Page(chrome.new_page(viewport=VIEWPORT))
            page.page.goto(path.as_uri())
            page.page.locator(".kx-slider").first.wait_for()
            report(lesson, "move on a static page", moves(page, page.page.locator("body")), PAGE_MOVE_MS)
            against(f"{lesson}: size of the page", path.stat().st_size / 1e6, "MB", PAGE_MB)
            page.page.close()


def on_this_gpu() -> None:
    """A point that was never measured, and the same one again."""
    from helpers.widgets.square import LAUNCH
    from helpers.widgets.table import Table

    first, again = [], []
    # Sizes that no slider has: nothing is compiled or measured yet.
    for n_cols in (1000, 2000, 3000, 5000, 7000):
        table = Table(LAUNCH, device.gpu_spec(), live=True)
        for kernel in LAUNCH.mapped:
            point = {**LAUNCH.start, "block_size": 8192, "n_cols": n_cols}
            for times in (first, again):
                begin = time.perf_counter()
                table.measured(kernel, point)
                times.append(time.perf_counter() - begin)
    against("a live point: compiled, checked, measured", statistics.median(first), "s", LIVE_S)
    against("the same point again", statistics.median(again), "s", AGAIN_S)


def of_your_own() -> None:
    """Positions of your own function: timed on a GPU; without one compiled for another, and checked."""
    import torch
    import triton

    from helpers.kernels import square
    from helpers.widgets.own import Asked, own_space
    from helpers.widgets.residence import spec_for
    from helpers.widgets.table import Table

    lists = {"block_size": [2**i for i in range(6, 14)], "num_warps": [4]}
    space = own_space(square.square_flat, Asked(against=torch.square), lists).space
    timed = device.has_gpu()
    table = Table(space, device.gpu_spec() if timed else spec_for(None), live=True, timed=timed)
    times = []
    with tempfile.TemporaryDirectory() as folder:
        triton.knobs.cache.dir = folder  # nothing is compiled yet
        for block_size in lists["block_size"]:
            begin = time.perf_counter()
            row = table.measured(space.name, {**space.start, "block_size": block_size})
            times.append(time.perf_counter() - begin)
            assert row["verdict"] in ("ok", "right"), row["reason"]
    done = "checked, measured" if timed else "checked, not timed"
    # The first one pays for Triton's start.
    against(f"a position of your own: compiled, {done}", statistics.median(times[1:]), "s", LIVE_S)


if __name__ == "__main__":
    try:
        harness.chromium()
    except RuntimeError as missing:
        print(missing)
    else:
        in_jupyterlab()
        on_static_pages()
    of_your_own()
    if device.has_gpu():
        on_this_gpu()
    else:
        print("a live point: not here, it needs a GPU")
