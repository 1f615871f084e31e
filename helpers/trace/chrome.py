"""Read Chrome traces from torch.profiler, and trim them to the events that are needed.

The fields are defined by the Chrome trace event format and Kineto's `output_json.cpp`.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path

HOST = ("cpu_op", "user_annotation")
CALLS = ("cuda_runtime", "cuda_driver")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
FLOW = "ac2g"  # Kineto's arrows from a CUDA call to the work that it launched
KIND = {"cpu_op": "op", "user_annotation": "range", "gpu_user_annotation": "range", "kernel": "kernel"}
KIND |= {"gpu_memcpy": "memcpy", "gpu_memset": "memset", "cuda_runtime": "runtime", "cuda_driver": "runtime"}
USED_CATEGORIES = (*KIND, FLOW)


@dataclass(frozen=True)
class Trace:
    """A Chrome trace.

    Attributes:
        path: the file that the trace was read from.
        events: the trace's complete events in order of start time; `ts` (which starts at 0) and `dur` are in
            µs.
    """

    path: Path
    events: tuple[dict, ...] = field(repr=False)

    @property
    def duration_us(self) -> float:
        """Returns the time from the start of the first event to the end of the last."""
        return max((e["ts"] + e["dur"] for e in self.events), default=0.0)

    def __repr__(self) -> str:
        names = {
            "op": "operators",
            "runtime": "CUDA calls",
            "kernel": "kernels",
            "memcpy": "copies",
            "memset": "fills",
        }
        kinds = [KIND[e["cat"]] for e in self.events]
        counts = ", ".join(f"{kinds.count(kind)} {name}" for kind, name in names.items() if kind in kinds)
        steps = sum(
            e["cat"] == "user_annotation" and e["name"].startswith("ProfilerStep#") for e in self.events
        )
        return f"{self.path.name}: {counts or 'no events'}" + (f", {steps} steps" if steps else "")


def load_trace(path: str | os.PathLike) -> Trace:
    """Reads a Chrome trace that torch.profiler exported (.json or .json.gz).

    Raises:
        ValueError: the file doesn't exist, is not JSON, or is JSON but not a trace.

    Example:
        >>> from helpers import records, trace
        >>> one = trace.load_trace(records.folder() / "h100" / "profiling" / "steps-10000-10000.json.gz")
        >>> sorted(set(trace.kernels(one).kind))
        ['kernel']
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(
            f"There is no file {path}; create one with export_chrome_trace(path) or trace.capture(fn, "
            "path=…)."
        )
    raw = path.read_bytes()
    try:
        document = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a trace: it is not valid JSON ({error}).") from error
    # The format also allows a plain list of events.
    all_events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(all_events, list) or not all(isinstance(e, dict) for e in all_events):
        raise ValueError(f"{path} is not a trace: it is JSON, but has no list of traceEvents.")
    complete = [e for e in all_events if e.get("ph") == "X" and e.get("cat") in KIND and "ts" in e]
    start = min((float(e["ts"]) for e in complete), default=0.0)
    events = [
        {**e, "ts": float(e["ts"]) - start, "dur": float(e.get("dur", 0.0)), "args": e.get("args") or {}}
        for e in complete
    ]
    return Trace(path, tuple(sorted(events, key=lambda e: (e["ts"], -e["dur"]))))


def trimmed(document: dict) -> bytes:
    """Returns the events that are needed, starting at time 0, as gzip. Equal events give equal bytes."""
    events = [e for e in document["traceEvents"] if e.get("cat") in USED_CATEGORIES or e.get("ph") == "M"]
    start = min((e["ts"] for e in events if e.get("cat") in USED_CATEGORIES), default=0.0)
    small = []
    for event in events:
        event = {**event, "ts": round(max(event.get("ts", start) - start, 0.0), 3)}
        if event.get("cat") in HOST + CALLS:
            wanted = ("External id", "correlation")
            event["args"] = {k: v for k, v in event.get("args", {}).items() if k in wanted}
        small.append(event)
    result = {"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": small}
    return gzip.compress(json.dumps(result, separators=(",", ":")).encode(), 9, mtime=0)
