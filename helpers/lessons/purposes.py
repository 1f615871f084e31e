"""What the SASS instructions of lesson 04 are for: loads, multiplications, stores, masks, addresses.

The sorting goes by opcodes and operands, for kernels like the lesson's that load, multiply in fp32 and
store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers import plots

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from helpers.ptx import Instruction, Stages

PURPOSES = ("load", "multiply", "store", "mask", "zero", "address", "end")
_OPCODES = {"LDG": "load", "STG": "store", "FMUL": "multiply", "EXIT": "end", "BRA": "end"}
_MASKS = ("ISETP", "UISETP", "PLOP3", "P2R", "R2P")
_ZERO_SOURCES = {"RZ", "-RZ", "SRZ", "0", "0x0"}


def purpose(instruction: Instruction) -> str:
    """Returns what an instruction of a kernel like the lesson's is for: one of `PURPOSES`."""
    opcode = instruction.parts[0]
    if opcode in _OPCODES:
        return _OPCODES[opcode]
    if opcode in _MASKS:
        return "mask"
    sources = set(instruction.operands[1:])
    moves = opcode in ("MOV", "CS2R", "HFMA2") or instruction.matches("IMAD.MOV")
    return "zero" if moves and sources and sources <= _ZERO_SOURCES else "address"


def counts(kernels: dict[str, Stages], elements: dict[str, int]) -> pd.DataFrame:
    """Counts the SASS instructions of some kernels by purpose.

    Args:
        kernels: label -> the compiled kernel.
        elements: label -> elements that one thread of this kernel squares.

    Returns:
        A row per kernel, with a column per purpose, "all", and "per element".
    """
    import pandas as pd

    rows = {}
    for label, stages in kernels.items():
        found = [purpose(i) for i in stages.sass_reading.instructions]
        row = {name: found.count(name) for name in PURPOSES}
        rows[label] = row | {"all": len(found), "per element": len(found) / elements[label]}
    return pd.DataFrame.from_dict(rows, orient="index")


def draw(table: pd.DataFrame, elements: dict[str, int]) -> go.Figure:
    """Draws the instructions per element of each kernel, stacked by purpose.

    Args:
        table: as `counts` returns it.
        elements: as for `counts`.
    """
    import plotly.graph_objects as go

    labels = list(table.index)[::-1]
    fig = go.Figure()
    for name in PURPOSES:
        per_element = [table[name][label] / elements[label] for label in labels]
        bar = {"x": per_element, "y": labels, "orientation": "h", "name": name}
        fig.add_trace(go.Bar(**bar, hovertemplate=f"{name}: %{{x:.2f}} per element<extra></extra>"))
    fig.update_layout(barmode="stack", legend_traceorder="normal")
    title = "SASS instructions per element, by purpose"
    plots.layout(fig, title, "instructions per element", "", height=150 + 45 * len(labels))
    return fig
