"""Finds the loop in which a kernel multiplies, and counts its instructions, in the SASS of one kernel."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from helpers.ptx.sass import SassReading

# Instructions of tensor cores (NVIDIA, "CUDA Binary Utilities"): of one warp, of four, and of a whole SM.
_TENSOR = re.compile(r"(UTC)?[HIQDO]G?MMA")
_FUSED = re.compile(r"(FFMA2?|HFMA2|DFMA)")
_LABEL = re.compile(r"\s*([.$\w]+):\s*$")
_TARGET = re.compile(r"\(([.$\w]+)\)")


@dataclass(frozen=True)
class Loop:
    """One iteration of the loop in which a kernel multiplies.

    Attributes:
        n_instructions: the instructions between the loop's label and the branch back to it.
        opcode: the instruction that multiplies, without suffixes, such as "HGMMA" or "FFMA".
        n_products: how many of them there are.
    """

    n_instructions: int
    opcode: str
    n_products: int

    def __str__(self) -> str:
        return f"{self.n_products} {self.opcode} of {self.n_instructions:,} instructions per loop iteration"


def product_loop(sass: str, reading: SassReading) -> Loop | None:
    """Returns the innermost loop that has tensor-core instructions or, without any, fused multiply-adds.

    Args:
        sass: the text that was read.
        reading: what `read_sass` made of it.

    Returns:
        The shortest of the loops with at least half as many such instructions as any loop has, so that
        neither the loop around it nor a small one next to it is taken; None if no loop multiplies.
    """
    labels = {m[1]: n for n, row in enumerate(sass.split("\n"), 1) if (m := _LABEL.match(row))}
    bodies = []
    for branch in reading.find("BRA"):
        target = next((m[1] for operand in branch.operands if (m := _TARGET.search(operand))), None)
        start = labels.get(target, branch.line)
        if start < branch.line:
            bodies.append([i.parts[0] for i in reading.instructions if start < i.line <= branch.line])
    for products in (_TENSOR, _FUSED):
        counted = [(len(body), Counter(filter(products.fullmatch, body))) for body in bodies]
        most = max((found.total() for _, found in counted), default=0)
        if most:
            length, found = min((c for c in counted if 2 * c[1].total() >= most), key=lambda c: c[0])
            (opcode, _), *_ = found.most_common(1)
            return Loop(length, opcode, found[opcode])
    return None
