"""How quickly a slider answers, in a real browser: from the key press to the repainted figure.

    python benchmarks/sliders.py

JupyterLab shows the sliders' cells of lessons 02, 03 and 04; each slider is moved by keyboard, and the
browser's own clock runs from the key's event to the frame after it was drawn again. On a GPU also a live
point: compiled, checked and measured, and the same one again. Its peers are the project's targets, printed as
ratios (below 1 is within the target).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import nbformat

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import browser as harness  # noqa: E402

from helpers import device  # noqa: E402

MOVE_MS, PTX_MS, LIVE_S, AGAIN_S = 60, 300, 1.5, 0.1
CELLS = {
    "02_load_inline": ("grid-picture",),
    "03_triton": ("try-block-size",),
    "04_ptx": ("imports", "kernel-square-rows", "compile-for-real", "compile-square-rows", "try-it"),
}
ROUNDS = 5


def against(what: str, figure: float, unit: str, target: float) -> None:
    """One line: a figure, its target, their ratio."""
    print(f"{what:<52} {figure:>8.3g} {unit:<3} target {target:>5g} {unit:<3} ratio {figure / target:.2f}")


def moves(page: harness.Page, cell, lesson: str) -> dict[str, list[float]]:
    """Milliseconds of every move of every slider in the cell."""
    times: dict[str, list[float]] = {}
    sliders, body = cell.locator(".kx-slider"), cell.locator(".kx > div").last
    keys = [(i, key) for i in range(sliders.count()) for key in ("ArrowRight", "ArrowLeft") * ROUNDS]
    # Every position is new: none was compiled before, and Triton's cache folder is empty.
    if lesson == "04_ptx":
        keys = [*[(0, "ArrowRight")] * 3, *[(1, "ArrowRight")] * 2, *[(0, "ArrowLeft")] * 4]
    for i, key in keys:
        name = sliders.nth(i).locator("span").first.text_content()
        knob = sliders.nth(i).locator("input")
        target = cell.locator(".kx-panes") if lesson == "04_ptx" else body
        times.setdefault(name, []).append(harness.timed_press(page.page, knob, key, target))
        page.page.wait_for_timeout(120)
    return times


def in_the_browser() -> None:
    """Moves in JupyterLab, from the record."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for lesson, ids in CELLS.items():
            notebook = nbformat.read(ROOT / "notebooks" / f"{lesson}.ipynb", as_version=4)
            notebook.cells = [c for c in notebook.cells if c["id"] in ("setup", "parameters", *ids)]
            nbformat.write(notebook, folder / f"{lesson}.ipynb")
        with (
            harness.jupyterlab(
                folder, CUDA_VISIBLE_DEVICES="", TRITON_CACHE_DIR=f"{name}/.triton"
            ) as address,
            harness.browser() as chrome,
        ):
            for lesson, ids in CELLS.items():
                page = harness.Page(chrome.new_page(viewport={"width": 1440, "height": 1200}))
                page.run_notebook(f"{address}/lab/workspaces/{lesson}/tree/{lesson}.ipynb")
                cell = page.cell(ids[-1])
                cell.locator(".kx-slider").first.wait_for()
                page.page.wait_for_timeout(1500)
                ptx = lesson == "04_ptx"
                times = moves(page, cell, lesson)
                for slider, found in times.items():
                    print(
                        f"  {lesson}, {slider:<20} median {statistics.median(found):>5.0f} ms, worst "
                        f"{max(found):>5.0f} ms"
                    )
                every = [t for found in times.values() for t in found]
                what = (
                    "PTX recompiled and repainted; SASS follows"
                    if ptx
                    else "slider moved and repainted, recorded data"
                )
                against(f"{lesson}: {what}", statistics.median(every), "ms", PTX_MS if ptx else MOVE_MS)
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
        in_the_browser()
    of_your_own()
    if device.has_gpu():
        on_this_gpu()
    else:
        print("a live point: not here, it needs a GPU")
