"""What the course costs: the time of `make run` with cold and warm build caches, memory, import time, sizes.

    python benchmarks/course_time.py            # everything: runs the course twice
    python benchmarks/course_time.py --quick    # import time and sizes only

Each figure is compared with the project's target; a ratio below 1 is within it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
WARM_S, COLD_S, MEMORY_MB, IMPORT_S, NOTEBOOK_KB, RECORDS_MB = 150, 480, 2500, 0.1, 300, 20


def against(what: str, figure: float, unit: str, target: float) -> None:
    """One line: a figure, its target, their ratio."""
    print(f"{what:<44} {figure:>9.2f} {unit:<3} target {target:>7g} {unit:<3} ratio {figure / target:.2f}")


def import_seconds(module: str) -> float:
    """Median time over nine new interpreters, minus that of interpreters that import nothing."""

    def once(code: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
        return time.perf_counter() - begin

    loaded = statistics.median(once(f"import {module}") for _ in range(9))
    return max(0.0, loaded - statistics.median(once("pass") for _ in range(9)))


def course(environment: dict[str, str], out: Path) -> dict:
    """Run the course as `make run` does and return its report.json with the whole command's seconds."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "workbook", "run", "notebooks", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, env=environment, check=False, stdout=subprocess.DEVNULL)
    return {**json.loads((out / "report.json").read_text()), "wall": time.perf_counter() - begin}


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="import time and sizes only")
    quick = parser.parse_args().quick

    against("import helpers", import_seconds("helpers"), "s", IMPORT_S)
    print(f"{'import workbook.cli':<44} {import_seconds('workbook.cli'):>9.2f} s")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        against(f"size of {path.name}", path.stat().st_size / 1e3, "kB", NOTEBOOK_KB)
    records = sum(p.stat().st_size for p in (ROOT / "helpers" / "records").rglob("*") if p.is_file())
    against("size of helpers/records", records / 1e6, "MB", RECORDS_MB)
    if quick:
        return
    with tempfile.TemporaryDirectory() as folder:
        # Every cache that a lesson fills: the workbook's builds, PyTorch's extensions, Inductor, and Triton.
        caches = {
            "WORKBOOK_CACHE": f"{folder}/workbook",
            "TORCH_EXTENSIONS_DIR": f"{folder}/extensions",
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
            "TRITON_CACHE_DIR": f"{folder}/triton",
        }
        environment = {**os.environ, **caches}
        for label, target in (("cold", COLD_S), ("warm", WARM_S)):
            report = course(environment, Path(folder) / label)
            print(f"\nThe course, {label} build caches, on {report['machine']}")
            for run in report["notebooks"]:
                print(f"  {run['name']:<22} {run['status']:<8} {run['seconds']:>7.1f} s   {run['where']}")
            against(f"the course, {label}", report["wall"], "s", target)
        for run in report["notebooks"]:
            against(f"peak memory of {run['name']}'s process", run["peak_mb"], "MB", MEMORY_MB)


if __name__ == "__main__":
    main()
