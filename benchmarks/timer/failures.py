"""The failures in a run of `benchmarks/timer_truth.py`: printed when they happen, and counted at the end."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Iterator

FAILED: list[str] = []


def report(part: str, what: str) -> None:
    FAILED.append(f"{part}: {what}")
    print(f"FAILED {part}: {what}", flush=True)


@contextlib.contextmanager
def reported(part: str) -> Iterator[None]:
    """Report a part that fails, so that the next part can run."""
    start = time.perf_counter()
    print(f"== {part}", flush=True)
    try:
        yield
    except Exception as error:
        traceback.print_exc()
        report(part, f"{type(error).__name__}: {error}")
    print(f"== {part}: {time.perf_counter() - start:.0f} s", flush=True)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it ended without output"
