"""Lab 04: wrong answers are refused with the reason that fits, unlike but right ones are accepted."""

from __future__ import annotations

import ast
import json
import random
import re
from collections import Counter

import nbformat
import pandas as pd
import pytest
import triton
import triton.language as tl
from commands import ROOT
from lab_answers import judged
from lab_attempts import solution_cells

from helpers import ptx
from helpers.exercises.lab04 import generated, kernels, sass
from helpers.exercises.lab04.lesson import row_load_bytes


# ------------------------------------------------------------------------------------ count-multiplications
def by_opcode(text: str, keep=lambda parts: parts[0] == "mul" and parts[-1] == "f32") -> int:
    lines = [line.split("//")[0].split() for line in text.splitlines()]
    opcodes = [next((w for w in words if not w.startswith("@")), "") for words in lines]
    return sum(keep(opcode.split(".")) for opcode in opcodes)


def in_text(pattern: str):
    return lambda text: len(re.findall(pattern, text))


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (by_opcode, ""),
        (lambda text: len([i for i in ptx.read_ptx(text).find("mul") if i.parts[-1] == "f32"]), ""),
        (lambda text: by_opcode(text, lambda parts: parts[0] == "mul"), "integers-too"),
        (in_text(r"(?m)^\s*mul\S*f32"), "guarded-forgotten"),
        (lambda text: by_opcode(text, lambda parts: parts == ["mul", "f32"]), "rounded-forgotten"),
        (in_text(r"\bmul\S*f32"), "comments-too"),
        (in_text(r"(?m)^[^/\n]*mul\S*f(?:32|64)"), "doubles-too"),
        (lambda text: by_opcode(text, lambda parts: parts[-1] == "f32"), "fused-too"),
        (len, "count"),
        (lambda text: [by_opcode(text)], "not-a-number"),
    ],
)
def test_count_multiplications(answer, mistake):
    assert judged("count-multiplications", answer).mistake == mistake


# --------------------------------------------------------------------------------------- columns-of-a-thread
def dealt(thread, size, warps, neighbors):
    n_threads = 32 * warps
    rounds = range(0, size, n_threads * neighbors)
    return [start + thread * neighbors + j for start in rounds for j in range(neighbors)]


def one_piece(thread, size, warps, neighbors):
    each = size // (32 * warps)
    return list(range(thread * each, (thread + 1) * each))


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (dealt, ""),
        (lambda *args: tuple(dealt(*args)), ""),
        (one_piece, "one-piece"),
        (lambda t, size, warps, v: list(range(t, size, 32 * warps)), "neighbors"),
        (lambda *args: [c + 1 for c in dealt(*args)], "off-by-one"),
        (lambda *args: dealt(*args)[::-1], "order"),
        (lambda t, size, warps, v: [t * v + j for j in range(v)], "too-few"),
        (lambda t, size, warps, v: list(range(size)), "too-many"),
        (lambda *args: len(dealt(*args)), "not-a-list"),
    ],
)
def test_columns_of_a_thread(answer, mistake):
    assert judged("columns-of-a-thread", answer).mistake == mistake


@pytest.mark.parametrize(("n_cols", "neighbors"), [(781, 1), (1024, 4)])
def test_columns_are_what_the_ptx_addresses(n_cols, neighbors):
    """The bits that the compiler keeps of thread × neighbors are where the last thread begins."""
    begins = dealt(127, 1024, 4, neighbors)[0]
    assert generated.rows_stages(n_cols).reading.find("and.b32", operand=str(begins))


# ------------------------------------------------------------------------------------------------- sort-sass
KINDS = {"LDG": "load", "FMUL": "multiply", "STG": "store", "ISETP": "mask", "P2R": "mask", "EXIT": "end"}


def sort_sass(text: str, kinds=KINDS) -> str:
    words = text.split()
    return kinds.get(words[words[0].startswith("@")].split(".")[0], "other")


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (sort_sass, ""),
        (lambda text: KINDS.get(text.split()[0].split(".")[0], "other"), "guard"),
        (lambda text: KINDS.get(text.split()[text.startswith("@")], "other"), "suffix"),
        (lambda text: sort_sass(text, KINDS | {"LDC": "load"}), "constant"),
        (lambda text: sort_sass(text, KINDS | {"IMAD": "multiply"}), "integers"),
        (lambda text: sort_sass(text, KINDS | {"IADD3": "mask"}), "purpose"),
        (lambda text: sort_sass(text).upper(), "no-word"),
    ],
)
def test_sort_sass(answer, mistake):
    assert judged("sort-sass", answer).mistake == mistake


# ----------------------------------------------------------------------------------------------- widest-load
def width(n_cols: int, size: int, warps: int, multiple: int = 16, most: int = 4, least: int = 1) -> int:
    return 4 * min(most, max(least, size // (32 * warps))) if n_cols % multiple == 0 else 4


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (width, ""),
        (lambda *args: 8 * width(*args), "bits"),
        (lambda *args: width(*args) // 4, "elements"),
        (lambda *args: width(*args, least=0), "no-bytes"),
        (lambda *args: width(*args, multiple=1), "any-size"),
        (lambda *args: width(*args, multiple=4), "multiple-of-4"),
        (lambda *args: width(*args, most=64), "wider-than-16"),
        (lambda n_cols, *_: 4 if n_cols % 16 else 16, "few-elements"),
        (lambda *args: 4, "width"),
        (lambda *args: str(width(*args)), "not-a-number"),
    ],
)
def test_widest_load(answer, mistake):
    assert judged("widest-load", answer).mistake == mistake


@pytest.mark.parametrize("size", [64, 128, 256, 512, 1024, 2048])
@pytest.mark.parametrize("warps", [4, 8])
def test_the_compiler_loads_as_wide_as_the_exercise_expects(size, warps):
    for n_cols in (size, size - 1, size - 4):
        found = generated.rows_stages(n_cols, num_warps=warps).reading.loads
        expected = row_load_bytes(n_cols, triton.next_power_of_2(n_cols), warps)
        assert {load.n_bytes for load in found} == {expected}, n_cols


# ----------------------------------------------------------------------------------------------- count-loads
def by_words(text: str) -> dict[int, int]:
    """Word by word, without a regular expression for the whole opcode."""
    counts: dict[int, int] = {}
    for line in text.splitlines():
        opcode = next((word for word in line.split() if word.startswith("ld.")), "")
        if ".global" not in opcode:
            continue
        n_bytes = int(re.search(r"(\d+)$", opcode)[1]) // 8
        for n in (2, 4):
            n_bytes *= n if f".v{n}." in opcode else 1
        counts[n_bytes] = counts.get(n_bytes, 0) + 1
    return counts


def counted(pattern: str, width=lambda found: int(found) // 8):
    def answer(text: str) -> dict[int, int]:
        return Counter(width(found) for found in re.findall(pattern, text))

    return answer


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (by_words, ""),
        (lambda text: Counter(load.n_bytes for load in ptx.read_ptx(text).loads), ""),
        (counted(r"\bld\.global\S*?(\d+)\s"), "vector-width"),
        (lambda text: {8 * size: n for size, n in by_words(text).items()}, "bits"),
        (counted(r"\b(?:ld|st)\.global\S*?(\d+)\s"), "stores-too"),
        (counted(r"\bld\.(?!shared)\S*?(\d+)\s"), "param-loads"),
        (counted(r"(?m)^\s*ld\.global\S*?(\d+)\s"), "none-found"),
        (lambda text: sum(by_words(text).values()), "not-a-dict"),
        (lambda text: {str(size): n for size, n in by_words(text).items()}, "keys"),
    ],
)
def test_count_loads(answer, mistake):
    assert judged("count-loads", answer).mistake == mistake


def test_the_hidden_texts_hold_every_kind_of_load():
    opcodes: set[str] = set()
    for seed in range(2):
        for _, text, counts in kernels.texts(random.Random(seed)):
            assert counts == by_words(text)
            opcodes |= {i.opcode for i in ptx.read_ptx(text).instructions if i.parts[0] == "ld"}
    kinds = (
        "ld.global.b16",
        "ld.global.v4.b32",
        "ld.global.nc.v4.f32",
        "ld.param",
        "ld.shared",
        "ld.global.f64",
    )
    assert all(any(opcode.startswith(kind) for opcode in opcodes) for kind in kinds), opcodes


# ------------------------------------------------------------------------------------------- sass-difference
def opcodes(text: str) -> Counter:
    return Counter(re.findall(r"\*/\s+(?:@\S+\s+)?([A-Z][\w.]*)", text))


def by_opcodes(before: str, after: str) -> str:
    new = opcodes(after)
    marks = {
        "same": opcodes(before) == new,
        "float4": "LDG.E.128" in after,
        "double": " F2F.F64" in after or " F2F.F32.F64" in after,
        "no-guard": opcodes(before)["EXIT"] > new["EXIT"],
    }
    return next((change for change, found in marks.items() if found), "fast-math")


def unless(found, change: str):
    """The right answer, but for one wrong mark that is asked first."""
    return lambda before, after: change if found(before, after) else by_opcodes(before, after)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (by_opcodes, ""),
        (unless(lambda before, after: len(after) < len(before), "fast-math"), "fast-math-for-"),
        (unless(lambda before, after: before != after and "D" in after, "double"), "not-double"),
        (unless(lambda before, after: len(after) > len(before), "float4"), "float4-for-"),
        (unless(lambda before, after: opcodes(before) == opcodes(after), "fast-math"), "fast-math-for-same"),
        (lambda before, after: "no-guard", "no-guard-for-"),
        (lambda before, after: "a double", "no-word"),
    ],
)
def test_sass_difference(answer, mistake):
    found = judged("sass-difference", answer).mistake
    assert found == mistake or (mistake.endswith("-") and found.startswith(mistake))


@pytest.mark.parametrize(("i", "name"), list(enumerate(sass.FORMULAS)))
def test_every_change_leaves_its_mark(i, name):
    """Whatever the formula and the target: the double is not narrowed again, the same number moves no
    instruction.
    """
    for n, change in enumerate(sass.CHANGES):
        target = sass.TARGETS[(i + n // 3) % len(sass.TARGETS)]
        before, after = sass.pair(name, change, target, random.Random(i))
        assert by_opcodes(before, after) == change
        assert "_Z" not in before + after, "the mangled name would tell a float4"


# ----------------------------------------------------------------------------------------------- output-code
def read(code: str, xblock: int) -> dict[str, int]:
    n_rows, n_cols = map(int, re.search(r"f32\[(\d+), (\d+)\]", code).groups())
    n = n_rows * n_cols
    width = 4 if n % 4 == 0 else 2 if n % 2 == 0 else 1
    rows = 4 if n_cols % 16 else 16
    return {
        "elements": n,
        "programs": (n + xblock - 1) // xblock,
        "load_bytes": 4 * width,
        "row_load_bytes": rows,
    }


def instead(**wrong):
    """The right answer with one value worked out in another way, from it and the text."""
    return lambda code, xblock: (
        (right := read(code, xblock)) | {key: how(right, code, xblock) for key, how in wrong.items()}
    )


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (read, ""),
        (instead(elements=lambda r, code, x: int(re.search(r"'x': (\d+)", code)[1])), "size-hint"),
        (instead(elements=lambda r, code, x: r["elements"] + 1), "elements"),
        (instead(programs=lambda r, code, x: r["elements"] // x), "rounded-down"),
        (instead(programs=lambda r, code, x: r["elements"]), "programs"),
        (instead(load_bytes=lambda r, code, x: 16 if r["elements"] % 16 == 0 else 4), "load-bytes"),
        (instead(row_load_bytes=lambda r, code, x: r["load_bytes"]), "row-load-bytes"),
        (lambda code, xblock: tuple(read(code, xblock).values()), "keys"),
    ],
)
def test_output_code(answer, mistake):
    assert judged("output-code", answer).mistake == mistake


def test_the_text_for_another_shape_is_what_torch_compile_wrote():
    record = generated._RECORD
    assert generated.code_for(1823, 781) == record.read_text()
    wrote = record.with_name("output-code-12672-4096.py").read_text().splitlines()
    made = generated.code_for(4096, 12672).splitlines()
    assert [a for a, b in zip(wrote, made, strict=True) if a != b] == ["# AOT ID: ['16_inference']"]


# ------------------------------------------------------------------------------------------------ wide-loads
@triton.jit
def narrow_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + i, mask=i < n_elements)
    tl.store(y_ptr + i, x * x, mask=i < n_elements)


@triton.jit
def body_and_tail_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    body = n_elements // 4 * 4
    x = tl.load(x_ptr + i, mask=i < body)
    tl.store(y_ptr + i, x * x, mask=i < body)
    tail = (i >= body) & (i < n_elements)
    x = tl.load(x_ptr + i, mask=tail)
    tl.store(y_ptr + i, x * x, mask=tail)


@triton.jit
def true_hint_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    i = tl.max_contiguous(tl.multiple_of(i, BLOCK_SIZE), BLOCK_SIZE)
    if n_elements >= (tl.program_id(0).to(tl.int64) + 1) * BLOCK_SIZE:
        x = tl.load(x_ptr + i)
        tl.store(y_ptr + i, x * x)
    else:
        x = tl.load(x_ptr + i, mask=i < n_elements)
        tl.store(y_ptr + i, x * x, mask=i < n_elements)


@triton.jit
def start_in_32_bits_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    start = tl.program_id(0) * BLOCK_SIZE
    i = start.to(tl.int64) + tl.arange(0, BLOCK_SIZE)
    if start + BLOCK_SIZE <= n_elements:
        x = tl.load(x_ptr + i)
        tl.store(y_ptr + i, x * x)
    else:
        x = tl.load(x_ptr + i, mask=i < n_elements)
        tl.store(y_ptr + i, x * x, mask=i < n_elements)


@triton.jit
def offsets_in_32_bits_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    if (tl.program_id(0).to(tl.int64) + 1) * BLOCK_SIZE <= n_elements:
        x = tl.load(x_ptr + i)
        tl.store(y_ptr + i, x * x)
    else:
        x = tl.load(x_ptr + i, mask=i < n_elements)
        tl.store(y_ptr + i, x * x, mask=i < n_elements)


@triton.jit
def only_whole_sizes_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    if n_elements % BLOCK_SIZE == 0:
        x = tl.load(x_ptr + i)
        tl.store(y_ptr + i, x * x)
    else:
        x = tl.load(x_ptr + i, mask=i < n_elements)
        tl.store(y_ptr + i, x * x, mask=i < n_elements)


@triton.jit
def no_constant_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    n = n_elements.to(tl.int64)
    if n >= (tl.program_id(0).to(tl.int64) + 1) * BLOCK_SIZE:
        x = tl.load(x_ptr + i)
        tl.store(y_ptr + i, x * x)
    else:
        x = tl.load(x_ptr + i, mask=i < n)
        tl.store(y_ptr + i, x * x, mask=i < n)


@triton.jit
def false_hint_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = tl.max_constancy(i < n_elements, 4)
    x = tl.load(x_ptr + i, mask=mask)
    tl.store(y_ptr + i, x * x, mask=mask)


@triton.jit
def false_assumption_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    tl.assume(n_elements % 4 == 0)
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + i, mask=i < n_elements)
    tl.store(y_ptr + i, x * x, mask=i < n_elements)


@triton.jit
def no_mask_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + i)
    tl.store(y_ptr + i, x * x)


@triton.jit
def no_tail_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements // 4 * 4
    x = tl.load(x_ptr + i, mask=mask)
    tl.store(y_ptr + i, x * x, mask=mask)


@triton.jit
def narrow_stores_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    if (tl.program_id(0) + 1) * BLOCK_SIZE <= n_elements:
        x = tl.load(x_ptr + i)
    else:
        x = tl.load(x_ptr + i, mask=i < n_elements)
    tl.store(y_ptr + i, x * x, mask=i < n_elements)


@triton.jit
def in_place_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + i, mask=i < n_elements)
    tl.store(x_ptr + i, x * x, mask=i < n_elements)


@triton.jit
def doubled_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + i, mask=i < n_elements)
    tl.store(y_ptr + i, x + x, mask=i < n_elements)


@triton.jit
def other_arguments_kernel(x_ptr, y_ptr, BLOCK_SIZE: tl.constexpr, n_elements: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + i, mask=i < n_elements)
    tl.store(y_ptr + i, x * x, mask=i < n_elements)


@triton.jit
def to_do_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    raise NotImplementedError("which programs need the mask?")


@pytest.mark.parametrize(
    ("kernel", "mistake"),
    [
        (body_and_tail_kernel, ""),
        (true_hint_kernel, ""),
        (no_constant_kernel, ""),
        (only_whole_sizes_kernel, "narrow-loads-when-ragged"),
        (narrow_kernel, "narrow-loads"),
        (narrow_stores_kernel, "narrow-stores"),
        (false_hint_kernel, "false-hint"),
        (false_assumption_kernel, "raises"),
        (no_mask_kernel, "missing-mask"),
        (no_tail_kernel, "unwritten"),
        (in_place_kernel, "input-changed"),
        (doubled_kernel, "wrong-values"),
        (other_arguments_kernel, "no-kernel"),
        (lambda x, y, n, BLOCK_SIZE: y.copy_(x * x), "no-kernel"),
    ],
)
def test_wide_loads(kernel, mistake):
    assert judged("wide-loads", kernel).mistake == mistake


def test_an_overflow_of_32_bits_is_shown_with_its_addresses():
    verdict = judged("wide-loads", start_in_32_bits_kernel)
    assert verdict.mistake == "int32-overflow"
    assert re.search(
        r"2,147,48\d,\d{3} elements, BLOCK_SIZE 1024: program 2,097,151 reads element 2,147,48",
        repr(verdict),
    )
    assert "tl.program_id(0).to(tl.int64)" in verdict.hint
    verdict = judged("wide-loads", offsets_in_32_bits_kernel)
    assert verdict.mistake == "int32-overflow" and "reads element -2,147,48" in verdict.sentence


@pytest.mark.parametrize(
    ("ratio", "low", "high", "says"),
    [
        (1.0438, 1.042, 1.045, "masked everywhere took 4.4 % longer (the ratio is 1.042 to 1.045)"),
        (0.97, 0.96, 0.98, "masked everywhere took 3.0 % less"),
        (1.001, 0.99, 1.01, "no difference can be seen"),
    ],
)
def test_the_question_about_unaligned_sizes_is_answered_from_the_table(capsys, ratio, low, high, says):
    cell = ast.parse(solution_cells("04_ptx")["time-wide-loads"])
    (loop,) = [node for node in cell.body if isinstance(node, ast.For)]
    row = {"n_elements": 100_000_001, "masked_over_wide": ratio, "low": low, "high": high}
    timed = pd.DataFrame([{"kernel": name, **row} for name in ("masked everywhere", "wide")])
    exec(compile(ast.Module([loop], []), "cell", "exec"), {"timed": timed})
    told = capsys.readouterr().out
    assert told.startswith("100,000,001 elements: ") and says in told and told.count("\n") == 1


def test_an_untouched_kernel_is_to_do():
    verdict = judged("wide-loads", to_do_kernel)
    assert (verdict.mistake, verdict.sentence) == (
        "to-do",
        "wide-loads is not written yet: which programs need the mask?",
    )


def test_a_false_hint_gives_wide_loads_and_right_values_in_the_interpreter():
    """So neither the PTX nor a run in the interpreter would have caught it."""
    import torch

    made = ptx.stages(
        false_hint_kernel,
        signature={"x_ptr": "*fp32", "y_ptr": "*fp32", "n_elements": "i32"},
        constexprs={"BLOCK_SIZE": 1024},
    )
    assert {load.n_bytes for load in made.reading.loads} == {16}
    x = torch.randn(1025)
    y = torch.zeros_like(x)
    ptx.interpreted(false_hint_kernel)[(2,)](x, y, 1025, BLOCK_SIZE=1024)
    assert torch.equal(y, x * x)


def test_the_times_in_the_text_are_those_of_the_h200():
    notebook = nbformat.read(ROOT / "labs" / "solutions" / "04_ptx.ipynb", as_version=4)
    text = {cell.id: cell.source for cell in notebook.cells}
    slower = {row["n_elements"]: row["masked_over_wide"] - 1 for row in h200_rows("lab/wide-loads")}
    seen = text["what-you-saw-wide-loads"]
    assert f"cost {100 * slower[100_000_001]:.1f} % for 100 million elements" in seen
    assert f"For 1.4 million they cost {100 * slower[1_423_763]:.1f} %" in seen
    by_rows = h200_rows("ptx/vector-width")[0]["narrow_over_wide"] - 1
    assert f"about {100 * by_rows:.0f} %" in text["won-wide-loads"]


def h200_rows(record: str) -> list[dict]:
    path = ROOT / "helpers" / "records" / "h200" / f"{record}.json"
    return json.loads(path.read_text())["cases"][0]["rows"]
