"""Record profiles with torch.profiler, and turn them into tables.

Times are in microseconds, and sizes are in bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.atomic import atomic_write
from helpers.trace.chrome import DEVICE, HOST, KIND, Trace, trimmed
from helpers.trace.names import short_name

if TYPE_CHECKING:
    import pandas as pd


# ---------------------------------------------------------------------------------------------------------
# tables
def profile_table(prof_or_fn: Any, *, warmup: int = 3, calls: int = 1) -> pd.DataFrame:
    """Returns what a profile recorded, one row per name, with the longest first.

    Args:
        prof_or_fn: a finished `torch.profiler.profile` or `torch.autograd.profiler.profile`, or a function
            without arguments. A function is called `warmup` times without the profiler and then `calls` times
            with it.
        warmup: the number of calls before the profiler starts; only for a function.
        calls: the number of recorded calls; only for a function.

    Returns:
        A table with the columns `name`, `kind` (op, range, runtime, kernel, memcpy, memset, overhead),
        `calls`, `cpu_us` and `device_us` (including everything that the row called), and `self_cpu_us` and
        `self_device_us` (excluding it). An operator's device time is that of the kernels it launched. These
        kernels have rows of their own, so don't add the two.

    Raises:
        ValueError: the argument is neither a profiler nor a function.
        RuntimeError: the profiler has not finished, or another profiler is running.
    """
    import pandas as pd

    if callable(prof_or_fn) and not hasattr(prof_or_fn, "key_averages"):
        prof_or_fn = _profile(prof_or_fn, warmup, calls)
    if not hasattr(prof_or_fn, "key_averages"):
        raise ValueError(f"profile_table() takes a profiler or a function, not {type(prof_or_fn).__name__}.")
    try:
        # The older profiler stores its events in an attribute that is None until it has finished.
        legacy = hasattr(prof_or_fn, "function_events")
        for event in (prof_or_fn.function_events or ()) if legacy else prof_or_fn.events():
            if event.name in _OVERHEAD:
                # torch attributes the surrounding launch's kernel to it, so the kernel would count twice.
                event.kernels.clear()
        averages = prof_or_fn.key_averages()
    except (AssertionError, RuntimeError, AttributeError) as error:
        raise RuntimeError(
            "This profiler has no results yet; read them after its `with` block ends."
        ) from error
    rows = [
        {
            "name": row.key,
            "kind": _kind(row),
            "calls": row.count,
            "cpu_us": row.cpu_time_total,
            "self_cpu_us": row.self_cpu_time_total,
            "device_us": row.device_time_total,
            "self_device_us": row.self_device_time_total,
        }
        for row in averages
    ]
    columns = ["name", "kind", "calls", "cpu_us", "self_cpu_us", "device_us", "self_device_us"]
    table = pd.DataFrame(rows, columns=columns)
    by = ["device_us", "cpu_us"]
    return table.sort_values(by, ascending=False, kind="stable").round(3).reset_index(drop=True)


# CUPTI's own overhead and one-time work of the driver (CUpti_ActivityOverheadKind).
_OVERHEAD = {
    "Activity Buffer Request",
    "Buffer Flush",
    "Command Buffer Full",
    "Instrumentation",
    "Lazy Function Loading",
    "Resource",
    "Runtime Triggered Module Loading",
}


def _kind(row) -> str:
    """Returns the kind of an averaged event, as `profile_table` names it."""
    if getattr(row, "is_user_annotation", False) or row.key.startswith("ProfilerStep"):
        return "range"
    if row.device_type.name != "CPU":
        return {"Memcpy": "memcpy", "Memset": "memset"}.get(row.key[:6], "kernel")
    if row.key in _OVERHEAD:
        return "overhead"
    # cudaLaunchKernel is a runtime call, cuLaunchKernelEx (used by Triton) a driver call.
    return "runtime" if re.match(r"cu(da)?[A-Z]", row.key) else "op"


def _profile(fn: Callable[[], Any], warmup: int, calls: int):
    import torch

    for _ in range(warmup):
        fn()
    _synchronize()
    with _only_profiler(), torch.profiler.profile(activities=_activities(), acc_events=True) as prof:
        for _ in range(calls):
            fn()
        _synchronize()
    return prof


def _activities() -> list:
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU]
    return activities + [torch.profiler.ProfilerActivity.CUDA] * torch.cuda.is_available()


def _synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextlib.contextmanager
def _only_profiler() -> Iterator[None]:
    """Raises an error if a profiler is already running, because nested profilers would record nothing."""
    import torch

    if torch.autograd._profiler_enabled():
        raise RuntimeError("A profiler is already running in this process; leave its `with` block first.")
    yield


def capture(
    fn: Callable[[], Any],
    *,
    path: str | os.PathLike,
    wait: int = 0,
    warmup: int = 2,
    active: int = 2,
    synchronize: bool = True,
    max_bytes: int = 300_000,
) -> Path:
    """Profiles `fn` step by step and writes a small gzipped Chrome trace that Perfetto can open.

    Args:
        fn: a function without arguments that runs one step.
        path: the file to write atomically; its name ends in `.json.gz`.
        wait: the number of initial steps that are not profiled at all.
        warmup: the number of steps after that which run under the profiler but are not recorded.
        active: the number of steps after that which are recorded.
        synchronize: whether to wait for the GPU at the end of each step, so that its kernels lie within the
            step.
        max_bytes: the maximum file size, because the file is meant to be committed to a repository.

    Returns:
        `path`. The trace omits the host name, Python stacks and the profiler's own overhead, and starts at
        time 0.

    Raises:
        ValueError: the path has another suffix, there is no active step, or the trace is larger than
            `max_bytes`.
        RuntimeError: another profiler is running.
    """
    import torch

    path = Path(path)
    if not path.name.endswith(".json.gz"):
        raise ValueError(
            f"capture() writes gzipped JSON: pass a path that ends in .json.gz, not {path.name!r}."
        )
    if active < 1:
        raise ValueError(f"capture() needs at least one active step to record, but got active={active}.")
    with tempfile.TemporaryDirectory() as folder:
        full_trace = Path(folder) / "full.json"
        plan = torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=1)
        with (
            _only_profiler(),
            torch.profiler.profile(
                activities=_activities(),
                schedule=plan,
                on_trace_ready=lambda p: p.export_chrome_trace(str(full_trace)),
                acc_events=True,  # older versions warn without it, even though there is only one cycle
            ) as prof,
        ):
            for _ in range(wait + warmup + active):
                fn()
                if synchronize:
                    _synchronize()
                prof.step()
        data = trimmed(json.loads(full_trace.read_bytes()))
    if len(data) > max_bytes:
        raise ValueError(
            f"The trace has {len(data):,} bytes, above {max_bytes:,}: record fewer steps (active={active})."
        )
    with atomic_write(path) as file:
        file.write_bytes(data)
    return path


def ops(trace: Trace) -> pd.DataFrame:
    """Returns the operators and ranges of a trace in order of start time, with their callers.

    Returns:
        A table with the columns `name`, `kind` (op or range), `depth` (0 for the outermost level), `parent`
        (the caller's name or ""), `start_us`, `duration_us`, and `thread` (numbered from 1).

    Example:
        >>> from helpers import records, trace
        >>> folder = records.folder() / "h100" / "profiling"
        >>> one = trace.load_trace(folder / "made-on-host-10000-10000.json.gz")
        >>> "aten::square" in set(trace.ops(one).name)
        True
    """
    import pandas as pd

    rows, stacks, threads = [], {}, {}
    for event in trace.events:
        if event["cat"] not in HOST:
            continue
        key = (event.get("pid"), event.get("tid"))
        stack = stacks.setdefault(key, [])
        while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]:
            stack.pop()
        rows.append(
            {
                "name": event["name"],
                "kind": KIND[event["cat"]],
                "depth": len(stack),
                "parent": stack[-1]["name"] if stack else "",
                "start_us": round(event["ts"], 3),
                "duration_us": event["dur"],
                "thread": threads.setdefault(key, len(threads) + 1),
            }
        )
        stack.append(event)
    return pd.DataFrame(
        rows, columns=["name", "kind", "depth", "parent", "start_us", "duration_us", "thread"]
    )


def call_tree(trace: Trace, *, depth: int | None = None) -> str:
    """Returns the operators of a trace as an indented tree in call order, including repeated calls.

    Args:
        trace: a trace from `load_trace`.
        depth: the number of levels to show; all by default.
    """
    table = ops(trace)
    visible = table if depth is None else table[table.depth < depth]
    return "\n".join(
        "   " * row.depth + ("└─ " if row.depth else "") + row.name for row in visible.itertuples()
    )


def kernels(trace: Trace) -> pd.DataFrame:
    """Returns all GPU work in a trace (kernels, copies and fills) in order of start time.

    Returns:
        A table with the columns `kind` (kernel, memcpy, memset), `short` (a readable name), `op` (the
        operator that launched it, or ""), `duration_us`, `grid` and `block` (x, y, z), `registers` (per
        thread), `shared_bytes` (per block), `n_bytes` and `gb_per_s` (copies and fills), `stream`,
        `start_us`, and `name` (in full). Values that don't apply are None.

    Example:
        >>> from helpers import records, trace
        >>> folder = records.folder() / "h100" / "profiling"
        >>> one = trace.load_trace(folder / "made-on-host-10000-10000.json.gz")
        >>> trace.kernels(one).short[0]
        'Memcpy HtoD (Pageable -> Device)'
    """
    import pandas as pd

    launcher = {e["args"].get("External id"): e["name"] for e in trace.events if e["cat"] == "cpu_op"}
    rows = []
    for event in trace.events:
        if event["cat"] not in DEVICE:
            continue
        args, n_bytes = event["args"], event["args"].get("bytes")
        rows.append(
            {
                "kind": KIND[event["cat"]],
                "short": short_name(event["name"]),
                "op": launcher.get(args.get("External id", args.get("external id")), ""),
                "duration_us": event["dur"],
                "grid": tuple(args["grid"]) if "grid" in args else None,
                "block": tuple(args["block"]) if "block" in args else None,
                "registers": args.get("registers per thread"),
                "shared_bytes": args.get("shared memory"),
                "n_bytes": n_bytes,
                # bytes per µs are MB/s
                "gb_per_s": round(n_bytes / event["dur"] / 1e3, 2) if n_bytes and event["dur"] else None,
                "stream": args.get("stream"),
                "start_us": round(event["ts"], 3),
                "name": event["name"],
            }
        )
    columns = (
        "kind short op duration_us grid block registers shared_bytes n_bytes gb_per_s stream start_us name"
    )
    # dtype object, so that integers in a column with None are not converted to floats
    table = pd.DataFrame(rows, columns=columns.split(), dtype=object)
    return table.astype({"duration_us": float, "start_us": float})
