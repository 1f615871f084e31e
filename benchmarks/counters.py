"""What Nsight Compute counts at the points of the course's sliders: bytes, how busy each part was, what warps
waited for.

    python benchmarks/counters.py                 # the sliders' first positions, each kernel
    python benchmarks/counters.py launch softmax  # of these sliders

It prints what the sliders say under their bars, and how long counting two kernels takes (the target: 10 s).
With WORKBOOK_RECORD=1 it counts every point that the recorded sweep has timed, a quarter of an hour in all,
and keeps them beside the sweep (triton/launch-sweep-counters and so on), where the sliders replay them.
"""

from __future__ import annotations

import argparse
import os
import time

from helpers import device, ncu, records
from helpers.widgets import counting, explain
from helpers.widgets.softmax import SPACE as SOFTMAX
from helpers.widgets.square import SPACES
from helpers.widgets.table import Table, from_frame

ALL = {**SPACES, SOFTMAX.name: SOFTMAX}
COUNT_S = 10


def record(name: str) -> None:
    """Count every point of a sweep that this GPU's record has as right, and keep it."""
    space = ALL[name]
    frames = records.stored_by_gpu(space.record, sources=space.sources())
    frame = frames.get(records.gpu_folder_name(device.gpu_spec().name))
    if frame is None:
        print(
            f"{name}: {space.record} is not recorded on this GPU for the kernels of now; `make record` does "
            "it."
        )
        return
    swept = from_frame(space, frame)
    points = [
        (kernel, point)
        for kernel, point in space.points()
        if (row := swept.row(kernel, point)) is not None and row["verdict"] == "ok"
    ]
    begin = time.perf_counter()
    frame = records.measured(
        counting.name_of(space), lambda: counting.record(space, points), sources=space.sources()
    )
    print(f"{name}: {len(frame)} of {len(points)} points counted in {time.perf_counter() - begin:.0f} s")


def look(name: str) -> None:
    """Count a slider's first position, and print what is said of its two kernels."""
    space = ALL[name]
    table, point = Table(space, device.gpu_spec(), live=True), dict(space.start)
    mine, rival = (*space.mapped, *space.rivals)[:2]
    for kernel in (mine, rival):
        table.measured(kernel, point)
    begin = time.perf_counter()
    table.count((mine, rival), point)
    seconds = time.perf_counter() - begin
    print(f"{name}: counted in {seconds:.1f} s, target {COUNT_S} s, ratio {seconds / COUNT_S:.2f}")
    sides = [explain.side(table, kernel, point) for kernel in (mine, rival)]
    print(explain.sentence(*sides))
    columns = [explain.lines(table, side) for side in sides]
    for title in columns[0]:
        print(f"  {title:<30} {columns[0][title]:<40} {columns[1][title]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sliders", nargs="*", choices=[*ALL, []], help=f"of {', '.join(ALL)}; all by default")
    names = parser.parse_args().sliders or list(ALL)
    if refusal := ncu.why_not():
        print(f"Nothing to count here: {refusal}")
        return
    device.prepare()
    recording = os.environ.get("WORKBOOK_RECORD") == "1"
    for name in names:
        (record if recording else look)(name)


if __name__ == "__main__":
    main()
