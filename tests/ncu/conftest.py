"""The recorded report of lesson 05 (five launches of a square, 1 to 4096 rows), and a stand-in for ncu; no
GPU is needed.
"""

from __future__ import annotations

import stat
import sys
import textwrap
from pathlib import Path

import pytest

from helpers import device, ncu, records


@pytest.fixture(scope="session")
def recorded() -> Path:
    """The path of the recorded report."""
    found = sorted(records.folder().glob("*/ncu/five-grids*.ncu-rep"))
    assert found, f"no recorded report ncu/five-grids in {records.folder()}: run `make record` on a GPU"
    return found[0]


@pytest.fixture(scope="module")
def report(recorded) -> ncu.Report:
    return ncu.load_report(recorded)


@pytest.fixture
def stand_in(recorded, monkeypatch, tmp_path):
    """A GPU and an ncu that runs the script and hands out the recorded report; the environment's NCU_SAYS
    changes that.
    """
    program = tmp_path / "bin" / "ncu"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        + textwrap.dedent(
            """
            import json, os, pathlib, shutil, subprocess, sys
            words = sys.argv[1:]
            script = next(i for i, w in enumerate(words) if w == sys.executable)
            pathlib.Path(os.environ["NCU_CALLED"]).write_text(json.dumps(words))
            print("==PROF== Connected to process 1", flush=True)
            says = os.environ.get("NCU_SAYS")
            if says:
                print(says)
                sys.exit(1)
            status = subprocess.run(words[script:]).returncode
            if status:
                print(f"==ERROR== The application returned an error code ({status}).")
                sys.exit(status)
            shutil.copy(os.environ["NCU_REPORT"], words[words.index("--export") + 1] + ".ncu-rep")
            """
        )
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("NCU_REPORT", str(recorded))
    monkeypatch.setenv("NCU_CALLED", str(tmp_path / "called.json"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    monkeypatch.setattr(device, "find_tool", lambda name: program if name == "ncu" else None)
    monkeypatch.setattr(device, "counters_allowed", lambda: None)
    return tmp_path
