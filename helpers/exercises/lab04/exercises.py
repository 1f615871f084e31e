"""The exercises of lab 04, PTX."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from helpers.exercises import triton_text
from helpers.exercises.factories import answer_exercise
from helpers.exercises.lab04 import wide
from helpers.exercises.lab04.blog import BLOG
from helpers.exercises.mistakes import Seen, Table, TableJudge, always, at, not_named, not_one_of, under
from helpers.exercises.model import Case, Exercise
from helpers.exercises.verdicts import counted

LAB = "04_ptx"


# ---------------------------------------------------------------------------------------- loads per thread
def _count_cases(rng: random.Random, device: str) -> Iterator[Case]:
    from helpers.exercises.lab04 import kernels

    for label, text, counts in kernels.texts(rng):
        yield Case(label, (text,), expected=counts)


def _about_text(text: str, want: dict[int, int]) -> dict[str, int]:
    n = sum(want.values())
    return {
        "n": n,
        "n_bytes": sum(size * count for size, count in want.items()),
        "n_stores": text.count("st.global"),
        "n_params": text.count("ld.param"),
        "n_shared": text.count("ld.shared"),
        "vectors": any(word in text for word in (".v2.", ".v4.")),
    }


def _n(s: Seen) -> int:
    return sum(s.got.values())


COUNT_LOADS = answer_exercise(
    "count-loads",
    LAB,
    "Count a thread's loads",
    "count_loads",
    _count_cases,
    minutes=12,
    facts=_about_text,
    mistakes={
        "not-a-dict": lambda s: not isinstance(s.got, dict),
        "keys": lambda s: any(type(key) is not int for key in s.got),
        "param-loads": lambda s: _n(s) == s.n + s.n_params and s.n_params,
        "shared-loads": lambda s: _n(s) == s.n + s.n_shared and s.n_shared,
        "stores-too": lambda s: _n(s) == s.n + s.n_stores,
        "none-found": lambda s: _n(s) == 0,
        "count": lambda s: _n(s) != s.n,
        "bits": lambda s: s.got == {8 * size: n for size, n in s.want.items()},
        "vector-width": lambda s: s.vectors and sum(size * n for size, n in s.got.items()) < s.n_bytes,
        "width": always,
    },
)


# ---------------------------------------------------------------------------------------------- two listings
# The sign that each change leaves in a listing.
_MARKS = {
    "double": "Arithmetic in double has its own opcodes: look for opcodes that start with D, and for "
    "conversions to F64.",
    "fast-math": "Fast math removes range checks, slow paths and calls, and keeps the MUFU. The loads and "
    "the guard don't change.",
    "float4": "One instruction loads a float4, and the LDG's opcode contains its width in bits.",
    "no-guard": "`if (i < n)` becomes a comparison and a guarded EXIT before the load. Without it, only one "
    "EXIT is left.",
    "same": "Only a number in the source has changed: every opcode occurs as often as before.",
}


def _listing_cases(rng: random.Random, device: str) -> Iterator[Case]:
    from helpers.exercises.lab04 import sass

    for label, before, after, change in sass.hidden(rng):
        yield Case(label, (before, after), expected=change)


def _about_listings(before: str, after: str, want: str) -> dict[str, str]:
    return {"mark": _MARKS[want]}


SASS_DIFFERENCE = answer_exercise(
    "sass-difference",
    LAB,
    "What has changed between two SASS listings?",
    "what_changed",
    _listing_cases,
    minutes=15,
    facts=_about_listings,
    mistakes={
        "no-word": not_one_of(_MARKS),
        "not-double": lambda s: s.got == "double",
        "{got}-for-{want}/fast": lambda s: s.got == "fast-math" and s.want in ("no-guard", "double"),
        "{got}-for-{want}": always,
    },
)


# ------------------------------------------------------------------------------------ torch.compile's kernel
def _generated_cases(rng: random.Random, device: str) -> Iterator[Case]:
    from helpers.exercises.lab04.generated import code_for, generated_stages, rows_stages, widest

    for n_rows, n_cols, xblock in _shapes(rng):
        code, n = code_for(n_rows, n_cols), n_rows * n_cols
        expected = {
            "elements": n,
            "programs": -(-n // xblock),
            "load_bytes": widest(generated_stages(code, xblock)),
            "row_load_bytes": widest(rows_stages(n_cols)),
        }
        label = f"torch.square of ({n_rows}, {n_cols}), XBLOCK {xblock}"
        yield Case(label, (code, xblock), expected=expected)


def _shapes(rng: random.Random) -> Iterator[tuple[int, int, int]]:
    """The recorded shapes, sizes that divide by 1, 2, 4, 16 and 4096, and others; each with an XBLOCK."""
    xblock = rng.choice((512, 1024, 2048))
    yield 1823, 781, xblock
    yield 4096, 12672, 1024
    # An odd number of elements, twice an odd one, and four times one.
    yield 2 * rng.randrange(301, 900) + 1, 2 * rng.randrange(301, 500) + 1, xblock
    yield 2 * (2 * rng.randrange(301, 900) + 1), 2 * rng.randrange(301, 500) + 1, 1024
    yield 2 * rng.randrange(301, 900) + 1, 4 * (2 * rng.randrange(201, 500) + 1), 2048
    # Divisible by 16: the number of elements alone, then each row as well.
    yield 16 * rng.randrange(20, 200), 2 * rng.randrange(301, 500) + 1, 512
    yield 2 * rng.randrange(301, 900) + 1, 16 * rng.randrange(33, 200), 1024
    yield rng.randrange(300, 3000), rng.randrange(600, 3000), xblock


def _about_generated(code: str, xblock: int, want: dict[str, int]) -> dict[str, int]:
    n = want["elements"]
    return {"n": n, "size_hint": 1 << (n - 1).bit_length(), "down": n // xblock}


OUTPUT_CODE = answer_exercise(
    "output-code",
    LAB,
    "torch.compile's kernel against yours",
    "read_generated",
    _generated_cases,
    minutes=12,
    facts=_about_generated,
    mistakes={
        "keys": not_named(("elements", "programs", "load_bytes", "row_load_bytes")),
        **at("elements", {"size-hint": lambda s: s.value == s.size_hint, "elements": always}),
        **at("programs", {"rounded-down": lambda s: s.value == s.down, "programs": always}),
        **at("load_bytes", {"load-bytes": always}),
        "row-load-bytes": always,
    },
)


# ------------------------------------------------------------------------------------------------ wide loads
_WIDE = "wide-loads"
_RAGGED = 1823 * 781  # not a multiple of a block or of 2


def _wide_cases(rng: random.Random, device: str) -> Iterator[Case]:
    def run(n: int, block_size: int, num_warps: int) -> Case:
        label = f"{n:,} elements, BLOCK_SIZE {block_size}, {num_warps} warps"
        return Case(label, (n, block_size, num_warps, rng.randrange(1 << 30)), call="run")

    for n in (1024, 1025, 1, 3 * 1024 + rng.randrange(1, 1024), 4095):
        yield run(n, 1024, 4)
    for _ in range(4):
        block_size, num_warps = rng.choice(((512, 4), (1024, 2), (1024, 8), (2048, 4)))
        yield run(rng.randrange(1, 5 * block_size), block_size, num_warps)
    for block_size, num_warps in ((1024, 4), rng.choice(((512, 2), (2048, 8), (4096, 4)))):
        target = rng.choice(("sm_80", "sm_90"))
        label = f"the PTX for BLOCK_SIZE {block_size}, {num_warps} warps, {target}"
        each = block_size // (32 * num_warps)
        yield Case(label, (block_size, num_warps, target), expected=4 * each, call="compile")
    label = f"the PTX for {_RAGGED:,} elements, BLOCK_SIZE 1024, 4 warps, {target}"
    yield Case(label, (1024, 4, target, _RAGGED), expected=32, call="compile")
    for n in (2**31 - rng.randrange(2, 1000), 2**31 + rng.randrange(1, 5000)):
        yield Case(f"the last programs of {n:,} elements, BLOCK_SIZE 1024", (n, 1024, 4), call="far")


def _parts(seen: Seen) -> Iterable[Seen]:
    """The facts of a case's call: a run, the PTX's loads and stores, or each access of the last programs."""
    found, case = seen.got, seen.case
    if case.call == "run":
        yield seen.also(**found, n=case.args[0], details=_first_wrong(found))
    elif case.call == "far":
        for what, verb in (("loads", "reads"), ("stores", "writes")):
            for program, n_unwritten, other in found[what]:
                yield seen.also(verb=verb, program=program, n_unwritten=n_unwritten, other=other)
    elif "ptx" in found:  # empty if it can't be compiled for a constant n_elements
        yield from _accesses(seen, found["ptx"])


def _first_wrong(found: dict) -> str:
    rows = zip(found["first_wrong"], found["got"], found["want"], strict=True)
    return "\n".join(
        f"y[{i}] is {'never written' if g == -1.0 else f'{g:.6g}'}, not {w:.6g}" for i, g, w in rows
    )


def _accesses(seen: Seen, text: str) -> Iterable[Seen]:
    from helpers import ptx

    reading = ptx.read_ptx(text)
    for access, found in (("load", reading.loads), ("store", reading.stores)):
        widths = sorted({one.n_bytes for one in found})
        yield seen.also(
            access=access,
            wide_bytes=sum(one.n_bytes for one in found if one.n_bytes == 16),
            has=f"{counted(len(found), access)} of {' and '.join(map(str, widths))} bytes",
            each=seen.want // 4,
        )


def _far_away(s: Seen) -> str:
    program = f"program {s.program:,}"
    if s.other is not None:
        return f"{program} {s.verb} element {s.other:,}, which isn't its own"
    return f"{program} leaves out {counted(s.n_unwritten, 'element')} of its own" if s.n_unwritten else ""


_WIDE_MISTAKES = {
    **under(lambda s: s.case.call == "far", {"int32-overflow": _far_away}),
    **under(
        lambda s: s.case.call == "run",
        {
            "false-hint": lambda s: s.false_hint,
            "missing-mask": lambda s: (
                s.outside and f"it wrote {counted(s.outside, 'element')} outside the output"
            ),
            "input-changed": lambda s: s.input_changed,
            "unwritten": lambda s: s.wrong and s.wrong == s.unwritten,
            "wrong-values": lambda s: s.wrong,
        },
    ),
    **under(
        lambda s: s.case.call == "compile" and s.wide_bytes < s.want,
        {
            "narrow-{access}s-when-ragged": lambda s: not s.wide_bytes and len(s.case.args) == 4,
            "narrow-{access}s": lambda s: not s.wide_bytes,
            "partly-wide-{access}s": always,
        },
    ),
}


def _no_kernel(s: Seen) -> str | bool:
    return s.got.error_type == "NoKernel" and f"square_wide_kernel is {s.got.error.partition(': ')[2]}"


WIDE_LOADS = Exercise(
    id=_WIDE,
    lab=LAB,
    title="Sixteen bytes per load, for any size",
    name="square_wide_kernel",
    minutes=20,
    cases=_wide_cases,
    judge=TableJudge(
        Table(_WIDE, LAB, _WIDE_MISTAKES, raises={"no-kernel": _no_kernel}),
        "square_wide_kernel",
        parts=_parts,
    ),
    text=triton_text.text_of,
    prepare=wide.build,
    adapters={"run": wide.run, "compile": wide.compiled, "far": wide.far},
)

EXERCISES = (COUNT_LOADS, SASS_DIFFERENCE, OUTPUT_CODE, WIDE_LOADS, BLOG)
