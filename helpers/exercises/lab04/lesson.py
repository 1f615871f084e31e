"""The exercises inside lesson 04: count multiplications in PTX, deal out a block's columns, sort SASS by
purpose, and predict the width of a load.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from helpers.exercises.factories import answer_exercise
from helpers.exercises.mistakes import Seen, always, not_one_of
from helpers.exercises.model import Case
from helpers.exercises.verdicts import counted, is_number

LAB = "04_ptx"

# ------------------------------------------------------------------------------ multiplications in a PTX text
# Lines as Triton and NVRTC write them, by what a counter may do wrong with them.
_LINES = {
    "plain": "\tmul.f32 \t%r9, %r1, %r1;",
    "rounded": "\tmul.rn.f32 \t%f3, %f1, %f2;",
    "guarded": "\t@%p1 mul.f32 \t%r5, %r2, %r2;",
    "integers": "\tmul.wide.u32 \t%rd25, %r19, 4;",
    "doubles": "\tmul.f64 \t%fd2, %fd1, %fd1;",
    "fused": "\tfma.rn.f32 \t%f4, %f1, %f1, %f1;",
    "comments": "\t// mul.f32 of the next element",
    "unrelated": "\tld.param.b64 \t%rd17, [square_rows_kernel_param_0];",
}


def _text_cases(rng: random.Random) -> Iterator[Case]:
    def case(label: str, **counts: int) -> Case:
        lines = [_LINES[kind] for kind, n in counts.items() for _ in range(n)]
        rng.shuffle(lines)
        body = "\n".join([".visible .entry kernel()", "{", *lines, "\tret;", "}"])
        n = sum(counts.get(kind, 0) for kind in ("plain", "rounded", "guarded"))
        return Case(label, (body,), expected=n)

    yield case("eight multiplications", plain=8, unrelated=3)
    yield case("none", unrelated=4)
    yield case("with address arithmetic", plain=8, integers=2)
    yield case("with guards", plain=4, guarded=3)
    yield case("with a rounding mode", plain=2, rounded=5)
    yield case("with comments", plain=4, comments=2)
    yield case("with doubles", plain=4, doubles=2)
    yield case("with fused multiply-adds", plain=4, fused=2)
    for _ in range(8):
        yield case("a mixture", **{kind: rng.randrange(9) for kind in _LINES})


COUNT = answer_exercise(
    "count-multiplications",
    LAB,
    "Count the multiplications in PTX",
    "multiplications",
    _text_cases,
    facts=lambda text: {kind: text.splitlines().count(line) for kind, line in _LINES.items()},
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "integers-too": lambda s: s.integers and s.got == s.want + s.integers,
        "guarded-forgotten": lambda s: s.guarded and s.got == s.want - s.guarded,
        "rounded-forgotten": lambda s: s.rounded and s.got == s.want - s.rounded,
        "comments-too": lambda s: s.comments and s.got == s.want + s.comments,
        "doubles-too": lambda s: s.doubles and s.got == s.want + s.doubles,
        "fused-too": lambda s: s.fused and s.got == s.want + s.fused,
        "count": always,
    },
    minutes=5,
)


# ---------------------------------------------------------------------------------------- a thread's columns
def _columns(thread: int, block_size: int, num_warps: int, neighbors: int) -> list[int]:
    n_threads = 32 * num_warps
    return [c for c in range(block_size) if c // neighbors % n_threads == thread]


def _column_cases(rng: random.Random) -> Iterator[Case]:
    def case(thread: int, block_size: int, num_warps: int, neighbors: int) -> Case:
        args = (thread, block_size, num_warps, neighbors)
        each = f"{counted(neighbors, 'neighbor')} at a time"
        label = f"thread {thread} of {num_warps} warps, BLOCK_SIZE {block_size}, {each}"
        return Case(label, args, expected=_columns(*args))

    yield case(5, 1024, 4, 1)
    yield case(0, 128, 4, 1)
    yield case(5, 1024, 4, 4)
    yield case(127, 512, 4, 4)
    for _ in range(20):
        warps, neighbors = rng.choice((1, 2, 4, 8, 16)), rng.choice((1, 1, 2, 4, 8))
        size = 32 * warps * neighbors * rng.choice((1, 2, 4, 8))
        yield case(rng.randrange(32 * warps), size, warps, neighbors)


def _about_columns(thread: int, block_size: int, num_warps: int, neighbors: int) -> dict[str, Any]:
    each = block_size // (32 * num_warps)
    return {
        "each": each,
        "n_threads": 32 * num_warps,
        "one_piece": list(range(thread * each, (thread + 1) * each)),
        "one_at_a_time": _columns(thread, block_size, num_warps, 1),
    }


COLUMNS = answer_exercise(
    "columns-of-a-thread",
    LAB,
    "Which columns does a thread hold?",
    "columns_of",
    _column_cases,
    minutes=5,
    facts=_about_columns,
    mistakes={
        "not-a-list": lambda s: not isinstance(s.got, list),
        "one-piece": lambda s: s.got == s.one_piece and s.each > s.neighbors,
        "neighbors": lambda s: s.neighbors > 1 and s.got == s.one_at_a_time,
        "off-by-one": lambda s: s.got in ([c - 1 for c in s.want], [c + 1 for c in s.want]),
        "order": lambda s: sorted(s.got) == s.want,
        "too-many": lambda s: len(s.got) > s.each,
        "too-few": lambda s: len(s.got) < s.each,
        "columns": always,
    },
)

# ---------------------------------------------------------------------------------------- SASS by its purpose
# Real instructions of the row kernel and of CUDA C++ kernels, for sm_75 to sm_100.
_INSTRUCTIONS = {
    "FMUL R7, R8, R8": "multiply",
    "LDG.E R8, desc[UR10][R4.64]": "load",
    "LDC R1, c[0x0][0x28]": "other",
    "@!P6 LDG.E R8, desc[UR10][R4.64]": "load",
    "LDG.E.128 R8, desc[UR4][R2.64]": "load",
    "@!P0 STG.E.128 desc[UR10][R2.64], R4": "store",
    "STG.E desc[UR10][R4.64], R7": "store",
    "ISETP.GE.AND P3, PT, R2, UR12, PT": "mask",
    "P2R R14, PR, RZ, 0x40": "mask",
    "EXIT": "end",
    "@P6 EXIT": "end",
    "IMAD.WIDE.U32 R4, R7, 0x4, R2": "other",
    "UIMAD.WIDE.U32 UR4, UR6, UR4, URZ": "other",
    "S2R R9, SR_TID.X": "other",
    "LOP3.LUT R7, R9.reuse, 0x7f, RZ, 0xc0, !PT": "other",
    "CS2R R10, SRZ": "other",
    "IADD3 R2, P0, R4, UR4, RZ": "other",
}
_PURPOSES = ("load", "multiply", "store", "mask", "end", "other")


def _sass_cases(rng: random.Random) -> Iterator[Case]:
    for text, purpose in _INSTRUCTIONS.items():
        yield Case(text, (text,), expected=purpose)


def _integer_multiply(s: Seen) -> bool:
    return "IMAD" in s.text and s.got == "multiply"


SORT = answer_exercise(
    "sort-sass",
    LAB,
    "Sort SASS by its purpose",
    "purpose",
    _sass_cases,
    facts=lambda text: {"guarded": text.startswith("@"), "constant": text.startswith("LDC")},
    mistakes={
        "no-word": not_one_of(_PURPOSES),
        "guard": lambda s: s.guarded and s.got in ("other", "mask"),
        "constant": lambda s: s.constant and s.got == "load",
        "integers": _integer_multiply,
        "suffix": lambda s: s.got == "other",
        "purpose": always,
    },
    minutes=5,
)


# ------------------------------------------------------------------------------------------- a load's width
def row_load_bytes(n_cols: int, block_size: int, num_warps: int) -> int:
    """The bytes per load of the row kernel on contiguous fp32 rows; a test compares it with the compiler."""
    elements = max(1, block_size // (32 * num_warps))
    return 4 if n_cols % 16 else 4 * min(4, elements)


def _width_cases(rng: random.Random) -> Iterator[Case]:
    def case(n_cols: int, block_size: int, num_warps: int) -> Case:
        label = f"{n_cols} columns, BLOCK_SIZE {block_size}, {num_warps} warps"
        return Case(
            label,
            (n_cols, block_size, num_warps),
            expected=row_load_bytes(n_cols, block_size, num_warps),
        )

    yield case(256, 256, 4)
    yield case(1024, 1024, 4)
    yield case(781, 1024, 4)
    yield case(780, 1024, 4)
    yield case(2048, 2048, 4)
    yield case(64, 64, 4)
    for _ in range(16):
        n_cols = rng.choice((16 * rng.randrange(2, 200), 4 * rng.randrange(8, 800), rng.randrange(33, 3000)))
        yield case(n_cols, 1 << (n_cols - 1).bit_length(), rng.choice((1, 2, 4, 8, 16)))


def _about_width(n_cols: int, block_size: int, num_warps: int) -> dict[str, Any]:
    return {"each": block_size // (32 * num_warps)}


WIDTH = answer_exercise(
    "widest-load",
    LAB,
    "Predict the width of a load",
    "load_bytes",
    _width_cases,
    facts=_about_width,
    mistakes={
        "not-a-number": lambda s: not is_number(s.got),
        "bits": lambda s: s.got == 8 * s.want,
        "elements": lambda s: s.got == s.want // 4,
        "no-bytes": lambda s: s.got == 0,
        "any-size": lambda s: s.n_cols % 16 and s.n_cols % 4 and s.got > s.want,
        "multiple-of-4": lambda s: s.n_cols % 16 and s.n_cols % 4 == 0 and s.got > s.want,
        "wider-than-16": lambda s: s.got > 16,
        "few-elements": lambda s: s.each < 4 and s.got > s.want,
        "width": always,
    },
    minutes=5,
)

EXERCISES = (COUNT, COLUMNS, SORT, WIDTH)
