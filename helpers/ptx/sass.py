"""Reads the SASS text that nvdisasm prints.

This module only reads. `helpers.ptx.artifacts` runs the disassembler.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from helpers.ptx.lines import SASS, sass_lines
from helpers.ptx.read import Instruction, split_operands

_LABEL = re.compile(r"\s*([.$\w]+):\s*$")


@dataclass(frozen=True)
class SassReading:
    """The machine code of one kernel.

    Attributes:
        instructions: in program order, without the padding: `NOP` and the final branch to itself.
        n_padding: the number of padding instructions that were left out.
    """

    instructions: tuple[Instruction, ...] = field(repr=False)
    n_padding: int

    def find(self, opcode: str) -> list[Instruction]:
        """Returns the instructions with this opcode, whatever its suffixes: "LDG" also finds `LDG.E.128`."""
        return [i for i in self.instructions if i.matches(opcode)]

    @property
    def opcodes(self) -> Counter[str]:
        """The number of occurrences of each full opcode."""
        return Counter(i.opcode for i in self.instructions)

    def __repr__(self) -> str:
        return f"{len(self.instructions)} SASS instructions (plus {self.n_padding} padding instructions)"


def read_sass(sass: str, ptx: str = "") -> SassReading:
    """Reads the SASS of one kernel.

    Args:
        sass: the text of `Stages.sass`: nvdisasm's output with line information.
        ptx: the kernel's PTX. With it, code that was inlined from another function is attributed to the line
            that called the function.

    Returns:
        The instructions. Padding that no thread reaches (`NOP` and the final branch to itself) is only
        counted.
    """
    lines = sass_lines(sass, ptx)
    found: list[Instruction] = []
    n_padding = 0
    previous_label = None
    for number, row in enumerate(sass.split("\n"), 1):
        if (label := _LABEL.match(row)) is not None:
            previous_label = label[1]
            continue
        match = SASS.match(row)
        if match is None:
            continue
        guard, opcode, rest = match[1], match[2].rstrip(";"), match[3]
        jumps_to_itself = (
            opcode == "BRA" and guard is None and previous_label and f"({previous_label})" in rest
        )
        previous_label = None
        if opcode == "NOP" or jumps_to_itself:
            n_padding += 1
            continue
        found.append(Instruction(number, opcode, split_operands(rest), guard, lines[number - 1]))
    return SassReading(tuple(found), n_padding)


def memory_bytes(one: Instruction) -> int | None:
    """Returns the bytes that a SASS load or store moves per lane.

    None for other instructions and for loads of constants. For `LDSM` it is a lane's share of the matrices.
    """
    if re.match(r"(LD|ST|LDG|STG|LDS|STS|LDL|STL|LDSM|STSM|LDGSTS|ATOM[GS]?|REDG?)$", one.parts[0]) is None:
        return None
    flags = one.parts[1:]
    if one.parts[0] in ("LDSM", "STSM"):
        return 4 * next((int(f) for f in flags if f in ("2", "4")), 1)
    wide = next((int(f) // 8 for f in flags if f in ("64", "128", "256")), None)
    narrow = next((int(f[1:]) // 8 for f in flags if f in ("U8", "S8", "U16", "S16")), None)
    return wide or narrow or (8 if "F64" in flags else 4)
