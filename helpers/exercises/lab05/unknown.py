"""Lab 05's free exercise: a report that nobody has explained. Why does its last launch take so
much longer?
"""

from __future__ import annotations

from helpers.exercises import recorded_data
from helpers.exercises.consistency import Claim, Data, Figure
from helpers.exercises.factories import free_exercise

RECORD = "fusion/padding"
QUICK, SLOW = 2, 3  # launches of the report


def data() -> Data:
    """The data on the report's launches 2 and 3."""
    from helpers import ncu

    report = ncu.load_report(recorded_data.path(RECORD))
    quick, slow = report[QUICK], report[SLOW]

    def metric_of_both(metric: str) -> tuple[float, float]:
        return float(quick.metrics[metric]), float(slow.metrics[metric])

    quick_us, slow_us = quick.duration_us, slow.duration_us
    slowdown = slow_us / quick_us
    work = metric_of_both("smsp__inst_executed.sum")
    issue = metric_of_both("smsp__issue_active.avg.pct_of_peak_sustained_active")
    warps = metric_of_both("sm__warps_active.avg.pct_of_peak_sustained_active")
    registers = metric_of_both("launch__registers_per_thread")
    memory = metric_of_both("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")
    dram_mb = [
        us * rate / 1e12
        for us, rate in zip((quick_us, slow_us), metric_of_both("dram__bytes.sum.per_second"), strict=True)
    ]
    waves = metric_of_both("launch__waves_per_multiprocessor")
    blocks = metric_of_both("launch__occupancy_limit_registers")
    more_work, more_bytes = work[1] / work[0], dram_mb[1] / dram_mb[0]
    earlier = [
        launch.metrics["sm__warps_active.avg.pct_of_peak_sustained_active"]
        for launch in (report[0], report[1])
    ]
    threads, allocated = slow.block[0], slow.metrics["launch__registers_per_thread_allocated"]
    fit = int(slow.metrics["device__attribute_max_registers_per_multiprocessor"] // allocated)
    # How long the bytes alone would take at the quick launch's rate, minus 5 % because learners round.
    bytes_us = 0.95 * dram_mb[1] / dram_mb[0] * quick_us

    def pair(name: str, values: tuple[float, float], metric: str, within: float = 0.03) -> dict[str, Figure]:
        named = zip((f"{name}_{QUICK}", f"{name}_{SLOW}"), values, (QUICK, SLOW), strict=True)
        return {key: Figure(value, f"{metric} of launch {i}", within) for key, value, i in named}

    figures = {"duration_ratio": Figure(slowdown, f"duration_us, launch {SLOW} over launch {QUICK}", 0.02)}
    figures |= {
        "instructions_ratio": Figure(
            more_work, "smsp__inst_executed.sum, the slow launch's over the other's", 0.02
        )
    }
    figures |= {
        "dram_mb_ratio": Figure(
            more_bytes, "dram__bytes.sum.per_second × duration, the slow launch's over the other's", 0.02
        )
    }
    figures |= pair("issue_percent", issue, "smsp__issue_active.avg.pct_of_peak_sustained_active")
    figures |= pair("occupancy_percent", warps, "achieved_occupancy_percent")
    figures |= pair("registers", registers, "registers_per_thread", 0)
    figures |= pair("memory_percent", memory, "memory_throughput_percent")
    figures |= pair("waves", waves, "waves_per_sm")
    figures |= pair("blocks_by_registers", blocks, "launch__occupancy_limit_registers", 0)
    figures |= pair("duration_us", (quick_us, slow_us), "duration_us", 0.02)
    instructions = ("instructions_ratio",)
    slots = tuple(f"issue_percent_{i}" for i in (QUICK, SLOW))
    few_warps = tuple(f"{name}_{SLOW}" for name in ("occupancy_percent", "registers", "blocks_by_registers"))
    findings = {
        "more-instructions": Claim(
            more_work > 1.3,
            f"launch {SLOW} executes {more_work:.2f} times the instructions in {slowdown:.2f} times the time",
            instructions,
        ),
        "same-rate-more-work": Claim(
            more_work > 1.3 and abs(issue[1] / issue[0] - 1) < 0.1,
            f"the issue slots are busy {issue[0]:.0f} and {issue[1]:.0f} % of the time, but there are "
            f"{more_work:.2f} times the instructions",
            (*instructions, *slots),
        ),
        "fewer-warps": Claim(
            warps[1] < 0.7 * warps[0],
            f"{registers[1]:.0f} registers per thread instead of {registers[0]:.0f} leave room for "
            f"{blocks[1]:.0f} blocks per SM instead of {blocks[0]:.0f}, and occupancy falls from "
            f"{warps[0]:.0f} "
            f"to {warps[1]:.0f} %",
            few_warps,
        ),
        "memory-is-full": Claim(
            memory[1] > 80,
            f"memory throughput is {memory[1]:.0f} % of its peak in launch {SLOW}, {memory[0]:.0f} % in "
            f"launch {QUICK}",
        ),
        "more-bytes": Claim(
            more_bytes > 1.3, f"DRAM moves {more_bytes:.3f} times the bytes in {slowdown:.2f} times the time"
        ),
        "too-few-blocks": Claim(waves[1] < 1, f"launch {SLOW} has {waves[1]:.0f} waves"),
        "tail": Claim(waves[1] < 3, f"with {waves[1]:.0f} waves the last one is only a small part"),
    }
    same_bytes = f"the bytes are nearly the same, and launch {QUICK} moved as many in {quick_us:.0f} µs"
    bound = {"after_us": (bytes_us, slow_us, f"{same_bytes}; it takes {slow_us:.0f} µs now")}
    by_work, by_warps = ("more-instructions", "same-rate-more-work"), ("fewer-warps",)
    changes = {
        "fewer-instructions": Claim(
            more_work > 1.3,
            f"the other launch does the same work with 1 / {more_work:.2f} of them",
            acts_on=by_work,
            allows=bound,
        ),
        "fewer-registers": Claim(
            blocks[1] < blocks[0],
            f"registers let an SM hold {blocks[1]:.0f} blocks",
            acts_on=by_warps,
            allows=bound,
        ),
        "smaller-blocks": Claim(
            blocks[1] * threads < fit - 32,
            f"{allocated:.0f} registers are allocated per thread, so {fit:,} threads fit on an SM, and "
            f"{blocks[1]:.0f} blocks of {threads} already are {blocks[1] * threads:,.0f}",
            acts_on=by_warps,
            allows=bound,
        ),
        "more-blocks": Claim(waves[1] < 1, f"there are already {waves[1]:.0f} waves of blocks"),
        "coalesce": Claim(
            False,
            f"DRAM moves {more_bytes:.3f} times the bytes of the other launch, at {memory[1]:.0f} % of its "
            "peak",
        ),
        "keep-in-cache": Claim(
            memory[1] > 80, f"memory throughput is {memory[1]:.0f} %, so it doesn't wait for DRAM"
        ),
    }
    questions = {
        "instructions-or-warps": Claim(
            None,
            "both changed between the launches; between launches 0 and 1, occupancy also fell from "
            f"{earlier[0]:.0f} to {earlier[1]:.0f} % while the instructions grew",
        ),
        "what-the-warps-wait-for": Claim(
            None, "the report has no stall reasons, because that section was not collected"
        ),
        "which-source-line": Claim(None, "the report was recorded without source"),
        "other-gpus": Claim(None, f"it is about one GPU, {report.gpu}"),
        "is-memory-full": Claim(True, f"memory throughput is {memory[1]:.0f} % of its peak in launch {SLOW}"),
        "same-bytes": Claim(True, f"DRAM moves {more_bytes:.3f} times as many"),
    }
    return Data("the report", figures, findings, changes, questions, predicted=("after_us",), n_figures=3)


UNKNOWN = free_exercise(
    "unknown-report", "05_ncu", "Write the diagnosis of an unknown report", "DIAGNOSIS", data
)
