"""What lesson 05 says about Triton's code and the sectors that it touches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from commands import cells

from helpers import ncu

LESSON = cells("notebooks/05_ncu.ipynb")

COMPILE = """
import json, re, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from helpers.kernels.square import square_rows_kernel as kernel

found = []
for n_cols, stride, block_size in json.loads(sys.argv[1]):
    signature = {n: "*fp32" if n.endswith("ptr") else "i32" for n in kernel.arg_names}
    signature["BLOCK_SIZE"] = "constexpr"
    # what Triton sees at a launch: pointers are aligned to 16 bytes, integers either divide by 16 or do not
    values = [16, 16, stride, stride, n_cols]
    attributes = {(i,): [["tt.divisibility", 16]] for i, v in enumerate(values) if v % 16 == 0}
    source = ASTSource(kernel, signature, constexprs={(5,): block_size}, attrs=attributes)
    asm = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm
    per_thread = {int(n) for n in re.findall(r"sizePerThread = \\\\[(\\\\d+)\\\\]", asm["ttgir"])}
    vector = {int(n or 1) for n in re.findall(r"(?:ld|st)[.]global(?:[.]v(\\\\d))?[.]b32", asm["ptx"])}
    found.append([sorted(per_thread), sorted(vector),
        asm["ptx"].split(".visible .entry")[1].split("$L__func_end")[0]])
print(json.dumps(found))
""".replace("\\\\", "\\")


UNROLLED = """
import json, re
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


KERNEL


pointers, integers = ["sums_ptr", "x_ptr"], ["n_rows", "n_cols", "rows_per_piece"]
signature = dict.fromkeys(pointers, "*fp32") | dict.fromkeys(integers, "i32") | {"BLOCK_COLS": "constexpr"}
divisible = {(i,): [["tt.divisibility", 16]] for i in range(5)}
found = {}
for columns in (128, 512):
    source = ASTSource(sum_pieces_kernel, signature, constexprs={(5,): columns}, attrs=divisible)
    sass = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["sass"]
    # Runs of loads without an addition between them.
    runs = [re.findall(r"LDG\\S*", run) for run in re.split("FADD", sass)]
    found[columns] = max(runs, key=len)
print(json.dumps(found))
""".replace("\\\\", "\\")


@pytest.fixture(scope="module")
def lesson():
    """The lesson's layouts and its prediction, run as they stand."""
    import pandas as pd

    from helpers import ncu

    space = {"pd": pd, "ncu": ncu}
    exec(LESSON["alignment"], space)
    return space


def test_tritons_layouts_are_the_lessons(lesson):
    """The layouts (elements a thread, vector width) are the compiler's own, and 781 and 792 are the same
    machine code.
    """
    pytest.importorskip("triton")
    layouts = list(lesson["layouts"].values())
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    asked = json.dumps([layout[:3] for layout in layouts])
    ran = subprocess.run(
        [sys.executable, "-c", COMPILE, asked], capture_output=True, text=True, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert [f[:2] for f in found] == [[[per_thread], [vector]] for *_, per_thread, vector in layouts]
    assert found[0][2] == found[2][2]


def test_predicted_sectors_match_another_count(lesson):
    """Packed rows, counted in another way: by the sectors that each run of 128 bytes begins and ends in."""
    asked = 0
    for row in range(1823):
        for first in range(0, 781, 32):
            begin = (row * 781 + first) * 4
            end = (row * 781 + min(first + 32, 781)) * 4 - 1
            asked += end // 32 - begin // 32 + 1
    predicted = lesson["predicted"]
    assert predicted.sectors["packed, masked"] == 2 * asked
    assert predicted.sectors["A: rows 792 apart, masked"] == predicted.ideal["A: rows 792 apart, masked"]
    assert predicted.excess_percent["C: rows 784 apart, masked"] > 70


def test_the_compiler_unrolls_the_sum_four_times(tmp_path):
    """The lesson counts four loads in flight per thread, of 4 bytes and then of 16."""
    pytest.importorskip("triton")
    script = tmp_path / "unrolled.py"
    script.write_text(UNROLLED.replace("KERNEL", LESSON["sum-pieces"]))
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    narrow, wide = json.loads(ran.stdout).values()
    # ptxas may schedule the fourth wide load behind the first additions.
    assert narrow == ["LDG.E"] * 4 and set(wide) == {"LDG.E.128"} and len(wide) in (3, 4)


@pytest.mark.parametrize("title", [None, "Tail Effect", "Small Grid"])
def test_the_small_launch_may_have_no_advice(report, monkeypatch, capsys, title):
    """64 blocks fill a GPU with few SMs, so Small Grid doesn't apply there, but another rule may."""
    rule = next(r for r in report[0].rules if r.title == "Small Grid" and r.speedup_percent)
    rules = () if title is None else (replace(rule, title=title, speedup_percent=50.0),)
    launches = [
        replace(report[0], grid=(n_blocks, 1, 1), rules=rules, metrics={"gpu__time_duration.sum": 1000 * us})
        for n_blocks, us in ((64, 2.0), (256, 1.5))
    ]
    monkeypatch.setattr(ncu, "last", lambda: launches)
    exec(LESSON["small-outcome"], {"ncu": ncu})
    promised = "Small Grid would save 50 %" if title == "Small Grid" else "no Small Grid on this GPU"
    expected = f"64 blocks: 2.0 µs, {promised}\n256 blocks: 1.5 µs, saves 25 %\n"
    assert capsys.readouterr().out == expected
