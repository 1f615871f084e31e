"""What a warp's loads and stores ask for: sectors of global memory, passes over the banks of shared memory.

The addresses of the 32 lanes of warp 0 are worked out from the PTX, with nothing run. Each register is a number that is
the same for all lanes plus a known distance for each lane; the common number (a pointer, a row's beginning, a loop's
counter) need not be known. That covers addresses that are affine in the lane, and swizzled ones. Where an address depends on
loaded data, or on a lane times a run-time stride, there is no such distance, and the access says so.

Assumed: the common part begins on a line of 128 bytes, and no lane is masked off.

Sources: NVIDIA, "CUDA C++ Best Practices Guide" (32-byte sectors; 32 banks of 4 bytes; lanes of 8 and 16 bytes are served
by half and quarter warps); NVIDIA, "Parallel Thread Execution ISA" (instructions).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.ptx.read import Instruction, PtxReading

if TYPE_CHECKING:
    import numpy as np

_WARP, _SECTOR, _BANKS, _WORD = 32, 32, 32, 4
NOT_AFFINE = "not affine: its address depends on loaded data, or on a lane times a run-time stride"


@dataclass(frozen=True)
class Access:
    """One load or store of a warp.

    Attributes:
        instruction: the PTX.
        space: "global" or "shared".
        n_bytes: of one lane.
        distances: of each lane's address from the common part, in bytes; None where the address is not affine.
    """

    instruction: Instruction
    space: str
    n_bytes: int
    distances: tuple[int, ...] | None

    @property
    def asked(self) -> int | None:
        """Sectors of global memory that the warp asks for, or passes over shared memory's banks; None: not known."""
        if self.distances is None:
            return None
        return (
            sectors(self.distances, self.n_bytes)
            if self.space == "global"
            else passes(self.distances, self.n_bytes)
        )

    @property
    def fewest(self) -> int | None:
        """The least that so many different bytes need; None where they are not known."""
        if self.distances is None:
            return None
        n_bytes = len({d + i for d in self.distances for i in range(self.n_bytes)})
        return max(1, -(-n_bytes // (_SECTOR if self.space == "global" else _BANKS * _WORD)))

    @property
    def words(self) -> str:
        """The same as a line of text."""
        if self.asked is None:
            return NOT_AFFINE
        unit = "sector" if self.space == "global" else "pass"
        plural = {"sector": "sectors", "pass": "passes"}[unit]
        asked = f"{self.asked} {unit if self.asked == 1 else plural}"
        if self.asked <= self.fewest:
            return f"{asked}, the fewest possible"
        conflict = "" if self.space == "global" else ": a bank conflict"
        return f"{asked}, where {self.fewest} would do{conflict}"


def sectors(distances: Sequence[int], n_bytes: int) -> int:
    """How many 32-byte sectors the lanes' addresses touch, each with so many bytes, from the beginning of a line."""
    return len({(d + i) // _SECTOR for d in distances for i in range(n_bytes)})


def passes(distances: Sequence[int], n_bytes: int) -> int:
    """How often shared memory is passed for one access: the most different words in one bank, for each part of the warp.

    Lanes of up to 4 bytes are served together, of 8 in halves, of 16 in quarters. One word goes to all lanes that ask for it.
    """
    lanes_at_once = _WARP * _WORD // max(_WORD, n_bytes)
    total = 0
    for start in range(0, len(distances), lanes_at_once):
        part = distances[start : start + lanes_at_once]
        words = {(d + i) // _WORD for d in part for i in range(n_bytes)}
        counts = [
            sum(1 for word in words if word % _BANKS == bank) for bank in {word % _BANKS for word in words}
        ]
        total += max(counts, default=0)
    return total


def accesses(reading: PtxReading, *, block: Sequence[int] | None = None) -> list[Access]:
    """The loads and stores of a kernel's PTX to global and shared memory, with what a warp asks for.

    Args:
        reading: from `read_ptx`, or `Stages.reading`.
        block: threads of a block as (x, y, z), where the PTX does not say; one line of threads otherwise.
    """
    shape = tuple(reading.reqntid or block or ())
    values = _values(reading, shape)
    found = []
    for one in reading.instructions:
        for space, n_bytes, address in _addresses(one):
            value = _address(values, address)
            lanes = None if value is None else tuple(int(d) for d in value.lanes - value.lanes.min())
            found.append(Access(one, space, n_bytes, lanes))
    return found


def _addresses(one: Instruction) -> list[tuple[str, int, str]]:
    """Space, bytes of a lane and address of each place that an instruction goes to."""
    places = [operand for operand in one.operands if operand.startswith("[")]
    if one.matches("cp.async") and len(places) == 2 and one.operands[-1].isdigit():
        return [("global", int(one.operands[2]), places[1]), ("shared", int(one.operands[2]), places[0])]
    if one.parts[0] in ("ldmatrix", "stmatrix") and places:
        return [("shared", 16, places[0])]
    space = "global" if one.space == "generic" else one.space
    if space not in ("global", "shared") or not places or "%SP" in places[0] or not one.n_bytes:
        return []
    return [(space, one.n_bytes, places[0])]


# ------------------------------------------------------------------------------------------- values of a warp


_ALL_ZERO = 63  # trailing zero bits of the number 0


@dataclass(frozen=True, eq=False)
class _Value:
    """A register in the 32 lanes: a number that all share, plus a known one for each lane.

    `zeros` is how many bits of the shared number are known to be 0 at its end; where all are, it is 0 itself.
    """

    lanes: np.ndarray
    zeros: int

    @property
    def known(self) -> bool:
        return self.zeros == _ALL_ZERO

    @property
    def uniform(self) -> bool:
        return bool((self.lanes == self.lanes[0]).all())

    @property
    def apart(self) -> bool:
        """Whether the lanes' bits are apart from those of the shared number."""
        return self.known or bool((self.lanes >= 0).all() and (self.lanes < 1 << self.zeros).all())


def _zeros(number: int) -> int:
    """Trailing zero bits."""
    return _ALL_ZERO if number == 0 else min(_ALL_ZERO - 1, (number & -number).bit_length() - 1)


def _shared(like: np.ndarray, zeros: int = 0) -> _Value:
    """A number that all lanes share and that is not known."""
    return _Value(0 * like, zeros)


def _joined(old: _Value | None, new: _Value | None) -> _Value | None:
    """A register that is written in two places."""
    if old is None or new is None:
        return None
    apart = new.lanes - old.lanes
    if not (apart == apart[0]).all():
        return None
    return _Value(old.lanes, min(old.zeros, new.zeros, _zeros(int(apart[0]))))


def _values(reading: PtxReading, shape: tuple[int, ...]) -> dict[str, _Value | None]:
    """Every register's value over the lanes of warp 0; None where there is none, no entry where nothing writes it."""
    found: dict[str, _Value | None] = {}
    changed = True
    while changed:  # a register only ever becomes less known
        changed = False
        for one in reading.instructions:
            written, sources = _split(one)
            if not written:
                continue
            inputs = [_operand(found, source, shape) for source in sources]
            if any(value is _MISSING for value in inputs):
                continue
            result = _result(one, inputs)
            for name in written:
                new = _joined(found[name], result) if name in found else result
                if name not in found or _differs(found[name], new):
                    found[name], changed = new, True
    return found


_MISSING = object()


def _differs(old: _Value | None, new: _Value | None) -> bool:
    if old is None or new is None:
        return old is not new
    return old.zeros != new.zeros or bool((old.lanes != new.lanes).any())


def _split(one: Instruction) -> tuple[list[str], list[str]]:
    """The registers that an instruction writes, and its other operands."""
    if one.parts[0] in ("st", "red", "bra", "ret", "bar", "cp", "stmatrix", "mbarrier") or not one.operands:
        return [], []
    first, rest = one.operands[0], list(one.operands[1:])
    if not first.startswith(("%", "{")):
        return [], []
    return re.findall(r"%[\w$]+", first), rest


def _operand(values: dict[str, _Value | None], text: str, shape: tuple[int, ...]) -> _Value | object | None:
    import numpy as np

    lane = np.arange(_WARP, dtype=np.int64)
    constant = lambda number: _Value(np.full(_WARP, number, dtype=np.int64), _ALL_ZERO)  # noqa: E731
    if re.fullmatch(r"-?\d+|-?0x[0-9a-fA-F]+", text):
        return constant(int(text, 0))
    if text == "%laneid":
        return _Value(lane, _ALL_ZERO)
    if (special := re.fullmatch(r"%(n?tid)\.([xyz])", text)) is not None:
        sizes = (*shape, 1, 1, 1)[:3] if shape else (1 << 30, 1, 1)
        axis = "xyz".index(special[2])
        if special[1] == "ntid":
            return constant(sizes[axis]) if shape else _shared(lane)
        below = int(np.prod(sizes[:axis], dtype=np.int64))
        return _Value(lane // below % sizes[axis], _ALL_ZERO)
    if text.startswith("[") or not text.startswith("%"):
        # An address gives what lies there: the same for all lanes where the address is.
        inside = _address(values, text) if text.startswith("[") else _shared(lane)
        return None if inside is None or not inside.uniform else _shared(lane)
    if re.match(r"%(ctaid|nctaid|warpid|cluster|smid|gridid|nwarpid)", text):
        return _shared(lane)
    if text.startswith(("%clock", "%globaltimer", "%lanemask")):
        return None
    return values.get(text.lstrip("!"), _MISSING)


def _address(values: dict[str, _Value | None], text: str) -> _Value | None:
    import numpy as np

    match = re.fullmatch(r"\[\s*(%[\w$]+)?\s*([\w$]*)\s*(?:\+\s*(-?\d+))?\s*\]", text)
    if match is None or match[1] is None:
        return _shared(np.zeros(_WARP, dtype=np.int64))  # a name: a parameter, or a variable
    return values.get(match[1])


def _result(one: Instruction, inputs: list) -> _Value | None:
    """What an instruction gives, from its inputs."""
    import numpy as np

    base = one.parts[0]
    if base in ("atom", "shfl", "match", "activemask", "elect") or any(value is None for value in inputs):
        return None
    inputs = [_Value(_typed(v.lanes, one.parts[-1]), v.zeros) if v.known else v for v in inputs]
    if base in ("mov", "cvt", "cvta") and len(inputs) == 1:
        return inputs[0]
    if base in ("add", "sub") and len(inputs) == 2 and one.parts[-1][0] != "f":
        a, b = inputs
        return _Value(a.lanes + b.lanes if base == "add" else a.lanes - b.lanes, min(a.zeros, b.zeros))
    if base in ("mul", "mad") and one.parts[-1][0] in "sub" and "hi" not in one.parts:
        product = _product(inputs[0], inputs[1])
        if base == "mul" or product is None:
            return product
        return _Value(product.lanes + inputs[2].lanes, min(product.zeros, inputs[2].zeros))
    if base == "shl" and inputs[1].known and inputs[1].uniform:
        return _product(inputs[0], _Value(1 << np.minimum(inputs[1].lanes, 62), _ALL_ZERO))
    if (
        all(value.known for value in inputs)
        and (lanes := _bitwise(one, [v.lanes for v in inputs])) is not None
    ):
        return _Value(lanes.astype(np.int64), _ALL_ZERO)
    if base in ("or", "xor", "and") and one.parts[-1] != "pred" and len(inputs) == 2:
        return _side_by_side(base, *inputs)
    if base == "selp" and inputs[2].uniform:
        return _joined(inputs[0], inputs[1])
    if inputs and all(value.uniform for value in inputs):
        return _shared(inputs[0].lanes)
    return None


def _side_by_side(base: str, a: _Value, b: _Value) -> _Value | None:
    """Bits of two numbers together, of which one is not known: compilers write so for a sum that carries nothing."""
    zeros = min(a.zeros, b.zeros)
    low = [bool((v.lanes >= 0).all() and (v.lanes < 1 << zeros).all()) for v in (a, b)]
    if base == "and":
        mask, other = (a, b) if a.known else (b, a)
        if mask.known and mask.uniform and other.apart:
            return _Value(other.lanes & mask.lanes, max(other.zeros, _zeros(int(mask.lanes[0]))))
    elif all(low):
        return _Value(a.lanes | b.lanes if base == "or" else a.lanes ^ b.lanes, zeros)
    return _shared(a.lanes) if a.uniform and b.uniform else None


def _typed(lanes: np.ndarray, kind: str) -> np.ndarray:
    """Known numbers as an instruction of a type reads them: 32 bits of "u32" are never negative."""
    match = re.fullmatch(r"([sub])(8|16|32)", kind)
    if match is None:
        return lanes
    whole = 1 << int(match[2])
    low = lanes % whole
    return low - whole * (low >= whole // 2) if match[1] == "s" else low


def _product(a: _Value, b: _Value) -> _Value | None:
    if a.known and b.known:
        return _Value(a.lanes * b.lanes, _ALL_ZERO)
    factor, other = (a, b) if a.known and a.uniform else (b, a)
    if factor.known and factor.uniform:
        number = int(factor.lanes[0])
        zeros = other.zeros + _zeros(number)
        return _Value(number * other.lanes, min(_ALL_ZERO - 1, zeros)) if number else factor
    return _shared(a.lanes, min(_ALL_ZERO - 1, a.zeros + b.zeros)) if a.uniform and b.uniform else None


def _bitwise(one: Instruction, lanes: list) -> np.ndarray | None:
    """Of known whole numbers, lane by lane; None for an instruction that is not among these."""
    import numpy as np

    base, n = one.parts[0], len(lanes)
    comparisons = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater",
                   "ge": "greater_equal", "lo": "less", "ls": "less_equal", "hi": "greater", "hs": "greater_equal"}  # fmt: skip
    if base == "setp" and n == 2 and one.parts[1] in comparisons:
        return getattr(np, comparisons[one.parts[1]])(*lanes)
    if base == "selp" and n == 3:
        return np.where(lanes[2] != 0, lanes[0], lanes[1])
    if base == "bfe" and n == 3:
        field = (lanes[0] >> lanes[1]) & ((1 << lanes[2]) - 1)
        signed = one.parts[-1][0] == "s"
        return np.where(signed & (field >> (lanes[2] - 1) & 1 == 1), field - (1 << lanes[2]), field)
    if base == "lop3" or one.parts[-1][0] == "f":
        return None
    two = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum, "max": np.maximum,
           "shr": np.right_shift, "rem": np.remainder, "div": np.floor_divide}  # fmt: skip
    if base in two and n == 2 and (base not in ("rem", "div") or (lanes[1] > 0).all()):
        return two[base](*lanes)
    if base == "neg" and n == 1:
        return -lanes[0]
    return ~lanes[0] if base == "not" and n == 1 else None
