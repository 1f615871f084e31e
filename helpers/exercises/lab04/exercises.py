"""The exercises of lab 04, PTX: a thread's columns, its loads, two listings, torch.compile's kernel, wide loads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from helpers.exercises import triton_text
from helpers.exercises.factories import answer_exercise
from helpers.exercises.lab04 import wide
from helpers.exercises.lab04.blog import BLOG
from helpers.exercises.model import Case, Exercise, Outcome, Verdict
from helpers.exercises.verdicts import counted, raised, wrong

LAB = "04_ptx"


# ---------------------------------------------------------------------------------------- a thread's columns
def _columns(thread: int, block_size: int, num_warps: int, neighbours: int) -> list[int]:
    n_threads = 32 * num_warps
    return [c for c in range(block_size) if c // neighbours % n_threads == thread]


def _column_cases(rng: random.Random, device: str) -> Iterator[Case]:
    def case(thread: int, block_size: int, num_warps: int, neighbours: int) -> Case:
        args = (thread, block_size, num_warps, neighbours)
        each = f"{counted(neighbours, 'neighbour')} at a time"
        label = f"thread {thread} of {num_warps} warps, BLOCK_SIZE {block_size}, {each}"
        return Case(label, args, expected=_columns(*args))

    yield case(5, 1024, 4, 1)
    yield case(0, 128, 4, 1)
    yield case(5, 1024, 4, 4)
    yield case(127, 512, 4, 4)
    for _ in range(20):
        warps, neighbours = rng.choice((1, 2, 4, 8, 16)), rng.choice((1, 1, 2, 4, 8))
        size = 32 * warps * neighbours * rng.choice((1, 2, 4, 8))
        yield case(rng.randrange(32 * warps), size, warps, neighbours)


def _explain_columns(case: Case, got: Any) -> tuple[str, str] | None:
    thread, block_size, num_warps, neighbours = case.args
    n_threads = 32 * num_warps
    each = block_size // n_threads
    if not isinstance(got, list):
        return "not-a-list", "Return a list of column numbers, such as [5, 133, 261]."
    if got == list(range(thread * each, (thread + 1) * each)) and each > neighbours:
        return (
            "one-piece",
            "That gives every thread one piece of the row. Neighbouring threads must touch neighbouring columns in "
            "each round: the next round begins after all threads had their turn.",
        )
    if neighbours > 1 and got == _columns(thread, block_size, num_warps, 1):
        return (
            "neighbours",
            "That is the layout with one column at a time. Here a thread takes several neighbours in each round.",
        )
    if got == [c - 1 for c in case.expected] or got == [c + 1 for c in case.expected]:
        return "off-by-one", "Threads and columns are counted from 0."
    if sorted(got) == case.expected:
        return "order", "The right columns; give them in ascending order."
    if len(got) > each:
        return (
            "too-many",
            f"BLOCK_SIZE over threads, {block_size} / {n_threads} = {each}: so many columns has a thread.",
        )
    if len(got) < each:
        return (
            "too-few",
            f"BLOCK_SIZE over threads, {block_size} / {n_threads} = {each}: go round until the block is dealt out.",
        )
    return "columns", "Deal the columns out like cards: `neighbours` to each thread in turn, and round again."


COLUMNS = answer_exercise(
    "columns-of-a-thread",
    LAB,
    "Which columns does a thread hold?",
    "columns_of",
    _column_cases,
    explain=_explain_columns,
    minutes=5,
)


# -------------------------------------------------------------------------------------------- loads a thread
def _count_cases(rng: random.Random, device: str) -> Iterator[Case]:
    from helpers.exercises.lab04 import kernels

    for label, text, counts in kernels.texts(rng):
        yield Case(label, (text,), expected=counts)


def _explain_count(case: Case, got: Any) -> tuple[str, str] | None:
    text, want = case.args[0], case.expected
    if not isinstance(got, dict):
        return (
            "not-a-dict",
            "Return a dict: bytes that one load moves -> how many such loads, such as {16: 2}.",
        )
    n_got, n_want = (sum(counts.values()) for counts in (got, want))
    if any(type(key) is not int for key in got):
        return "keys", "The keys are bytes as integers: 4 for `.b32`, 16 for `.v4.b32`."
    if n_got == n_want + text.count("ld.param") and n_got != n_want:
        return (
            "param-loads",
            "`ld.param` reads the kernel's arguments, not the tensor: count `ld.global` only.",
        )
    if n_got == n_want + text.count("ld.shared") and n_got != n_want:
        return "shared-loads", "`ld.shared` reads shared memory; count what comes from global memory."
    if n_got == n_want + text.count("st.global"):
        return "stores-too", "Stores (`st.global`) are not loads."
    if n_got == 0:
        hint = (
            "Loads may stand behind a guard, `@%p1 ld.global…`, and their opcode may have more words, as in "
        )
        return "none-found", f"{hint}`ld.global.nc.v4.f32`."
    if n_got != n_want:
        return (
            "count",
            f"The text holds {n_want} loads from global memory, yours counts {n_got}: which does it miss, or add?",
        )
    if {8 * key: n for key, n in want.items()} == got:
        return "bits", "The number in a type's name is in bits; divide by 8."
    vectors = any(word in text for word in (".v2.", ".v4."))
    if vectors and sum(k * n for k, n in got.items()) < sum(k * n for k, n in want.items()):
        return "vector-width", "`.v4.b32` moves four values of 32 bits: 16 bytes in one load."
    return (
        "width",
        "A load moves (vector, or 1) × (bits of the type / 8) bytes; the bits stand at the opcode's end.",
    )


COUNT_LOADS = answer_exercise(
    "count-loads",
    LAB,
    "Count the loads of a thread",
    "count_loads",
    _count_cases,
    explain=_explain_count,
    minutes=12,
)


# ---------------------------------------------------------------------------------------------- two listings
_MARKS = {
    "double": "Arithmetic in double has opcodes of its own: look for what begins with D, and for conversions to F64.",
    "fast-math": "Fast math takes the careful parts away (range checks, slow paths, calls) and keeps the MUFU; "
    "nothing is loaded in another way, and the guard stays.",
    "float4": "A float4 is loaded by one instruction: the width stands in the LDG's opcode, in bits.",
    "no-guard": "`if (i < n)` is a comparison and a guarded EXIT before the load; without it a single EXIT is left.",
    "same": "Only a number in the text has changed: every opcode stands there as often as before.",
}


def _listing_cases(rng: random.Random, device: str) -> Iterator[Case]:
    from helpers.exercises.lab04 import sass

    for label, before, after, change in sass.hidden(rng):
        yield Case(label, (before, after), expected=change)


def _explain_listing(case: Case, got: Any) -> tuple[str, str] | None:
    if got not in _MARKS:
        return "no-word", f"Return one of {', '.join(map(repr, _MARKS))}."
    if got == "double" and case.expected != "double":
        return (
            "not-double",
            f"DADD, DMUL, DFMA and F64 are the marks of a double. {_MARKS[case.expected]}",
        )
    if got == "fast-math" and case.expected in ("no-guard", "double"):
        return (
            f"fast-math-for-{case.expected}",
            f"Fewer instructions, or an FTZ, have other causes too. {_MARKS[case.expected]}",
        )
    return f"{got}-for-{case.expected}", _MARKS[case.expected]


SASS_DIFFERENCE = answer_exercise(
    "sass-difference",
    LAB,
    "What has changed between two SASS listings?",
    "what_changed",
    _listing_cases,
    explain=_explain_listing,
    minutes=15,
)


# ------------------------------------------------------------------------------------ torch.compile's kernel
def _generated_cases(rng: random.Random, device: str) -> Iterator[Case]:
    from helpers.exercises.lab04 import generated, shapes

    for n_rows, n_cols, xblock in shapes.hidden(rng):
        label = f"torch.square of ({n_rows}, {n_cols}), XBLOCK {xblock}"
        args = (generated.code_for(n_rows, n_cols), xblock)
        yield Case(label, args, expected=shapes.expected(n_rows, n_cols, xblock))


def _explain_generated(case: Case, got: Any) -> tuple[str, str] | None:
    want, xblock = case.expected, case.args[1]
    if not isinstance(got, dict) or set(got) != set(want):
        return "keys", f"Return a dict with the keys {', '.join(map(repr, want))}."
    missed = next((key for key in want if got[key] != want[key]), None)
    n = want["elements"]
    if missed == "elements":
        if got[missed] == 1 << (n - 1).bit_length():
            return (
                "size-hint",
                "That is the size hint, the next power of 2. `xnumel = …` in the kernel is the size itself.",
            )
        return "elements", "The kernel's first line, `xnumel = …`, names its elements."
    if missed == "programs":
        if got[missed] == n // xblock:
            return (
                "rounded-down",
                "The last program may be only partly filled, but it has to be there: round up.",
            )
        return "programs", "One program squares XBLOCK elements. `size_hints` has no part in it."
    if missed == "load_bytes":
        hint = "Four neighbours may be loaded together if they are inside the mask together, or outside: the bound "
        return "load-bytes", f"{hint}is {n:,}. By which of 4 and 2 does it divide?"
    if missed == "row_load_bytes":
        hint = "The row kernel gets its stride and bound when it runs. Triton then asks one question about each: is "
        return (
            "row-load-bytes",
            f"{hint}it a multiple of 16? What counts is the number of columns, not of all elements.",
        )
    return None


OUTPUT_CODE = answer_exercise(
    "output-code",
    LAB,
    "torch.compile's kernel against yours",
    "read_generated",
    _generated_cases,
    explain=_explain_generated,
    minutes=12,
)


# ------------------------------------------------------------------------------------------------ wide loads
_WIDE = "wide-loads"
_RAGGED = 1823 * 781  # no multiple of a block, nor of 2


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
    yield Case(label, (_RAGGED, 1024, 4, target), expected=32, call="compile_for")
    for n in (2**31 - rng.randrange(2, 1000), 2**31 + rng.randrange(1, 5000)):
        yield Case(f"the last programs of {n:,} elements, BLOCK_SIZE 1024", (n, 1024, 4), call="far")


def _judge_wide(case: Case, outcome: Outcome) -> Verdict | None:
    if outcome.error_type == "NoKernel":
        sentence = f"square_wide_kernel is {outcome.error.partition(': ')[2]}"
        return wrong(_WIDE, case, sentence, "no-kernel", f"Give the check {wide.WANTED}.")
    if verdict := raised(_WIDE, "square_wide_kernel", case, outcome):
        return verdict
    if "no_kernel" in outcome.value:
        sentence = f"square_wide_kernel is {outcome.value['no_kernel']}"
        return wrong(_WIDE, case, sentence, "no-kernel", f"Give the check {wide.WANTED}.")
    if case.call == "far":
        return _judge_far(case, outcome.value)
    if case.call == "run":
        return _judge_run(case, outcome.value)
    if case.call == "compile_for" and outcome.value.get("no_constant") is True:
        return None  # it takes no constant for n_elements: the other cases have to do
    return _judge_ptx(case, outcome.value["ptx"])


def _judge_far(case: Case, facts: dict) -> Verdict | None:
    """Near 2^31 elements a product, or a sum, of 32 bits becomes negative."""
    hint = (
        "tl.program_id(0) and what is made of it have 32 bits: from 2^31 on a number becomes negative, and a comparison with "
        "n_elements goes wrong. Widen it first: tl.program_id(0).to(tl.int64)."
    )
    for what, verb in (("loads", "reads"), ("stores", "writes")):
        for program, left_out, strange in facts[what]:
            if strange is not None:
                sentence = (
                    f"on {case.label} program {program:,} {verb} element {strange:,}, which is not its own"
                )
            elif left_out:
                sentence = f"on {case.label} program {program:,} leaves out {counted(left_out, 'element')} of its own"
            else:
                continue
            return wrong(_WIDE, case, sentence, "int32-overflow", hint)
    return None


def _judge_run(case: Case, facts: dict) -> Verdict | None:
    if facts["false_hint"]:
        sentence = f"on {case.label} the hint {facts['false_hint']} is not true of its values"
        hint = (
            "The compiler believes a hint, the interpreter ignores it: on a GPU this kernel goes wrong at the tail. "
            "Do not promise; let the kernel find out which elements may move together."
        )
        return wrong(_WIDE, case, sentence, "false-hint", hint)
    if facts["outside"]:
        n_wrong = facts["outside"]
        sentence = f"on {case.label} it wrote {counted(n_wrong, 'element')} outside the output"
        return wrong(
            _WIDE,
            case,
            sentence,
            "missing-mask",
            "Past n_elements nothing may be stored: the tail needs a mask.",
        )
    if facts["input_changed"]:
        return wrong(
            _WIDE,
            case,
            f"on {case.label} it changed its input",
            "input-changed",
            "Store to y_ptr, not to x_ptr.",
        )
    if not facts["wrong"]:
        return None
    rows = zip(facts["first_wrong"], facts["got"], facts["want"], strict=True)
    details = "\n".join(
        f"y[{i}] is {'never written' if g == -1.0 else f'{g:.6g}'}, not {w:.6g}" for i, g, w in rows
    )
    sentence = f"on {case.label} {facts['wrong']:,} of {case.args[0]:,} elements are wrong, {facts['where']}"
    if facts["unwritten"] == facts["wrong"]:
        hint = "Some elements are never written. Which does the wide part leave to the tail, and who squares them?"
        return wrong(_WIDE, case, sentence, "unwritten", hint, details)
    return wrong(_WIDE, case, sentence, "wrong-values", "Each element x of the input becomes x * x.", details)


def _judge_ptx(case: Case, text: str) -> Verdict | None:
    from helpers import ptx

    reading, needed = ptx.read_ptx(text), case.expected
    for what, found in (("load", reading.loads), ("store", reading.stores)):
        wide_bytes = sum(i.n_bytes for i in found if i.n_bytes == 16)
        if wide_bytes >= needed:
            continue
        widths = sorted({i.n_bytes for i in found})
        said = f"{counted(len(found), what)} of {' and '.join(map(str, widths))} bytes"
        sentence = (
            f"in {case.label} a thread has {said}: 16-byte {what}s must cover its {needed // 4} elements"
        )
        if not wide_bytes and case.call == "compile_for":
            hint = (
                "Its wide part is for sizes that fill all programs. Of this size all programs but the last are full: "
                "ask of a program or of elements whether they are full, not of the size."
            )
            return wrong(_WIDE, case, sentence, f"narrow-{what}s-when-ragged", hint)
        if not wide_bytes:
            hint = (
                "The bound n_elements may be anything, so the compiler cannot know that four neighbours are inside "
                "the mask together. Where can that be certain?"
            )
            return wrong(_WIDE, case, sentence, f"narrow-{what}s", hint)
        hint = f"Some {what}s are wide, but a full program must move all of its elements in them."
        return wrong(_WIDE, case, sentence, f"partly-wide-{what}s", hint)
    return None


WIDE_LOADS = Exercise(
    id=_WIDE,
    lab=LAB,
    title="Sixteen bytes a load, for any size",
    name="square_wide_kernel",
    minutes=20,
    cases=_wide_cases,
    judge=_judge_wide,
    text=triton_text.text_of,
    prepare=triton_text.build,
    adapters={"run": wide.ran, "compile": wide.compiled, "compile_for": wide.compiled_for, "far": wide.far},
)

EXERCISES = (COLUMNS, COUNT_LOADS, SASS_DIFFERENCE, OUTPUT_CODE, WIDE_LOADS, BLOG)
