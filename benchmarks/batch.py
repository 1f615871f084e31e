"""What a batch costs: its time compared with papermill, the memory of its process, the plan, the report in a
browser, and several GPUs.

    python benchmarks/batch.py                        # all parts; about 15 minutes on two cores
    python benchmarks/batch.py speed report
    python benchmarks/batch.py memory --points 100

The time is compared with papermill, which runs interleaved with the batches so that both see the same load.
Everything else is compared with the project's targets. Each figure is printed as a ratio; below 1 is within
the target. `gpus` needs two GPUs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat
import pandas as pd
import plotly.io

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from workbook import gpus  # noqa: E402
from workbook.batch import findings, load_results, notebook_runs, plan, report  # noqa: E402
from workbook.options import RunOptions  # noqa: E402

OVER_PAPERMILL, RUNNER_MB, PLAN_S, OPEN_S, GPU_SHARE = 1.3, 200, 5, 2, 0.6
WIDEST = 12_672  # columns of lesson 03's curve
SLEEP_S, JOBS, ROUNDS = 2, 4, 3
PAPERMILL = (
    "import papermill, sys, time; b = time.perf_counter(); {runs}; print((time.perf_counter() - b) / {n})"
)
ONCE = "papermill.execute_notebook(sys.argv[1], sys.argv[2], parameters={'n': 1}, progress_bar=False)"


def against(what: str, figure: float, unit: str, target: float) -> None:
    """One line: a figure, its target, their ratio."""
    print(f"{what:<62} {figure:>8.2f} {unit:<3} target {target:>6.4g} {unit:<3} ratio {figure / target:.2f}")


def notebook(path: Path, code: str) -> Path:
    """A notebook with the parameter n and one cell."""
    cell = nbformat.v4.new_code_cell
    cells = [cell("n: int = 0", metadata={"tags": ["parameters"]}), cell(code)]
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), path)
    return path


def batch(*arguments: object, watch: Callable[[int], None] = lambda pid: None) -> float:
    """Run `workbook run` and return its seconds; `watch` is called with its process while it runs."""
    command = [sys.executable, "-m", "workbook", "run", *map(str, arguments)]
    path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    begin = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, **quiet)
    while process.poll() is None:
        watch(process.pid)
        time.sleep(0.05)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}.")
    return time.perf_counter() - begin


def speed(folder: Path, points: int) -> None:
    """Points that sleep, four at a time, interleaved with papermill, which runs one at a time."""
    points = min(points, 60)
    sleeps = notebook(folder / "sleeps.ipynb", f"import time; time.sleep({SLEEP_S})")
    grid = "n=" + ",".join(map(str, range(points)))
    code = PAPERMILL.format(runs="; ".join([ONCE] * 3), n=3)
    ratios = []
    batch(sleeps, "--out", folder / "warm")
    for number in range(ROUNDS):
        alone = [sys.executable, "-c", code, str(sleeps), str(folder / "papermill.ipynb")]
        before = float(subprocess.run(alone, capture_output=True, text=True, check=True).stdout)
        took = batch(sleeps, "--grid", grid, "--jobs", JOBS, "--out", folder / f"speed-{number}")
        after = float(subprocess.run(alone, capture_output=True, text=True, check=True).stdout)
        peer = (before + after) / 2 * points / JOBS
        ratios.append(took / peer)
        print(
            f"  {points} points: {took:.1f} s; papermill {before:.2f} and {after:.2f} s a point, × {points} "
            f"/ {JOBS} = {peer:.1f} s"
        )
    against(
        f"{points} points of {SLEEP_S} s, --jobs {JOBS}, over papermill's share",
        statistics.median(ratios),
        "×",
        OVER_PAPERMILL,
    )


def memory(folder: Path, points: int) -> None:
    """The most memory that `workbook run` itself uses, with notebooks of 5 MB output each."""
    loud = notebook(folder / "loud.ipynb", "print('x' * 5_000_000)")
    most = [0.0]

    def look(pid: int) -> None:
        try:
            found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        except OSError:
            found = None
        most[0] = max(most[0], int(found[1]) * 1024 / 1e6 if found else 0)

    grid = "n=" + ",".join(map(str, range(points)))
    took = batch(loud, "--grid", grid, "--jobs", JOBS, "--out", folder / "loud", watch=look)
    against(f"runner's peak memory, {points} points of 5 MB ({took:.0f} s)", most[0], "MB", RUNNER_MB)


def planning(folder: Path, points: int) -> None:
    """The time to plan ten thousand points."""
    source = notebook(folder / "many.ipynb", "n")
    begin = time.perf_counter()
    jobs = plan.plan([source], RunOptions(grid={"n": [str(i) for i in range(10_000)]}))
    against(f"planning {len(jobs):,} points", time.perf_counter() - begin, "s", PLAN_S)


def opening(folder: Path, points: int) -> None:
    """The report of a thousand points in Chromium: until it is loaded, and until its first figure
    is drawn.
    """
    import browser

    rows = []
    for i in range(1000):
        n, m = 2 ** (i % 25), i // 25
        found = tuple(findings.Figure(f"{k}_gb_per_s", 100.0 + n % 97 + m, "live, GPU") for k in "abcd")
        rows.append(
            notebook_runs.NotebookRun(
                f"p__n={n}__m={m}", "/p.ipynb", "P", "ok", {"n": n, "m": m}, seconds=2.0, figures=found,
                cells={"cell": 1.0}, written=True,
            )
        )  # fmt: skip
    begin = time.perf_counter()
    report.write_index(notebook_runs.RunReport(folder, "2026-11-22T10:00:00+00:00", 1.0, tuple(rows)))
    print(f"  writing index.html, results.csv and report.json: {time.perf_counter() - begin:.2f} s")
    loaded, drawn = [], []
    with browser.browser() as chrome:
        for _ in range(ROUNDS + 1):
            page = chrome.new_context(offline=True, viewport={"width": 1200, "height": 1000}).new_page()
            begin = time.perf_counter()
            page.goto((folder / "index.html").as_uri())
            loaded.append(time.perf_counter() - begin)
            page.locator(".js-plotly-plot .heatmaplayer image").first.wait_for(
                state="attached", timeout=30_000
            )
            drawn.append(time.perf_counter() - begin)
            page.context.close()
    against("a report of 1,000 points, loaded", statistics.median(loaded[1:]), "s", OPEN_S)
    against("the same, until its first heat map is drawn", statistics.median(drawn[1:]), "s", OPEN_S)


def devices(folder: Path, points: int) -> None:
    """Points of lesson 03 on all GPUs at once, then each GPU's share of them while the others are idle."""
    here = gpus.installed()
    if len(here) < 2:
        print(f"  This machine has {len(here)} GPUs; this part needs two.")
        return
    sizes = list(itertools.product((512, 1024, 2048, 4096), (781, 1024, 2048, 4096)))[:points]
    lesson = ROOT / "notebooks" / "03_triton.ipynb"

    def run(name: str, some: Sequence[tuple[int, int]], on: str) -> tuple[float, pd.DataFrame]:
        sweep, out = folder / f"{name}.csv", folder / name
        sweep.write_text("\n".join(["n_rows,n_cols", *(f"{rows},{cols}" for rows, cols in some)]))
        took = batch(lesson, "--sweep", sweep, "--gpus", on, "--out", out)
        found = load_results(out)
        print(
            f"  --gpus {on}: {len(some)} points in {took:.0f} s, {found.seconds.min():.0f} to "
            f"{found.seconds.max():.0f} s each;"
            f" GPUs used: {found.gpu.nunique()}, each point alone on its own: {bool(found.gpu_alone.all())}",
            flush=True,
        )
        return took, pd.concat(
            [widest(out / f"{row.name}.ipynb", row.gpu) for row in found.itertuples(index=False)]
        )

    batch(lesson, "--gpus", "0", "--out", folder / "warm-lesson")
    all_s, beside = run("all", sizes, "all")
    shares = [run(f"gpu-{i}", some, str(i)) for i in range(len(here)) if (some := sizes[i :: len(here)])]
    one_s, alone = sum(took for took, _ in shares), pd.concat([found for _, found in shares])
    what = (
        f"{len(sizes)} points of lesson 03 on {len(here)} GPUs over one at a time ({all_s:.0f} and "
        f"{one_s:.0f} s)"
    )
    against(what, all_s / one_s, "×", GPU_SHARE)
    for (gpu, kernel), mine in beside.groupby(["gpu", "kernel"]):
        idle = alone.query("gpu == @gpu and kernel == @kernel").gb_per_s
        worse = (mine.high < idle.min()).sum()
        half = 50 * ((mine.high - mine.low) / mine.gb_per_s).median()
        print(
            f"  {gpu}, {kernel}: {mine.gb_per_s.min():,.0f} to {mine.gb_per_s.max():,.0f} GB/s beside "
            "others, "
            f"{idle.min():,.0f} to {idle.max():,.0f} with the others idle; {worse} of {len(mine)} below the "
            "lowest of those by "
            f"more than its interval (± {half:.2f} %)"
        )


def widest(path: Path, gpu: str) -> pd.DataFrame:
    """Read the result at lesson 03's widest size, which is the same at every point, from the lesson's curve.

    Returns:
        `gpu`, `kernel`, `gb_per_s` and its 95 % interval, `low` and `high`.
    """
    found = []
    for data in findings.bundles(nbformat.read(path, as_version=4)):
        drawn = data.get("application/vnd.plotly.v1+json", {"data": []})
        for trace in plotly.io.from_json(json.dumps({"data": drawn["data"]})).data:
            error = trace.error_y if trace.type == "scatter" else None
            if error and error.array is not None and WIDEST in trace.x:
                at = list(trace.x).index(WIDEST)
                y = trace.y[at]
                found.append((gpu, trace.name, y, y - error.arrayminus[at], y + error.array[at]))
    if not found:
        sys.exit(f"{path} draws no curve with {WIDEST:,} columns.")
    return pd.DataFrame(found, columns=["gpu", "kernel", "gb_per_s", "low", "high"])


PARTS = {"speed": speed, "memory": memory, "plan": planning, "report": opening, "gpus": devices}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument(
        "--points",
        type=int,
        default=500,
        help="of the memory's batch, at most of speed's and of gpus' (60 and 16)",
    )
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start: other programs make every "
        "figure worse."
    )
    for name in given.parts or PARTS:
        print(f"\n{name}: {PARTS[name].__doc__}")
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](Path(folder), given.points)


if __name__ == "__main__":
    main()
