"""A batch whose runner is killed at 25 moments: no file torn, no process left, nothing that had ended run again.

python benchmarks/batch_kills.py [--moments 25]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import nbformat
import psutil

ROOT = Path(__file__).resolve().parents[1]
NAMES = [f"lesson__n={n}" for n in (1, 2, 3)]
# Two at a time; a child in a session of its own must end with its point.
CODE = """\
import subprocess, time
subprocess.Popen(['sleep', '600'], start_new_session=True)
def say(what):
    with open({log!r}, 'a') as log: log.write(f'{{what}} {{n}}\\n')
say('begins')
time.sleep(0.5)
print('x' * 2_000_000)
say('ends')"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=25)
    moments = parser.parse_args().moments
    with tempfile.TemporaryDirectory() as folder:
        whole_s, _ = trial(Path(folder), None)
        print(f"Without a kill: {whole_s:.1f} s. Killed at {moments} moments of that:")
        faults: list[str] = []
        for k in range(moments):
            at = whole_s * (k + 0.5) / moments
            kept, found = trial(Path(folder), at)
            faults += found
            print(
                f"  {at:5.1f} s: {kept} of {len(NAMES)} had ended; {'; '.join(found) or 'whole after --resume'}"
            )
    print(f"{moments} kills, {len(faults)} faults")
    if faults:
        sys.exit(1)


def trial(folder: Path, kill_s: float | None) -> tuple[float, list[str]]:
    """Run the batch once, killed after `kill_s` and then resumed.

    Returns:
        Without a kill its seconds, with one how many points had ended; and what was wrong.
    """
    place = Path(tempfile.mkdtemp(dir=folder))
    log, out, source = place / "log", place / "out", place / "lesson.ipynb"
    parameters = nbformat.v4.new_code_cell("n: int = 0", metadata={"tags": ["parameters"]})
    code = nbformat.v4.new_code_cell(CODE.format(log=str(log)))
    nbformat.write(nbformat.v4.new_notebook(cells=[parameters, code]), source)
    command = [
        sys.executable,
        "-m",
        "helpers",
        "run",
        source,
        "--grid",
        "n=1,2,3",
        "--jobs",
        "2",
        "--out",
        out,
    ]
    begin = time.monotonic()
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        if kill_s is None:
            run.wait()
            return time.monotonic() - begin, damage(out)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(kill_s)
        below = psutil.Process(run.pid).children(recursive=True) if run.poll() is None else []
        run.kill()
    faults = [f"{path.name} is torn" for path in out.glob("*.ipynb") if not whole(path)]
    kept = [path.stem for path in out.glob("*.ipynb")]
    _, alive = psutil.wait_procs(below, timeout=30)
    faults += [f"process {process.pid} is left" for process in alive]
    again = subprocess.run([*command, "--resume"], env=environment(), capture_output=True, text=True)
    if again.returncode:
        faults.append(f"--resume ended with {again.returncode}: {again.stderr[-200:]}")
    said = Counter(log.read_text().splitlines())
    faults += [f"{name} was run again" for name in kept if said[f"begins {name[-1]}"] != 1]
    return len(kept), faults + damage(out)


def damage(out: Path) -> list[str]:
    """What is not whole in the outputs of a batch that has ended."""
    faults = [f"{name}.ipynb is not whole" for name in NAMES if not whole(out / f"{name}.ipynb")]
    pages = [*(f"{name}.html" for name in NAMES), "index.html"]
    faults += [
        f"{page} is not whole" for page in pages if not (out / page).read_text().rstrip().endswith("</html>")
    ]
    rows = json.loads((out / "report.json").read_text())["notebooks"]
    faults += [f"{row['name']}: {row['status']}" for row in rows if row["status"] not in ("ok", "kept")]
    if sorted(row["name"] for row in rows) != NAMES:
        faults.append(f"report.json has {len(rows)} rows")
    return faults + [f"{p.name} is left" for p in out.rglob("*") if p.suffix in (".tmp", ".lock")]


def whole(path: Path) -> bool:
    try:
        return bool(nbformat.read(path, as_version=4).cells)
    except (OSError, ValueError, nbformat.reader.NotJSONError):
        return False


def environment() -> dict[str, str]:
    modules = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": modules}


if __name__ == "__main__":
    main()
