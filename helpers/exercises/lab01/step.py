"""Lab 01's free exercise: a recorded slow step, and where its time goes according to the trace."""

from __future__ import annotations

from helpers.exercises import recorded_data
from helpers.exercises.consistency import Claim, Data, Figure
from helpers.exercises.factories import free_exercise
from helpers.exercises.mistakes import sentences

LAB = "01_profiling"
RECORD = "profiling/made-on-host"
_TOLERANCES = {
    "batch_percent": {"at_least": 1},
    "copy_percent": {"at_least": 0.5},
    "gpu_busy_percent": {"at_least": 0.5},
    "overlap_us": {"at_least": 1},
    "gap_us": {"within": 0.1},
}


def data() -> Data:
    """The data on the trace's first step, "pageable": a batch is made on the host, copied, and squared."""
    from helpers import trace

    events = trace.load_trace(recorded_data.path(RECORD)).events

    def first(category: str, name: str = "") -> dict:
        return next(e for e in events if e["cat"] == category and e["name"].startswith(name))

    step, kernel = first("user_annotation", "pageable"), first("kernel")
    batch, square = first("cpu_op", "aten::randn"), first("cpu_op", "aten::square")
    copy, pinned = first("gpu_memcpy", "Memcpy HtoD (Pageable"), first("gpu_memcpy", "Memcpy HtoD (Pinned")
    launch, call = first("cuda_runtime", "cudaLaunchKernel"), first("cuda_runtime", "cudaMemcpyAsync")
    step_us, batch_us, copy_us, kernel_us = (one["dur"] for one in (step, batch, copy, kernel))
    busy_us, copy_end = copy_us + kernel_us, copy["ts"] + copy_us
    overlap_us = max(0.0, batch["ts"] + batch_us - copy["ts"]) + max(0.0, copy_end - kernel["ts"])
    gap_us, saved_us, rest_us = square["ts"] - copy_end, copy_us - pinned["dur"], step_us - batch_us
    measured = {
        "step_us": step_us,
        "batch_us": batch_us,
        "batch_percent": 100 * batch_us / step_us,
        "copy_us": copy_us,
        "copy_percent": 100 * copy_us / step_us,
        "kernel_us": kernel_us,
        "gpu_busy_us": busy_us,
        "gpu_busy_percent": 100 * busy_us / step_us,
        "launch_us": launch["dur"],
        "pinned_copy_us": pinned["dur"],
        "overlap_us": overlap_us,
        "gap_us": gap_us,
    }
    known = {**measured, "saved_us": saved_us, "rest_us": rest_us, "call_us": call["dur"]}
    shares = {
        name.removesuffix("_us"): f"{us:,.0f} of the step's {step_us:,.0f} µs, {100 * us / step_us:.1f} %"
        for name, us in known.items()
    }
    written = sentences(LAB, "data")["slow-step"]
    texts = {key: text.format_map(shares | known) for key, text in written.items()}

    def claim(name: str, supported: bool | None, *evidence: str) -> Claim:
        return Claim(supported, texts[name], evidence)

    def change(name: str, least: float, most: float, *acts_on: str) -> Claim:
        allows = {"step_after_us": (least, most, texts[f"{name}-bounds"])}
        return Claim(True, texts[name], acts_on=acts_on, allows=allows)

    half_us, slow_host = step_us / 2, ("host-makes-batch", "gpu-waits", "nothing-overlaps")
    findings = {
        "host-makes-batch": (batch_us > half_us, "batch_us", "batch_percent"),
        "gpu-waits": (busy_us < half_us, "gpu_busy_us", "gpu_busy_percent"),
        "nothing-overlaps": (overlap_us < step_us / 100, "overlap_us", "batch_us", "copy_us"),
        "copy": (copy_us > half_us, "copy_us", "copy_percent"),
        "pageable-memory": (saved_us > half_us, "copy_us", "pinned_copy_us"),
        "kernel": (kernel_us > half_us, "kernel_us"),
        "launch-overhead": (launch["dur"] > half_us, "launch_us"),
    }
    changes = {
        "make-on-gpu": change("make-on-gpu", kernel_us, rest_us, *slow_host),
        "prepare-ahead": change("prepare-ahead", busy_us, step_us, *slow_host),
        "pin-memory": change("pin-memory", step_us - saved_us - gap_us, step_us, *slow_host[1:]),
        "faster-kernel": claim("faster-kernel", False),
        "cuda-graph": claim("cuda-graph", False),
    }
    questions = {
        "after-the-copy": None,
        "randn-on-the-gpu": None,
        "cost-of-the-pinned-batch": None,
        "the-next-steps": None,
        "who-waits-for-the-copy": True,
    }
    return Data(
        "the trace",
        {name: Figure(value, texts[name], **_TOLERANCES.get(name, {})) for name, value in measured.items()},
        {name: claim(name, *how) for name, how in findings.items()},
        changes,
        {name: claim(name, answer) for name, answer in questions.items()},
        predicted=("step_after_us",),
    )


STEP = free_exercise("slow-step", LAB, "Where does a slow step's time go?", "SLOW_STEP", data)
