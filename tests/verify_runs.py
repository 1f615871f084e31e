"""Runs of `workbook verify`, as somebody would call it."""

from __future__ import annotations

import json
import subprocess
import textwrap

from commands import command, environment


def verify(*words, cwd):
    return subprocess.run(
        command("verify", *words), cwd=cwd, capture_output=True, text=True, timeout=300, env=environment()
    )


def verdict_of(candidate, folder, problem):
    """The exit status and the JSON of a verification in KernelBench's format."""
    (folder / "softmax_problem.py").write_text(problem)
    (folder / "candidate.py").write_text(textwrap.dedent(candidate))
    ran = verify(
        "kernelbench", "softmax_problem.py", "candidate.py", "--seed", 3, "--json", "verdict.json", cwd=folder
    )
    assert (folder / "verdict.json").is_file(), ran.stderr
    return ran.returncode, json.loads((folder / "verdict.json").read_text()), ran.stdout
