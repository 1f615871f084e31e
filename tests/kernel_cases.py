"""Run kernel cases in a process of their own: interpreted on every machine, compiled if there is a GPU.

A file of cases, run with a device and a seed, prints a JSON object: case -> "right" or what is wrong.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

from commands import ROOT, environment

from helpers import device
from helpers.kernels.chip import Chip

# GPUs for which a rule must choose a launch that fits.
CHIPS = {
    "T4": Chip(40, 1024, 4 << 20, 64 << 10, (7, 5)),
    "A100": Chip(108, 2048, 40 << 20, 163 << 10, (8, 0)),
    "L4": Chip(58, 1536, 48 << 20, 99 << 10, (8, 9)),
    "H100": Chip(),
    "B200": Chip(148, 2048, 126 << 20, 227 << 10, (10, 0)),
}


def ways() -> list[str]:
    """How the cases can run here."""
    return ["interpreted", "compiled"] if device.has_gpu() else ["interpreted"]


def results_of(file: str, way: str) -> dict[str, str]:
    """What the cases of a file print."""
    interpreted, known = way == "interpreted", environment()
    paths = os.pathsep.join([str(ROOT / "tests"), known["PYTHONPATH"]])
    where = "cpu" if interpreted else "cuda"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", file, where, str(random.randrange(1 << 31))],
        env={**known, "PYTHONPATH": paths, "TRITON_INTERPRET": "1" if interpreted else "0"},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
