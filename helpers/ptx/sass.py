"""Read SASS text, as nvdisasm prints it with or without encodings.

Nothing here disassembles: `helpers.ptx.artifacts` does, and hands its text to this reader.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from helpers.ptx.control import decode, split_encodings
from helpers.ptx.lines import SASS, sass_lines
from helpers.ptx.read import Instruction, split_operands

_LABEL = re.compile(r"\s*([.$\w]+):\s*$")


@dataclass(frozen=True)
class SassReading:
    """One kernel's machine code.

    Attributes:
        instructions: in order, without `NOP` and without the jump-to-itself that pads the end.
        labels: of each label, the index of the instruction that it stands before.
        n_padding: how many instructions that leaves out.
    """

    instructions: tuple[Instruction, ...] = field(repr=False)
    labels: Mapping[str, int] = field(repr=False)
    n_padding: int

    def find(self, opcode: str) -> list[Instruction]:
        """Instructions whose opcode is `opcode` or begins with it up to a dot: "LDG" finds `LDG.E.128`."""
        return [i for i in self.instructions if i.matches(opcode)]

    @property
    def opcodes(self) -> Counter[str]:
        """How often each full opcode occurs."""
        return Counter(i.opcode for i in self.instructions)

    def __repr__(self) -> str:
        return f"{len(self.instructions)} SASS instructions (and {self.n_padding} that only pad)"


def read_sass(sass: str, ptx: str = "") -> SassReading:
    """Read one kernel's SASS as `Stages.sass` or `Stages.encoded_sass` has it (nvdisasm with line information).

    With the kernel's PTX too, code inlined from other functions is attributed to the line that called it. With encodings
    each instruction has its control bits; line numbers are always those of the text without encodings.
    `NOP` and the final jump-to-itself are padding that no thread reaches; they are counted apart.
    """
    text, encodings = split_encodings(sass)
    lines = sass_lines(text, ptx)
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    n_padding = 0
    previous_label = None
    for number, row in enumerate(text.split("\n"), 1):
        if (label := _LABEL.match(row)) is not None:
            previous_label = label[1]
            labels[label[1]] = len(found)
            continue
        match = SASS.match(row)
        if match is None:
            continue
        offset, guard, opcode, rest = int(match[1], 16), match[2], match[3].rstrip(";"), match[4]
        jumps_to_itself = (
            opcode == "BRA" and guard is None and previous_label and f"({previous_label})" in rest
        )
        previous_label = None
        if opcode == "NOP" or jumps_to_itself:
            n_padding += 1
            continue
        control = decode(encodings[offset]) if offset in encodings else None
        found.append(
            Instruction(number, opcode, split_operands(rest), guard, lines[number - 1], offset, control)
        )
    return SassReading(tuple(found), labels, n_padding)


def memory_bytes(one: Instruction) -> int | None:
    """Bytes that a SASS load or store moves for one lane; None for what is none, or reads constants.

    Of `LDSM` a lane's share of the matrices.
    """
    if re.match(r"(LD|ST|LDG|STG|LDS|STS|LDL|STL|LDSM|STSM|LDGSTS|ATOM[GS]?|REDG?)$", one.parts[0]) is None:
        return None
    flags = one.parts[1:]
    if one.parts[0] in ("LDSM", "STSM"):
        return 4 * next((int(f) for f in flags if f in ("2", "4")), 1)
    wide = next((int(f) // 8 for f in flags if f in ("64", "128", "256")), None)
    narrow = next((int(f[1:]) // 8 for f in flags if f in ("U8", "S8", "U16", "S16")), None)
    return wide or narrow or (8 if "F64" in flags else 4)
