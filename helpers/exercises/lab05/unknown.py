"""Lab 05's free exercise: a report that nobody has explained, whose last launch takes much longer."""

from __future__ import annotations

from pathlib import Path

from helpers.exercises import recorded_data
from helpers.exercises.consistency import Claim, Data, Figure, with_sentences
from helpers.exercises.factories import free_exercise

RECORD = "fusion/padding"
QUICK, SLOW = 2, 3  # launches of the report
_WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
# Figures of both launches: where they are found, the metric, and the relative tolerance.
_OF_BOTH = {
    "issue_percent": ("", "smsp__issue_active.avg.pct_of_peak_sustained_active", 0.03),
    "occupancy_percent": ("achieved_occupancy_percent", _WARPS, 0.03),
    "registers": ("registers_per_thread", "launch__registers_per_thread", 0),
    "memory_percent": (
        "memory_throughput_percent",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
        0.03,
    ),
    "waves": ("waves_per_sm", "launch__waves_per_multiprocessor", 0.03),
    "blocks_by_registers": ("", "launch__occupancy_limit_registers", 0),
}


def data() -> Data:
    """The data on the report's launches 2 and 3."""
    from helpers import ncu

    report = ncu.load_report(recorded_data.path(RECORD))
    quick, slow = report[QUICK], report[SLOW]

    def ratio(metric: str) -> float:
        return float(slow.metrics[metric]) / float(quick.metrics[metric])

    slowdown = slow.duration_us / quick.duration_us
    more_work = ratio("smsp__inst_executed.sum")
    more_bytes = ratio("dram__bytes.sum.per_second") * slowdown
    figures = {
        "duration_ratio": Figure(slowdown, within=0.02),
        "instructions_ratio": Figure(more_work, within=0.02),
        "dram_mb_ratio": Figure(more_bytes, within=0.02),
    }
    both: dict[str, tuple[float, float]] = {}
    for name, (shown, metric, within) in _OF_BOTH.items():
        both[name] = float(quick.metrics[metric]), float(slow.metrics[metric])
        for i, value in zip((QUICK, SLOW), both[name], strict=True):
            figures[f"{name}_{i}"] = Figure(value, f"{shown or metric} of launch {i}", within)
    for i in (QUICK, SLOW):
        figures[f"duration_us_{i}"] = Figure(report[i].duration_us, f"duration_us of launch {i}", 0.02)
    issue, warps, memory = both["issue_percent"], both["occupancy_percent"], both["memory_percent"]
    waves, blocks = both["waves"][1], both["blocks_by_registers"]
    threads, allocated = slow.block[0], slow.metrics["launch__registers_per_thread_allocated"]
    fit = int(slow.metrics["device__attribute_max_registers_per_multiprocessor"] // allocated)
    few_warps = tuple(f"{name}_{SLOW}" for name in ("occupancy_percent", "registers", "blocks_by_registers"))
    findings = {
        "more-instructions": Claim(more_work > 1.3, evidence=("instructions_ratio",)),
        "same-rate-more-work": Claim(
            more_work > 1.3 and abs(issue[1] / issue[0] - 1) < 0.1,
            evidence=("instructions_ratio", f"issue_percent_{QUICK}", f"issue_percent_{SLOW}"),
        ),
        "fewer-warps": Claim(warps[1] < 0.7 * warps[0], evidence=few_warps),
        "memory-is-full": Claim(memory[1] > 80),
        "more-bytes": Claim(more_bytes > 1.3),
        "too-few-blocks": Claim(waves < 1),
        "tail": Claim(waves < 3),
    }
    # How long the bytes take at the rate of the quick launch, minus 5 % because learners round.
    bytes_us = 0.95 * more_bytes * quick.duration_us
    why = (
        f"launch {SLOW} moves nearly the same bytes as launch {QUICK}, which took {quick.duration_us:.0f} "
        f"µs, and it takes {slow.duration_us:.0f} µs now"
    )
    bound = {"after_us": (bytes_us, slow.duration_us, why)}
    by_work, by_warps = ("more-instructions", "same-rate-more-work"), ("fewer-warps",)
    changes = {
        "fewer-instructions": Claim(more_work > 1.3, acts_on=by_work, allows=bound),
        "fewer-registers": Claim(blocks[1] < blocks[0], acts_on=by_warps, allows=bound),
        "smaller-blocks": Claim(blocks[1] * threads < fit - 32, acts_on=by_warps, allows=bound),
        "more-blocks": Claim(waves < 1),
        "coalesce": Claim(False),
        "keep-in-cache": Claim(memory[1] > 80),
    }
    still_open = ("instructions-or-warps", "what-the-warps-wait-for", "which-source-line", "other-gpus")
    questions = dict.fromkeys(still_open, Claim(None))
    questions |= dict.fromkeys(("is-memory-full", "same-bytes"), Claim(True))
    return with_sentences(
        Data("the report", figures, findings, changes, questions, predicted=("after_us",), n_figures=3),
        Path(__file__).with_suffix(".toml"),
        allocated=allocated,
        fit=fit,
        threads=threads,
        resident=blocks[1] * threads,
        earlier=[launch.metrics[_WARPS] for launch in (report[0], report[1])],
        gpu=report.gpu,
    )


UNKNOWN = free_exercise(
    "unknown-report", "05_ncu", "Write the diagnosis of an unknown report", "DIAGNOSIS", data
)
