"""What a SASS instruction tells the scheduler: the 21 bits of its encoding that nvdisasm prints as a number only.

An instruction of Volta and later is 128 bits wide. From bit 105 up it says, for the hardware that no longer checks it by
itself: how many cycles to wait before the next instruction of the warp, which of six barriers to set when it has written
its result or read its operands, on which barriers to wait before it starts, and which operands to keep at hand.

Source: Jia, Maggioni, Staiger, Scarpazza, "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018,
arXiv:1804.06826, section 2.1, for fields and meaning; the assemblers maxas (wiki, "Control Codes"), for the notation, and
CuAssembler (`CuSMVersion.py`: the field begins at bit 105 on sm_7x and sm_8x). NVIDIA does not document any of it. Checked
here on sm_75 to sm_100: every load's barrier is waited on before its register is read (tests/ptx/test_control.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NONE = 7  # of three bits: no barrier


@dataclass(frozen=True)
class Control:
    """The control bits of one instruction.

    Attributes:
        stall_cycles: cycles until the warp's next instruction may issue, 0 to 15.
        switches: the scheduler had better go on with another warp (the yield bit is 0).
        write_barrier: the barrier, 0 to 5, that is set until the result has been written; None where none is.
        read_barrier: the barrier that is set until the operands have been read; None where none is.
        waits: the barriers that must be free before this instruction issues.
        reuse: for each of the four operand slots, whether its register is kept at hand for the next instruction.
    """

    stall_cycles: int
    switches: bool
    write_barrier: int | None
    read_barrier: int | None
    waits: tuple[int, ...]
    reuse: tuple[bool, bool, bool, bool]

    def __str__(self) -> str:
        """The notation of maxas and CuAssembler: `B--2---:R1:W0:Y:S04`."""
        mask = "".join(str(i) if i in self.waits else "-" for i in range(6))
        read, write = ("-" if b is None else b for b in (self.read_barrier, self.write_barrier))
        return f"B{mask}:R{read}:W{write}:{'Y' if self.switches else '-'}:S{self.stall_cycles:02}"

    @property
    def words(self) -> str:
        """The same as a sentence."""
        parts = []
        if self.waits:
            parts.append(f"waits for barrier{'s' * (len(self.waits) > 1)} {', '.join(map(str, self.waits))}")
        if self.write_barrier is not None:
            parts.append(f"holds barrier {self.write_barrier} until its result is written")
        if self.read_barrier is not None:
            parts.append(f"holds barrier {self.read_barrier} until its operands are read")
        cycles = f"{self.stall_cycles} cycle{'s' * (self.stall_cycles != 1)}"
        parts.append(f"the warp's next instruction comes {cycles} later at the earliest")
        if self.switches:
            parts.append("the scheduler had better take another warp")
        if any(self.reuse):
            slots = ", ".join(str(i) for i, kept in enumerate(self.reuse) if kept)
            parts.append(f"keeps the register of operand slot {slots} for the next instruction")
        return "; ".join(parts)


def decode(encoding: int) -> Control:
    """The control bits of an instruction's 128-bit encoding.

    Args:
        encoding: the instruction as one number; its second 64-bit word is the upper half.

    Raises:
        ValueError: no number of 128 bits.
    """
    if not 0 <= encoding < 1 << 128:
        raise ValueError(f"An instruction's encoding is a number of 128 bits, not {encoding!r}.")
    bits = encoding >> 105
    write, read = bits >> 5 & 7, bits >> 8 & 7
    return Control(
        stall_cycles=bits & 15,
        switches=not bits >> 4 & 1,
        write_barrier=None if write == _NONE else write,
        read_barrier=None if read == _NONE else read,
        waits=tuple(i for i in range(6) if bits >> 11 + i & 1),
        reuse=tuple(bool(bits >> 17 + i & 1) for i in range(4)),
    )


_ENCODED = re.compile(r"^(\s*/\*([0-9a-f]{4,})\*/.*?;)\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_SECOND = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/\s*$")


def split_encodings(text: str) -> tuple[str, dict[int, int]]:
    """nvdisasm's text with encodings, as one without them, and the encodings.

    Args:
        text: what `nvdisasm --print-instruction-encoding` prints: a word beside each instruction, and one on the next line.

    Returns:
        The text as nvdisasm prints it without that option, and the 128-bit number of each instruction by its offset in
        bytes. The numbers are none where the text was printed without them.
    """
    lines, encodings = [], {}
    offset = None
    for line in text.split("\n"):
        if (first := _ENCODED.match(line)) is not None:
            offset = int(first[2], 16)
            encodings[offset] = int(first[3], 16)
            lines.append(first[1])
        elif offset is not None and (second := _SECOND.match(line)) is not None:
            encodings[offset] |= int(second[1], 16) << 64
        else:
            lines.append(line)
    return "\n".join(lines), encodings
