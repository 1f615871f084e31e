"""Lab 04's free exercise: a blog's claim about float4, compared with PTX and a recorded sweep
with counters.
"""

from __future__ import annotations

from pathlib import Path

from helpers.exercises import recorded_data
from helpers.exercises.consistency import Claim, Data, Figure, with_sentences
from helpers.exercises.factories import free_exercise

RECORD = "ptx/load-widths"


def data() -> Data:
    """The data in ptx/load-widths: five launch configurations, each with loads of 4 and of 16 bytes."""
    table = recorded_data.table(RECORD)
    shapes = {}
    for (kernel, block, warps), two in table.groupby(["kernel", "block_size", "num_warps"], sort=False):
        rows = two.set_index("load_bytes")
        shapes[f"{kernel}_{block}_{warps}"] = (rows.loc[4], rows.loc[16])
    gains = {name: float(narrow.narrow_over_wide) for name, (narrow, _) in shapes.items()}
    saved = {name: int(narrow.registers - wide.registers) for name, (narrow, wide) in shapes.items()}
    sectors = {name: float(narrow.sectors / wide.sectors) for name, (narrow, wide) in shapes.items()}
    requests = {name: float(narrow.requests / wide.requests) for name, (narrow, wide) in shapes.items()}
    bytes_more = max(float(narrow.dram_mb / wide.dram_mb) for narrow, wide in shapes.values())
    least, most = min(gains, key=gains.get), max(gains, key=gains.get)
    least_repeated = min(gains[name] for name in shapes if sectors[name] > 1.5)
    most_same = max(gains[name] for name in shapes if sectors[name] <= 1.5)
    most_saved = max(saved, key=saved.get)
    first = next(iter(shapes.values()))[0]
    loads = int(first.elements)  # floats per thread: one per load, or four per load

    figures = {}
    for name, gain in gains.items():
        source = f"narrow_over_wide of {name.replace('_', ', ')} in the table"
        figures[f"gain_{name}"] = Figure(gain, source, 0.004, 0.004)
    for name, n in saved.items():
        source = f"registers of {name.replace('_', ', ')}, narrow minus wide"
        figures[f"registers_saved_{name}"] = Figure(n, source, 0, 0.5)
    every_gain = tuple(f"gain_{name}" for name in shapes)
    every_saving = tuple(f"registers_saved_{name}" for name in shapes)
    figures |= {
        "requests_ratio": Figure(requests[most], within=0.02),
        "sectors_ratio_flat": Figure(max(sectors.values()), within=0.02),
        "sectors_ratio_rows": Figure(min(sectors.values()), within=0.02),
        "dram_ratio_most": Figure(bytes_more, within=0.005),
        "ptx_loads_narrow": Figure(loads, within=0, at_least=0.1),
        "ptx_loads_wide": Figure(loads / 4, within=0, at_least=0.1),
    }
    spread = (
        f"with a quarter of the requests, launches become {gains[least]:.3f} times ({least}) to "
        f"{gains[most]:.3f} times ({most}) as fast"
    )
    by_registers = (
        f"{most_saved} saves {saved[most_saved]} registers and becomes {gains[most_saved]:.3f} times as "
        f"fast, but {most} saves {saved[most]} and becomes {gains[most]:.3f} times as fast"
    )
    registers_mislead = most_saved != most and gains[most] > gains[most_saved] * 1.05
    sectors_tell = least_repeated > most_same
    findings = {
        "gain-not-by-loads": Claim(
            gains[most] - 1 > 3 * (gains[least] - 1), evidence=(*every_gain, "requests_ratio")
        ),
        "gain-not-by-registers": Claim(registers_mislead, evidence=every_saving),
        "gain-where-sectors-repeat": Claim(
            sectors_tell, evidence=(*every_gain, "sectors_ratio_flat", "sectors_ratio_rows")
        ),
        "bytes-are-the-same": Claim(bytes_more < 1.02, evidence=("dram_ratio_most", "requests_ratio")),
        "claim-holds": Claim(False),
        "no-gain-at-all": Claim(bool((table.ratio_low <= 1).all())),
        "every-kernel-gains": Claim(None),
    }
    by_sectors = ("gain-where-sectors-repeat", "gain-not-by-loads", "gain-not-by-registers")
    changes = {
        "widen-and-time": Claim(True),
        "widen-where-sectors-repeat": Claim(sectors_tell, acts_on=by_sectors),
        "leave-the-row-kernel": Claim(most_same < 1.06),
        "save-registers-first": Claim(not registers_mislead),
        "never-widen": Claim(False),
        "always-widen": Claim(None),
    }
    still_open = ("other-kernels", "other-gpus", "small-tensors", "sizes-that-do-not-divide")
    questions = dict.fromkeys(still_open, Claim(None))
    questions |= dict.fromkeys(("same-bytes", "fewer-load-instructions"), Claim(True))
    return with_sentences(
        Data("the table", figures, findings, changes, questions, n_figures=3),
        Path(__file__).with_suffix(".toml"),
        spread=spread,
        by_registers=by_registers,
        least_repeated=least_repeated,
        most_same=most_same,
        lowest=table.ratio_low.min(),
        n_launches=len(shapes),
        least_percent=100 * (gains[least] - 1),
        most_percent=100 * (gains[most] - 1),
        same_percent=100 * (most_same - 1),
        most=most,
        most_gain=gains[most],
        gpu=recorded_data.origin(RECORD),
    )


BLOG = free_exercise("test-a-blog", "04_ptx", "Test what a blog says about float4", "FLOAT4", data)
