"""`make soak`: the tests that draw random numbers, again and again with other numbers, until the time is over.

`python tests/soak.py --minutes 30 --first 0 -- ARGS` runs `pytest -m seeded ARGS` with TEST_SEED 1, 2, 3, … (those after
`--first`). A test that fails is told at once, with the command that repeats it, and goes on to be tried with the other
numbers. The exit status is 0 where none failed, 1 where one did, 2 where pytest could not run them.

pytest loads this file too, as a plugin: it hands each failure on, under the test's whole name.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_FAILURES = "SOAK_FAILURES"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write a failed test's name into the file that the soak reads."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(os.environ[_FAILURES], "a") as file:
            file.write(f"{report.nodeid}\n")


def repeats(test: str, number: int) -> str:
    """The shell command that repeats a test with a number."""
    arguments = shlex.quote(test).replace("$", "$$")
    plain = not set(arguments) & set('"$`\\!')
    given = f'ARGS="{arguments}"' if plain else shlex.quote(f"ARGS={arguments}")
    return f"make test {given} SEED={number}"


def one_round(number: int, arguments: list[str], until: float, failures: Path) -> int | None:
    """Run the tests with one number; pytest's exit status, None where the time was over before its end."""
    here = Path(__file__).parent
    modules = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": modules, "TEST_SEED": str(number), _FAILURES: str(failures)}
    environment.pop("PYTEST_XDIST_WORKER", None)  # of the tests' worker that this soak may run in
    command = [sys.executable, "-m", "pytest", "-p", "soak", "-m", "seeded", "-q", *arguments]
    log = failures.with_suffix(".log")
    with log.open("w") as out:
        running = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            status = running.wait(max(until - time.monotonic(), 0))
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as stopped:
            running.send_signal(signal.SIGINT)
            running.wait()
            if isinstance(stopped, KeyboardInterrupt):
                raise
            return None
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        sys.stderr.write(log.read_text()[-3000:])
    return status


def soak(minutes: float, rounds: int | None, first: int, arguments: list[str], folder: Path) -> int:
    """Rounds until the time is over; the exit status.

    Args:
        minutes: how long.
        rounds: no more rounds than these.
        first: the number before that of the first round.
        arguments: for pytest.
        folder: where each round leaves its log and the names of what failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    until, begin = time.monotonic() + 60 * minutes, time.monotonic()
    number, whole, n_failed = first, 0, 0
    try:
        while time.monotonic() < until and whole != rounds:
            number += 1
            failures = folder / f"{number}.failed"
            failures.write_text("")
            status = one_round(number, arguments, until, failures)
            for test in dict.fromkeys(failures.read_text().splitlines()):
                n_failed += 1
                print(f"failed with {number}: {test}\n  {repeats(test, number)}", flush=True)
            if status is None:
                break
            if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                print(f"pytest could not run the tests (status {int(status)})", file=sys.stderr)
                return 2
            whole += 1
            print(f"{number}: {time.monotonic() - begin:.0f} s", flush=True)
    except KeyboardInterrupt:
        print("stopped")
    cut = "" if whole == number - first else f"; with {number} as far as the time went"
    print(f"numbers tried: {whole}{cut}; failures: {n_failed}; logs are in {folder}")
    return 1 if n_failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30, help="how long (30)")
    parser.add_argument("--rounds", type=int, help="no more than so many numbers")
    parser.add_argument("--first", type=int, default=0, help="begin with the number after this one (0)")
    parser.add_argument("--folder", type=Path, default=Path("build/soak"), help="for the logs (build/soak)")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    given = parser.parse_args()
    sys.exit(soak(given.minutes, given.rounds, given.first, given.arguments, given.folder))
