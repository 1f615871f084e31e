"""Kill `workbook run` at 25 moments and resume it: no file may be incomplete, no process may be left, and no
point that had finished may run again.

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
# The child is in a session of its own, and must end with its point all the same.
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
                f"  {at:5.1f} s: {kept} of {len(NAMES)} had finished; "
                f"{'; '.join(found) or 'complete after --resume'}"
            )
    print(f"{moments} kills, {len(faults)} faults")
    if faults:
        sys.exit(1)


def trial(folder: Path, kill_s: float | None) -> tuple[float, list[str]]:
    """Run the batch once, kill it after `kill_s` seconds, and resume it.

    Returns:
        How many seconds it took, or, if it was killed, how many points had finished; and what was wrong.
    """
    place = Path(tempfile.mkdtemp(dir=folder))
    log, out, source = place / "log", place / "out", place / "lesson.ipynb"
    parameters = nbformat.v4.new_code_cell("n: int = 0", metadata={"tags": ["parameters"]})
    code = nbformat.v4.new_code_cell(CODE.format(log=str(log)))
    nbformat.write(nbformat.v4.new_notebook(cells=[parameters, code]), source)
    command = [
        sys.executable,
        "-m",
        "workbook",
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
    faults = [f"{path.name} is incomplete" for path in out.glob("*.ipynb") if not whole(path)]
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
    """What is missing, incomplete or left over in the outputs of a batch that has ended."""
    faults = [f"{name}.ipynb is missing or incomplete" for name in NAMES if not whole(out / f"{name}.ipynb")]
    pages = [*(f"{name}.html" for name in NAMES), "index.html"]
    faults += [
        f"{page} is incomplete" for page in pages if not (out / page).read_text().rstrip().endswith("</html>")
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
