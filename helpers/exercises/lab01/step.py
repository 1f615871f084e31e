"""Lab 01's free exercise: a recorded slow step, and where its time goes according to the trace."""

from __future__ import annotations

from helpers.exercises import recorded_data
from helpers.exercises.consistency import Claim, Data, Figure
from helpers.exercises.factories import free_exercise

RECORD = "profiling/made-on-host"


def data() -> Data:
    """The data on the trace's first step, "pageable": a batch is made on the host, copied, and squared."""
    from helpers import trace

    events = trace.load_trace(recorded_data.path(RECORD)).events

    def one(category: str, name: str, after: float = 0.0) -> dict:
        """The first event of a category whose name starts with this, from a time on."""
        return next(
            e for e in events if e["cat"] == category and e["name"].startswith(name) and e["ts"] >= after
        )

    step, batch = one("user_annotation", "pageable"), one("cpu_op", "aten::randn")
    copy, pinned = one("gpu_memcpy", "Memcpy HtoD (Pageable"), one("gpu_memcpy", "Memcpy HtoD (Pinned")
    kernel, launch = one("kernel", ""), one("cuda_runtime", "cudaLaunchKernel")
    call, square = one("cuda_runtime", "cudaMemcpyAsync"), one("cpu_op", "aten::square")
    step_us, batch_us, copy_us, kernel_us = step["dur"], batch["dur"], copy["dur"], kernel["dur"]
    busy_us = copy_us + kernel_us
    gap_us = square["ts"] - (copy["ts"] + copy_us)
    overlap_us = max(0.0, batch["ts"] + batch_us - copy["ts"]) + max(0.0, copy["ts"] + copy_us - kernel["ts"])
    saved_us = copy_us - pinned["dur"]
    rest_us = step_us - batch_us

    def part(us: float) -> str:
        return f"{us:,.0f} of the step's {step_us:,.0f} µs, {100 * us / step_us:.1f} %"

    figures = {
        "step_us": Figure(step_us, "`dur` of the range 'pageable' on the host"),
        "batch_us": Figure(batch_us, "`dur` of aten::randn on the host"),
        "batch_percent": Figure(
            100 * batch_us / step_us, "aten::randn over the range 'pageable'", at_least=1
        ),
        "copy_us": Figure(copy_us, "`dur` of the gpu_memcpy 'Pageable -> Device'"),
        "copy_percent": Figure(100 * copy_us / step_us, "that copy over the range 'pageable'", at_least=0.5),
        "kernel_us": Figure(kernel_us, "`dur` of the step's kernel"),
        "gpu_busy_us": Figure(busy_us, "copy and kernel of the step on the GPU"),
        "gpu_busy_percent": Figure(
            100 * busy_us / step_us, "copy and kernel over the range 'pageable'", at_least=0.5
        ),
        "launch_us": Figure(launch["dur"], "`dur` of the step's cudaLaunchKernel"),
        "pinned_copy_us": Figure(pinned["dur"], "`dur` of the gpu_memcpy 'Pinned -> Device'"),
        "overlap_us": Figure(
            overlap_us, "the time in which two of batch, copy and kernel ran at the same time", at_least=1
        ),
        "gap_us": Figure(gap_us, "from the pageable copy's end to the start of aten::square", 0.1),
    }
    findings = {
        "host-makes-batch": Claim(
            batch_us > step_us / 2,
            f"aten::randn on the host takes {part(batch_us)}",
            ("batch_us", "batch_percent"),
        ),
        "gpu-waits": Claim(
            busy_us < step_us / 2, f"the GPU is busy for {part(busy_us)}", ("gpu_busy_us", "gpu_busy_percent")
        ),
        "nothing-overlaps": Claim(
            overlap_us < step_us / 100,
            f"batch, copy and kernel run one after another, with {overlap_us:,.0f} µs of overlap",
            ("overlap_us", "batch_us", "copy_us"),
        ),
        "copy": Claim(copy_us > step_us / 2, f"the copy takes {part(copy_us)}", ("copy_us", "copy_percent")),
        "pageable-memory": Claim(
            saved_us > step_us / 2,
            f"the pinned copy is {saved_us:,.0f} µs shorter: {part(saved_us)}",
            ("copy_us", "pinned_copy_us"),
        ),
        "kernel": Claim(kernel_us > step_us / 2, f"the kernel takes {part(kernel_us)}", ("kernel_us",)),
        "launch-overhead": Claim(
            launch["dur"] > step_us / 2, f"cudaLaunchKernel takes {part(launch['dur'])}", ("launch_us",)
        ),
    }
    with_batch = ("host-makes-batch", "gpu-waits", "nothing-overlaps")
    changes = {
        "make-on-gpu": Claim(
            True,
            f"without the host's batch at most {rest_us:,.0f} µs of the step remain, including the copy",
            acts_on=with_batch,
            allows={
                "step_after_us": (
                    kernel_us,
                    rest_us,
                    f"the kernel still runs, and without the batch's {batch_us:,.0f} µs at most "
                    f"{rest_us:,.0f} µs remain",
                )
            },
        ),
        "prepare-ahead": Claim(
            True,
            f"if the batch is made during other steps, the GPU has {busy_us:,.0f} µs of work per step",
            acts_on=with_batch,
            allows={
                "step_after_us": (
                    busy_us,
                    step_us,
                    f"the GPU still needs {busy_us:,.0f} µs per step for copy and kernel",
                )
            },
        ),
        "pin-memory": Claim(
            True,
            f"the pinned copy of the same bytes takes {pinned['dur']:,.0f} µs instead of {copy_us:,.0f}",
            acts_on=("gpu-waits", "nothing-overlaps"),
            allows={
                "step_after_us": (
                    step_us - saved_us - gap_us,
                    step_us,
                    f"pinning saves {saved_us:,.0f} µs of the copy, and at most the {gap_us:,.0f} µs "
                    "after it, but the batch is still made",
                )
            },
        ),
        "faster-kernel": Claim(False, f"the kernel takes {part(kernel_us)}, so no kernel can save more"),
        "cuda-graph": Claim(False, f"a graph saves launches, and the step's takes {part(launch['dur'])}"),
    }
    questions = {
        "after-the-copy": Claim(
            None, f"no event covers the {gap_us:,.0f} µs between the copy's end and aten::square"
        ),
        "randn-on-the-gpu": Claim(None, "the trace has no random numbers that were made on the GPU"),
        "cost-of-the-pinned-batch": Claim(None, "the pinned batch was made before the trace started"),
        "the-next-steps": Claim(None, "each kind of step was recorded once"),
        "who-waits-for-the-copy": Claim(
            True, f"the host is inside cudaMemcpyAsync for {call['dur']:,.0f} µs"
        ),
    }
    return Data("the trace", figures, findings, changes, questions, predicted=("step_after_us",))


STEP = free_exercise("slow-step", "01_profiling", "Where does a slow step's time go?", "SLOW_STEP", data)
