"""Lab 04's free exercise: a blog's claim about float4, compared with PTX and a recorded sweep
with counters.
"""

from __future__ import annotations

from helpers.exercises import recorded_data
from helpers.exercises.consistency import Claim, Data, Figure
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
    repeated = [gains[name] for name in shapes if sectors[name] > 1.5]
    same = [gains[name] for name in shapes if sectors[name] <= 1.5]
    most_saved = max(saved, key=saved.get)
    first = next(iter(shapes.values()))[0]
    loads = int(first.elements)  # floats per thread: one per load, or four per load

    figures = {
        f"gain_{name}": Figure(
            gain, f"narrow_over_wide of {name.replace('_', ', ')} in the table", 0.004, 0.004
        )
        for name, gain in gains.items()
    }
    figures |= {
        f"registers_saved_{name}": Figure(
            n, f"registers of {name.replace('_', ', ')}, narrow minus wide", 0, 0.5
        )
        for name, n in saved.items()
    }
    figures |= {
        "requests_ratio": Figure(requests[most], "requests, narrow over wide", 0.02),
        "sectors_ratio_flat": Figure(
            max(sectors.values()), "sectors of the flat kernel, narrow over wide", 0.02
        ),
        "sectors_ratio_rows": Figure(
            min(sectors.values()), "sectors of the row kernel, narrow over wide", 0.02
        ),
        "dram_ratio_most": Figure(bytes_more, "the largest dram_mb, narrow over wide", 0.005),
        "ptx_loads_narrow": Figure(
            loads, "the loads per thread in the narrow kernel's PTX (flat, 1024, 4 warps)", 0, 0.1
        ),
        "ptx_loads_wide": Figure(
            loads / 4, "the loads per thread in the wide kernel's PTX (flat, 1024, 4 warps)", 0, 0.1
        ),
    }
    every_gain = tuple(f"gain_{name}" for name in shapes)
    every_saving = tuple(f"registers_saved_{name}" for name in shapes)
    spread = (
        f"a quarter of the requests gave {gains[least]:.3f} times ({least}) to {gains[most]:.3f} times "
        f"({most})"
    )
    by_registers = (
        f"{most_saved} saves {saved[most_saved]} registers and gains {gains[most_saved]:.3f} times, "
        f"{most} saves {saved[most]} and gains {gains[most]:.3f} times"
    )
    registers_mislead = most_saved != most and gains[most] > gains[most_saved] * 1.05
    findings = {
        "gain-not-by-loads": Claim(
            gains[most] - 1 > 3 * (gains[least] - 1), spread, (*every_gain, "requests_ratio")
        ),
        "gain-not-by-registers": Claim(registers_mislead, by_registers, every_saving),
        "gain-where-sectors-repeat": Claim(
            min(repeated) > max(same),
            f"if narrow loads request {max(sectors.values()):.0f} times the sectors the gain is at least "
            f"{min(repeated):.3f} times, and if they request as many it is at most {max(same):.3f} times",
            (*every_gain, "sectors_ratio_flat", "sectors_ratio_rows"),
        ),
        "bytes-are-the-same": Claim(
            bytes_more < 1.02,
            f"the narrow kernels move at most {bytes_more:.3f} times the bytes of DRAM",
            ("dram_ratio_most", "requests_ratio"),
        ),
        "claim-holds": Claim(False, f"{spread}; and {by_registers}"),
        "no-gain-at-all": Claim(
            bool((table.ratio_low <= 1).all()),
            f"the interval of every ratio is above 1, and the lowest starts at {table.ratio_low.min():.3f}",
        ),
        "every-kernel-gains": Claim(
            None,
            f"all {len(shapes)} launches gained, but they are of two kernels that square, not of every "
            "kernel",
        ),
    }
    changes = {
        "widen-and-time": Claim(
            True,
            f"the same change gains {100 * (gains[least] - 1):.1f} to {100 * (gains[most] - 1):.0f} %",
        ),
        "widen-where-sectors-repeat": Claim(
            min(repeated) > max(same),
            "the sectors separate the larger gains from the smaller ones",
            acts_on=("gain-where-sectors-repeat", "gain-not-by-loads", "gain-not-by-registers"),
        ),
        "leave-the-row-kernel": Claim(
            max(same) < 1.06, f"the row kernel gains at most {100 * (max(same) - 1):.1f} %"
        ),
        "save-registers-first": Claim(not registers_mislead, by_registers),
        "never-widen": Claim(False, f"{most} took {gains[most]:.3f} times as long without it"),
        "always-widen": Claim(
            None, "nothing was slower with wide loads here, but only squares were measured"
        ),
    }
    questions = {
        "other-kernels": Claim(None, "only two kernels that square were measured"),
        "other-gpus": Claim(None, f"the table is about one GPU, {recorded_data.origin(RECORD)}"),
        "small-tensors": Claim(None, "all launches square 10,000 × 10,000 floats"),
        "sizes-that-do-not-divide": Claim(None, "every size in the table allows wide loads"),
        "same-bytes": Claim(True, f"DRAM moved at most {bytes_more:.3f} times as much"),
        "fewer-load-instructions": Claim(True, f"requests fall to 1 / {requests[most]:.2f}, as in the PTX"),
    }
    return Data("the table", figures, findings, changes, questions, n_figures=3)


BLOG = free_exercise("test-a-blog", "04_ptx", "Test what a blog says about float4", "FLOAT4", data)
