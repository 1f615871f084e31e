"""`make latest`: runs the lessons, the labs' solutions and all tests in the current environment.

`python tests/latest.py -- ARGS` prints the installed versions, runs all three even if one fails, and prints
how each ended; pytest gets ARGS. If all of them pass, it adds the pair of torch and triton to
`helpers/tested_versions.json`, which `workbook doctor` reads, unless `--part` says that ARGS select a part of
the tests. The exit status is 0 if everything passed, otherwise 1.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from commands import ROOT, command, environment
from packaging.requirements import Requirement

from helpers import tested_versions


def versions() -> Iterator[str]:
    """One line per dependency in pyproject.toml: the installed version, and the pin if that is different."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, _, pin = line.partition("==")
        pins[name.lower().replace("_", "-")] = pin
    for text in itertools.chain(project["dependencies"], *project["optional-dependencies"].values()):
        name = Requirement(text).name
        try:
            here = version(name)
        except PackageNotFoundError:
            continue  # for another system than this one
        pin = pins[name.lower()]
        yield f"{name} {here}" + ("" if here.partition("+")[0] == pin else f" (constraints.txt: {pin})")


def steps(arguments: Sequence[str], out: Path) -> dict[str, list[str]]:
    """The commands to run, by name."""
    return {
        "course": command("run", ROOT / "notebooks", "--out", out / "course"),
        "labs' solutions": command("run", ROOT / "labs" / "solutions", "--out", out / "labs"),
        "tests": [sys.executable, "-m", "pytest", *arguments],
    }


def run(what: Mapping[str, Sequence[str]], keep: bool) -> int:
    """Run every step, print how each ended, and store the pair of torch and triton if all passed.

    Args:
        what: commands by the step's name.
        keep: whether these steps are everything, so that the pair may be stored.

    Returns:
        The exit status.
    """
    ended = []
    for name, words in what.items():
        print(f"== {name}", flush=True)
        began = time.monotonic()
        status = subprocess.run(words, cwd=ROOT, env=environment(), check=False).returncode
        ended.append((name, status, time.monotonic() - began))
    pair = {"torch": version("torch").partition("+")[0], "triton": version("triton").partition("+")[0]}
    named = f"torch {pair['torch']} with triton {pair['triton']}"
    print(f"== {named}")
    for name, status, seconds in ended:
        print(f"{name}: {f'failed (exit status {status})' if status else 'passed'}, {seconds:,.0f} s")
    if any(status for _, status, _ in ended):
        return 1
    if not keep:
        print("Only a part of the tests ran, so helpers/tested_versions.json stays as it is.")
    elif pair not in tested_versions.pairs():
        tested_versions.add(**pair)
        print(f"helpers/tested_versions.json has {named} now: commit it.")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "latest", help="for the pages (build/latest)"
    )
    parser.add_argument("--part", action="store_true", help="the arguments choose a part of the tests")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    given = parser.parse_args()
    print(*versions(), sep="\n", flush=True)
    sys.exit(run(steps(given.arguments, given.out), keep=not given.part))
