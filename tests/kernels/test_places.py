"""The chip in miniature: programs that wait run at once, a deadlock is said, and nothing of the interpreter
stays changed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from commands import environment

from helpers.kernels import cooperative_simulator

KERNELS = '''
import threading
import numpy as np
import torch
import triton
import triton.language as tl
from helpers.kernels import places


@triton.jit
def wait(y_ptr, words_ptr, N: tl.constexpr, PUBLISH: tl.constexpr, VOLATILE: tl.constexpr):
    """Every program says its number and waits for the last one's word."""
    me = tl.program_id(0)
    if PUBLISH:
        tl.atomic_xchg(words_ptr + me, me + 1)
    after = N - 1
    word = tl.load(words_ptr + after, volatile=VOLATILE)
    while word == 0:
        word = tl.load(words_ptr + after, volatile=VOLATILE)
    tl.store(y_ptr + me, word)


@triton.jit
def three_walks(y_ptr, x_ptr, n, BLOCK: tl.constexpr):
    """Nobody waits: a row is only read three times."""
    lanes, m, s = tl.arange(0, BLOCK), -1e30, 0.0
    for start in range(0, n, BLOCK):
        m = tl.maximum(m, tl.max(tl.load(x_ptr + start + lanes), axis=0))
    for start in range(0, n, BLOCK):
        s += tl.sum(tl.exp(tl.load(x_ptr + start + lanes) - m), axis=0)
    for start in range(0, n, BLOCK):
        tl.store(y_ptr + start + lanes, tl.exp(tl.load(x_ptr + start + lanes) - m) / s)


@triton.jit
def fails(y_ptr):
    tl.store(y_ptr, tl.program_id(0))
    if tl.program_id(0) == 2:
        tl.static_assert(False, "the third program")


@triton.jit
def two_stores(y_ptr, pairs_ptr, N: tl.constexpr):
    """Every program makes two stores, and takes the others' first ones for a sign of their second ones."""
    me, lanes = tl.program_id(0), tl.arange(0, N)
    tl.atomic_xchg(pairs_ptr + me, 1)
    tl.atomic_xchg(pairs_ptr + N + me, 1)
    while tl.min(tl.load(pairs_ptr + lanes, volatile=True), axis=0) == 0:
        pass
    tl.store(y_ptr + me, tl.sum(tl.load(pairs_ptr + N + lanes, volatile=True), axis=0))


def run(n_places, publish=True, volatile=True, n=6):
    y, words = torch.zeros(n, dtype=torch.int32), torch.zeros(n, dtype=torch.int32)
    with places.chip(n_places) as chip:
        wait[(n,)](y, words, N=n, PUBLISH=publish, VOLATILE=volatile)
    return y.tolist(), chip


def said(*args, **kwargs):
    try:
        run(*args, **kwargs)
    except places.Deadlock as error:
        return str(error)
'''


def _run(script: str) -> str:
    """What a script prints after the kernels, in a process whose Triton is interpreted."""
    env = environment() | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "script.py")
        path.write_text(KERNELS + script)
        done = subprocess.run([sys.executable, path], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_programs_that_wait_for_each_other_finish() -> None:
    out = _run("for n in (None, 6, 9): print(run(n)[0])\nprint(threading.active_count())")
    assert out == "[6, 6, 6, 6, 6, 6]\n" * 3 + "1\n"


def test_too_few_places_are_a_deadlock_that_names_the_programs() -> None:
    out = _run(
        "print(said(4))\nprint(said(1))\nprint(said(None, publish=False))\nprint(threading.active_count())"
    )
    lines = out.splitlines()
    assert lines[0].startswith("programs 0 to 3 of wait hold all 4 places") and "program 4" in lines[0]
    assert lines[1].startswith("program 0 of wait holds") and "program 1" in lines[1]
    assert "programs 0 to 5 of wait" in lines[2] and "nobody will write" in lines[2]
    assert lines[3] == "1", "a program's thread is left"


def test_a_wait_by_ordinary_loads_is_noticed() -> None:
    out = _run("print(run(6)[1].plain_waits, run(6, volatile=False)[1].plain_waits)")
    assert out == "False True\n"


def test_reading_a_row_again_is_not_waiting() -> None:
    script = """
x = torch.randn(4 * 64)
for n in (64, 128, 256):
    y = torch.empty_like(x[:n])
    with places.chip(1) as chip:
        three_walks[(1,)](y, x, n, BLOCK=64)
    print(torch.allclose(y, torch.softmax(x[:n], 0)), chip.plain_waits)
"""
    assert _run(script) == "True False\n" * 3


def test_a_program_may_be_preempted_between_two_stores() -> None:
    script = """
y, pairs = torch.zeros(4, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
with places.chip(4):
    two_stores[(4,)](y, pairs, N=4)
print(y.tolist(), pairs.tolist())
"""
    said = _run(script)
    assert said.endswith("[1, 1, 1, 1, 1, 1, 1, 1]\n") and not said.startswith("[4, 4, 4, 4]"), said


def test_the_interpreter_is_restored_after_a_chip() -> None:
    script = """
from triton.runtime import interpreter
watched = lambda: [interpreter.GridExecutor.__call__, interpreter.InterpreterBuilder.create_masked_load,
                   interpreter.InterpreterBuilder.create_atomic_rmw, tl.load, tl.max, tl.program_id]
before = watched()
said(4)
y = torch.zeros(1, dtype=torch.int32)
try:
    with places.chip(8):
        fails[(4,)](y)
except Exception as error:
    print(type(error).__name__, "the third program" in str(error))
with places.chip(2):
    with places.chip():  # the inner one counts
        print(run(None)[0])
print(watched() == before)
"""
    assert _run(script) == "InterpreterError True\n[6, 6, 6, 6, 6, 6]\nTrue\n"


def test_a_chip_needs_at_least_one_place() -> None:
    with pytest.raises(ValueError, match="at least one program; places=0"), cooperative_simulator.chip(0):
        pass
