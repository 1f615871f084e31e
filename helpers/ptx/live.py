"""Which registers are live at each SASS instruction: what a thread must hold there, by data flow over the text.

A register is live where its value is still to be read. Instructions are walked backwards from their reads until a write
ends the search, through every branch, until nothing changes any more. A write under a predicate ends only the reads under
the same predicate. A call reads and writes what its routine does, and the routine returns behind each of its calls.

SASS names only the first register of a pair or quad; which operands are wider, `widths` says from the opcode. NVIDIA
documents no such table: this one is set against the counts of `nvdisasm --print-life-ranges` (tests/ptx/test_live.py).
That option itself works with cubins of CUDA 13, such as NVRTC's, and not with those that Triton's ptxas writes for sm_75 to
sm_90 ("flow analysis is disabled"), nor with a text that was kept.

Source: Cooper, Torczon, "Engineering a Compiler", section 8.6.1 (live variables); NVIDIA, "CUDA Binary Utilities" (opcodes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from helpers.ptx.read import Instruction
from helpers.ptx.sass import SassReading

_REGISTER = re.compile(r"(?<![\w.])(U?[RP])(\d+)(?![\w])")
_BARE = re.compile(r"!?[-~|]*(U?)([RP])(\d+|Z|T)\b[^\[]*$")
# They write no register, whatever their first operand is.
_WRITES_NOTHING = (
    "ST", "STG", "STS", "STL", "STSM", "RED", "REDG", "BRA", "BRX", "EXIT", "BAR", "BSSY", "BSYNC", "BREAK", "CALL",
    "RET", "MEMBAR", "DEPBAR", "LDGSTS", "LDGDEPBAR", "WARPSYNC", "NANOSLEEP", "R2P", "CCTL", "UTMALDG", "UTMASTG", "STAS",
)  # fmt: skip
_MEMORY = ("LD", "ST", "ATOM", "RED", "CCTL")
_SETS_PREDICATES = re.compile(r"U?([A-Z]+SETP2?|PLOP3|PSETP)$")


@dataclass(frozen=True)
class Live:
    """What is live at one instruction: what it reads, writes, or only carries past.

    Attributes:
        registers: numbers of the general registers.
        predicates: how many predicates.
        uniform: how many uniform registers, which a warp has once.
    """

    registers: frozenset[int]
    predicates: int
    uniform: int


def live(reading: SassReading) -> tuple[Live, ...]:
    """What is live at each instruction of a kernel, in their order."""
    code = reading.instructions
    effects = [_effect(one) for one in code]
    routines = _routines(reading)
    follows = [list(_followers(reading, routines, n)) for n in range(len(code))]
    for _ in routines:  # one may call another
        for routine in routines:
            inside = [n for n in range(routine.start, routine.stop) if code[n].parts[0] == "RET"]
            first = routine.start
            read = _entering(effects, follows, dict.fromkeys(inside, frozenset()))[first]
            everything = frozenset(
                (name, None) for effect in effects for name in effect.reads | effect.writes
            )
            kept = _entering(effects, follows, dict.fromkeys(inside, everything))[first]
            names = frozenset(name for name, _ in read)
            written = frozenset(name for name, _ in everything - kept)
            for call in routine.calls:
                effects[call] = _Effect(names, written, effects[call].guard)
    entering = _entering(effects, follows, {})
    return tuple(_counted(one, entering[n], effects[n]) for n, one in enumerate(code))


def _entering(
    effects: list[_Effect], follows: list[list[int]], leaving_at: dict[int, frozenset]
) -> list[frozenset]:
    """What is live before each instruction: pairs of a register and the predicate under which it will be read, or None.

    Args:
        effects: of each instruction.
        follows: which instructions may come next.
        leaving_at: what is live behind some instructions, instead of what follows them.
    """
    before: list[list[int]] = [[] for _ in effects]
    for n, targets in enumerate(follows):
        for target in targets:
            before[target].append(n)
    found: list[frozenset] = [frozenset()] * len(effects)
    todo = set(range(len(effects)))
    while todo:
        n = max(todo)
        todo.discard(n)
        leaving = leaving_at[n] if n in leaving_at else frozenset().union(*(found[t] for t in follows[n]))
        entering = _through(effects[n], leaving)
        if entering != found[n]:
            found[n] = entering
            todo.update(before[n])
    return found


@dataclass(frozen=True)
class _Routine:
    """A piece of the text that is called: its first instruction, the one behind its last, and the calls."""

    start: int
    stop: int
    calls: tuple[int, ...]


def _routines(reading: SassReading) -> list[_Routine]:
    """The routines that a kernel calls, such as a division's slow path; they stand behind it."""
    calls: dict[int, list[int]] = {}
    for n, one in enumerate(reading.instructions):
        if one.parts[0] == "CALL":
            for at in _named(reading, one):
                calls.setdefault(at, []).append(n)
    starts = sorted(calls)
    stops = [*starts, len(reading.instructions)][1:]
    return [_Routine(a, b, tuple(calls[a])) for a, b in zip(starts, stops, strict=True)]


def _named(reading: SassReading, one: Instruction) -> list[int]:
    """Where the labels lead that an instruction names."""
    labels = re.findall(r"`\(([^)]*)\)", " ".join(one.operands))
    places = (reading.labels.get(label, len(reading.instructions)) for label in labels)
    return [at for at in places if at < len(reading.instructions)]


@dataclass(frozen=True)
class _Effect:
    """What an instruction reads and writes, by name ("R4", "UR6", "P0"), and the predicate it stands under."""

    reads: frozenset[str]
    writes: frozenset[str]
    guard: str | None


def _opposite(guard: str) -> str:
    return guard[1:] if guard.startswith("!") else f"!{guard}"


def _through(effect: _Effect, leaving: frozenset) -> frozenset:
    """What is live before an instruction, from what is live behind it."""
    guard, found = effect.guard, set()
    for name, under in leaving:
        if name in effect.writes:
            if guard is None or under == guard:
                continue
            if under is None:
                under = _opposite(guard)
        # A predicate that is written here says nothing of what comes before.
        if under is not None and under.lstrip("!") in effect.writes:
            under = None
        found.add((name, under))
    found.update((name, guard) for name in effect.reads)
    if guard is not None:
        found.add((guard.lstrip("!"), None))
    return frozenset((name, under) for name, under in found if under is None or (name, None) not in found)


def _counted(one: Instruction, entering: frozenset, effect: _Effect) -> Live:
    # What a routine writes for itself is live there, not where it is called.
    names = {name for name, _ in entering} | (effect.writes if one.parts[0] != "CALL" else frozenset())
    return Live(
        registers=frozenset(int(name[1:]) for name in names if name[0] == "R"),
        predicates=sum(name[0] == "P" for name in names),
        uniform=sum(name[:2] == "UR" for name in names),
    )


def _followers(reading: SassReading, routines: list[_Routine], n: int) -> Iterator[int]:
    """The instructions that may run after the n-th one; behind a call, and the routine's effect is the call's."""
    one, last = reading.instructions[n], len(reading.instructions)
    base, named = one.parts[0], _named(reading, one)
    if base == "BRX" or (base == "BRA" and not named):  # anywhere
        yield from {at for at in reading.labels.values() if at < last}
    elif base == "RET":
        mine = [routine for routine in routines if routine.start <= n < routine.stop]
        yield from (call + 1 for routine in mine for call in routine.calls if call + 1 < last)
    elif base == "BRA":
        yield from named
    elif base == "BSYNC":
        opened = [
            i for i in reading.instructions[:n] if i.parts[0] == "BSSY" and i.operands[0] == one.operands[0]
        ]
        yield from _named(reading, opened[-1]) if opened else ()
    ends = base in ("BRA", "EXIT", "RET", "BRX") and not _conditional(one)
    if not ends and n + 1 < last:
        yield n + 1


def _conditional(one: Instruction) -> bool:
    """Whether the next instruction may run too: under a predicate, or with one beside the label (`BRA.DIV UR4, …`)."""
    return one.predicate is not None or (one.parts[0] == "BRA" and len(one.operands) > 1)


def _effect(one: Instruction) -> _Effect:
    n_written = _n_written(one)
    wide = widths(one)
    reads: set[str] = set()
    writes: set[str] = set()
    for place, operand in enumerate(one.operands):
        names = set(_names(one, operand, wide.get(place, 1)))
        if place < n_written:
            writes |= names
        else:
            reads |= names
    if one.parts[0] == "EXIT":
        reads.add("R1")  # the stack pointer, which stays to the end, used or not; nvdisasm counts it so too
    if one.parts[0] == "P2R" or "PR" in one.operands[1:]:
        reads |= {f"P{i}" for i in range(7)}
    elif "PR" in one.operands[:1]:
        writes |= {f"P{i}" for i in range(7)}
    guard = one.predicate
    if guard is not None and guard.lstrip("!") in ("PT", "UPT"):
        guard = None
    return _Effect(frozenset(reads), frozenset(writes), guard)


def _names(one: Instruction, operand: str, n: int) -> Iterator[str]:
    """The registers that an operand names, n of them side by side where it is one register."""
    if "[" not in operand:
        for kind, number in _REGISTER.findall(operand):
            yield from (f"{kind}{int(number) + i}" for i in range(n if kind[-1] == "R" else 1))
        return
    # An address: 64 bits where it says so, or where the opcode does and the operand says nothing else (up to sm_75).
    extended = "E" in one.parts and one.parts[0].startswith(_MEMORY) and ".64" not in operand
    for match in re.finditer(r"(?<![\w.])(U?R)(\d+)(\.64|\.U32|\.X\d+)?", operand):
        kind, number, suffix = match[1], int(match[2]), match[3]
        described = operand[: match.start()].endswith("desc[")
        pair = suffix == ".64" or described or (extended and suffix is None and kind == "R")
        n_side_by_side = 4 if operand[: match.start()].endswith("gdesc[") else 2 if pair else 1
        yield from (f"{kind}{number + i}" for i in range(n_side_by_side))


def _n_written(one: Instruction) -> int:
    """How many of the first operands are written."""
    base, operands = one.parts[0], one.operands
    if base in _WRITES_NOTHING or not operands or not (first := _BARE.match(operands[0])):
        return 0
    kinds = [m[2] if (m := _BARE.match(o)) and not o.startswith("!") else "" for o in operands]
    if first[2] == "P":
        if len(kinds) > 1 and (kinds[1] == "R" or (kinds[1] == "P" and _SETS_PREDICATES.match(base))):
            return 2 if base not in ("FCHK", "SEL") and not _compares(base, kinds) else 1
        return 1
    most = 2 if base in ("IADD3", "UIADD3", "IADD") else 0 if base.endswith("SEL") else 1
    carried = 0
    while carried < most and 1 + carried < len(kinds) - 1 and kinds[1 + carried] == "P":
        carried += 1
    return 1 + carried


def _compares(base: str, kinds: list[str]) -> bool:
    """Whether a comparison writes one predicate and reads registers from the second operand on."""
    return bool(_SETS_PREDICATES.match(base)) and kinds[1] == "R"


def widths(one: Instruction) -> dict[int, int]:
    """How many registers each operand takes, by its place; one where it is not named.

    Addresses in brackets are apart: they say themselves what they are.
    """
    base, flags = one.parts[0], one.parts[1:]
    places = range(len(one.operands))
    if base.startswith(("LD", "ATOM", "ST", "RED", "ULD")):
        n = next((int(f) // 32 for f in flags if f in ("64", "128", "256")), 2 if "F64" in flags else 1)
        if base == "LDSM" or base == "STSM":
            n = next((int(f) for f in flags if f in ("2", "4")), 1)
        return dict.fromkeys(places, n)
    if re.match(r"[HIDQB]MMA$", base):
        return _mma(base, flags)
    if re.match(r"[HIQ]GMMA$", base):
        n = _group_mma(base, flags)
        return {place: n if place != 1 else 4 for place in places}
    if (
        base in ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX")
        or base in ("FFMA2", "FADD2", "FMUL2")
        or "64" in flags
    ):
        return dict.fromkeys(places, 2)
    if base in ("MATCH", "RET", "BRX", "LEPC") or (base == "FRND" and "F64" in flags):
        return {place: 2 for place in places if base != "MATCH" or ("U64" in flags and place)}
    if "WIDE" in flags:
        sources = [p for p in places if p >= _n_written(one)]
        return {0: 2, **({sources[2]: 2} if len(sources) > 2 else {})}
    if base == "CS2R":
        return {0: 1 if "32" in flags else 2}
    return _converted(base, flags)


def _converted(base: str, flags: tuple[str, ...]) -> dict[int, int]:
    """Of a conversion: the opcode names the result's type first, and a 32-bit integer not at all."""
    kinds = [flag for flag in flags if re.fullmatch(r"[FSU](16|32|64)|BF16", flag)]
    if base == "F2F":
        return {place: 2 for place, kind in enumerate(kinds[:2]) if kind.endswith("64")}
    integer = any(kind in ("S64", "U64") for kind in kinds)
    floating = "F64" in kinds
    if base == "I2F":
        return {0: 2 if floating else 1, 1: 2 if integer else 1}
    if base == "F2I":
        return {0: 2 if integer else 1, 1: 2 if floating else 1}
    return {}


def _mma(base: str, flags: tuple[str, ...]) -> dict[int, int]:
    """Of a warp's matrix product D = A·B + C: its shape is in the opcode, M·N·K with N = 8."""
    shape = next((m for f in flags if (m := re.fullmatch(r"(16|8)8(\d+)", f))), None)
    if shape is None:
        return {}
    rows, depth = int(shape[1]), int(shape[2])
    bits = {"H": 16, "I": 8, "D": 64, "Q": 8, "B": 1}[base[0]]
    if "TF32" in flags:
        bits = 32
    if base == "IMMA" and any(f in ("S4", "U4") for f in flags):
        bits = 4
    summed = 64 if base == "DMMA" else 16 if base == "HMMA" and "F32" not in flags else 32
    a, b, c = (max(1, n // 1024) for n in (rows * depth * bits, 8 * depth * bits, rows * 8 * summed))
    return {0: c, 1: a // 2 if "SP" in flags else a, 2: b, 3: c}


def _group_mma(base: str, flags: tuple[str, ...]) -> int:
    """Of a warp group's matrix product: a thread's share of the sums, 64·N over 128 threads."""
    shape = next((m for f in flags if (m := re.fullmatch(r"64x(\d+)x\d+", f))), None)
    return max(1, int(shape[1]) // (2 if "F32" in flags or base == "IGMMA" else 4)) if shape else 1
