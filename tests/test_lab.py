"""What a lab's cells do: check, progress and reset; and the engine behind them, seen from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import torch

from helpers import cuda, exercises, lab
from helpers.exercises import Case, Outcome, UnknownExercise
from helpers.exercises.attempt import attempt, call_here, run_cases
from helpers.exercises.factories import answer_exercise, kernel_exercise
from helpers.exercises.hints import HINTS
from helpers.exercises.plans import CasePlan
from helpers.predict import answers, summary
from helpers.predict.questions import Question

DOUBLE = answer_exercise(
    "double-it",
    "03_triton",
    "Twice a number",
    "double",
    lambda rng: (Case(f"n = {n}", (n,), expected=2 * n) for n in [rng.randrange(1, 100) for _ in range(5)]),
    mistakes={"wrong-values": lambda s: s.got == s.case.args[0] ** 2 > 4},
)
# on the CPU everywhere: some of what follows would end a process with a GPU
SQUARE = replace(
    kernel_exercise(
        "square-it",
        "03_triton",
        "Square",
        "square",
        torch.square,
        cases=CasePlan(dtypes=("float32", "float16")),
    ),
    on_gpu=False,
)


@pytest.fixture
def labs(monkeypatch, tmp_path):
    """A lab of two exercises, and progress in a folder of its own."""
    known = {one.id: one for one in (DOUBLE, SQUARE)}

    def get(id):
        if id not in known:
            raise UnknownExercise(f"No exercise is called {id!r}.")
        return known[id]

    monkeypatch.setattr(exercises, "get", get)
    monkeypatch.setattr(exercises, "of_lab", lambda name: tuple(known.values()))
    monkeypatch.setenv("WORKBOOK_PROGRESS", str(tmp_path / "progress"))
    return tmp_path


# ------------------------------------------------------------------------------------------------ check


def test_a_right_answer_is_reported_in_a_line(labs):
    verdict = lab.check("double-it", lambda n: n + n)
    assert repr(verdict) == "✓ double-it: 5 cases agree."
    assert "double-it: 5 cases agree" in verdict._repr_html_()


def test_a_wrong_answer_shows_case_and_hint_and_no_traceback(labs):
    with pytest.raises(lab.NotYet) as caught:
        lab.check("double-it", lambda n: n * n, seed=3)
    shown = "\n".join(caught.value._render_traceback_())
    assert shown == str(caught.value)
    assert shown.startswith("✗ double-it, n = 31: ") and "961" in shown and "62" in shown
    assert f"Hint: {HINTS['wrong-values']}" in shown
    assert "Traceback" not in shown and "lambda" not in shown


def test_a_constant_answer_is_named(labs):
    with pytest.raises(lab.NotYet) as caught:
        lab.check("double-it", lambda n: 62, seed=next(s for s in range(999) if _first(s) == 31))
    assert caught.value.verdict.mistake == "constant"


def _first(seed: int) -> int:
    import random

    return next(DOUBLE.cases(random.Random(seed), "cpu")).args[0]


def test_a_starter_that_is_not_written_raises_nothing(labs):
    def starter(n):
        raise NotImplementedError("what is twice n?")

    verdict = lab.check("double-it", starter)
    assert not verdict.passed and repr(verdict) == "double-it is not written yet: what is twice n?"
    assert lab.progress("03_triton").rows[0].tries == 0


def test_an_exception_is_reported_with_its_line(labs):
    def wrong(n):
        return n + undefined  # noqa: F821

    with pytest.raises(lab.NotYet, match=r"double raised NameError: .* \(line \d+\)"):
        lab.check("double-it", wrong)


@pytest.mark.parametrize("given", [None, 7, "lambda n: 2 * n"])
def test_an_answer_that_is_not_a_function_is_reported(labs, given):
    with pytest.raises(lab.NotYet, match=r"double-it: double is .*not a function"):
        lab.check("double-it", given)


def test_unknown_names_get_suggestions():
    with pytest.raises(UnknownExercise, match="did you mean 'square-any-shape'"):
        lab.check("square-any-shap", abs)
    with pytest.raises(UnknownExercise, match="03_triton"):
        lab.progress("3_triton")


def test_in_a_notebook_a_sentence_replaces_the_traceback(labs):
    code = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell('from helpers.lab import check')
shell.run_cell('def share(n_elements, block_size, program): raise NotImplementedError("how many?")')
shell.run_cell('check("programs-and-elements", share)')
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "programs-and-elements is not written yet: how many?" in done.stdout, done.stderr


def test_a_cell_that_needs_an_unwritten_exercise_does_not_stop_run_all(labs):
    code = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
ran = lambda cell: print("ok" if shell.run_cell(cell, store_history=True).success else "stopped")
ran('from helpers.lab import check')
ran('def share(n_elements, block_size, program): raise NotImplementedError("how many?")')
ran('check("programs-and-elements", share)')
ran('share(10, 4, 2)')
ran('1 / 0')
ran('share = len(1, 2)')
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert "This cell needs programs-and-elements, which is not written yet." in lines, done.stderr
    assert [line for line in lines if line in ("ok", "stopped")] == ["ok"] * 4 + ["stopped"] * 2


def test_starter_code_to_fix_counts_as_unwritten_until_it_is_changed(labs, monkeypatch):
    starter = "def double(n):\n    return n * n"
    monkeypatch.setattr(lab, "_starter_cells", lambda id: {id: starter})
    history = SimpleNamespace(input_hist_raw=["", "import torch", starter + "\n"])
    monkeypatch.setattr(
        lab, "_shell", lambda: SimpleNamespace(history_manager=history, custom_exceptions=(Exception,))
    )
    assert repr(lab.check("double-it", lambda n: n * n)) == "double-it is not written yet."
    assert lab.progress("03_triton").rows[0].tries == 0
    assert lab.check("double-it", lambda n: n + n).passed

    history.input_hist_raw.append("def double(n):\n    return n ** 2")
    with pytest.raises(lab.NotYet):
        lab.check("double-it", lambda n: n**2)
    history.input_hist_raw.append(starter)  # run again
    assert not lab.check("double-it", lambda n: n * n).passed


# ------------------------------------------------------------------------------------------------ progress


def test_progress_survives_and_a_pass_stays(labs):
    with pytest.raises(lab.NotYet):
        lab.check("double-it", lambda n: n)
    assert lab.progress("03_triton").rows[0].state == "tried"
    lab.check("double-it", lambda n: 2 * n)
    with pytest.raises(lab.NotYet):
        lab.check("double-it", lambda n: n)
    row = lab.progress("03_triton").rows[0]
    assert (row.state, row.tries) == ("passed", 3) and len(row.when) == len("2026-11-21 04:00")
    text = repr(lab.progress("03_triton"))
    assert text.startswith("Lab 03_triton: 1 of 2 exercises passed") and "speed" not in text
    assert "<table>" in lab.progress("03_triton")._repr_html_()


@pytest.mark.parametrize("broken", ["", "{", "[1, 2]", '{"double-it": 3}', '{"double-it": {"tries": "x"}}'])
def test_a_broken_progress_file_is_ignored(labs, broken):
    folder = labs / "progress"
    folder.mkdir()
    (folder / "03_triton.json").write_text(broken)
    assert lab.progress("03_triton").rows[0].state in ("to do", "tried")
    lab.check("double-it", lambda n: 2 * n)
    assert lab.progress("03_triton").rows[0].state == "passed"


def test_two_notebooks_at_once_lose_nothing(labs):
    code = """
from helpers import lab
from helpers.exercises import Exercise, Verdict
one = Exercise("double-it", "03_triton", "", "double", cases=None, judge=None)
for _ in range(25):
    lab._store_attempt(one, Verdict("double-it", False, ""))
"""
    running = [subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ)) for _ in range(2)]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    assert lab.progress("03_triton").rows[0].tries == 50


def test_a_folder_that_cannot_be_written_does_not_fail_the_check(labs, monkeypatch, capsys):
    (labs / "file").write_text("")
    monkeypatch.setenv("WORKBOOK_PROGRESS", str(labs / "file" / "below"))
    assert lab.check("double-it", lambda n: 2 * n).passed
    assert "progress was not saved" in capsys.readouterr().out


def test_progress_includes_the_lessons_predictions(labs, monkeypatch):
    sectors = Question("sectors", "How many <sectors>?", unit="sectors")
    by_lesson = {"03_triton": ("sectors", "waves"), "04_ptx": ("other",)}
    monkeypatch.setattr(answers, "keys_by_lesson", lambda: by_lesson)
    assert "redict" not in repr(lab.progress("03_triton"))
    assert lab.progress("03_triton")._repr_mimebundle_() == {}
    answers.store(sectors, 8)
    answers.note_reveal(sectors, 4)
    answers.store(Question("other", "Of another lesson?"), 8)
    shown = lab.progress("03_triton")
    assert "Answered: 1 of 2 questions." in repr(shown) and "Right: 0 of 1" in repr(shown)
    assert "How many &lt;sectors&gt;?" in shown._repr_html_() and "another lesson" not in shown._repr_html_()
    carried = json.loads(json.dumps(shown._repr_mimebundle_()[summary.MIME]))
    assert summary.parse(carried) == shown.predictions


# ------------------------------------------------------------------------------------------------ reset


def test_reset_restores_the_starter_and_forgets_the_pass(labs, monkeypatch, capsys):
    starters = labs / "starters.json"
    starters.write_text(json.dumps({"double-it": {"cells": {"double-it": "def double(n):\n    ..."}}}))
    monkeypatch.setattr(lab, "STARTERS", starters)
    lab.check("double-it", lambda n: 2 * n)

    class Shell:
        given = ""

        def set_next_input(self, text):
            self.given = text

    shell = Shell()
    monkeypatch.setattr(lab, "_shell", lambda: shell)
    lab.reset("double-it")
    assert shell.given == "def double(n):\n    ..."
    assert "new cell below" in capsys.readouterr().out
    row = lab.progress("03_triton").rows[0]
    assert (row.state, row.tries) == ("tried", 1)


def test_reset_without_a_starter_names_the_command(labs, monkeypatch):
    monkeypatch.setattr(lab, "STARTERS", labs / "nowhere.json")
    with pytest.raises(UnknownExercise, match="workbook form"):
        lab.reset("double-it")


# ------------------------------------------------------------------------------------------------ the engine


def test_the_copy_is_measured_again_before_a_kernel_counts_as_faster(monkeypatch):
    from types import SimpleNamespace

    from helpers import device
    from helpers.exercises import speed

    measured = []
    monkeypatch.setattr(
        device, "gpu_spec", lambda: SimpleNamespace(copy_gb_per_s=2600.0, memory_bytes=1 << 36)
    )
    monkeypatch.setattr(device, "measure_copy", lambda n: measured.append(n) or 2960.0)
    assert speed.ceiling_for(2700, 0.5) == 2600 and not measured
    assert speed.ceiling_for(2954, 0.5) == 2960 and len(measured) == 1
    assert speed.ceiling_for(3100, 0.01) == 2600 and len(measured) == 1  # reading alone may be faster


@pytest.fixture
def timed(monkeypatch):
    """Judges what a process says of a timed call of torch.square: on 2,048 elements, where a copy reaches 100
    GB/s.
    """
    from types import SimpleNamespace

    from helpers import device
    from helpers.exercises import speed
    from helpers.exercises.model import SPEED, Case, Outcome

    monkeypatch.setattr(
        device, "gpu_spec", lambda: SimpleNamespace(copy_gb_per_s=100.0, memory_bytes=1 << 36)
    )
    monkeypatch.setattr(device, "measure_copy", lambda n: 100.0)
    exercise = kernel_exercise("square-it", "90_mini", "Square", "square", torch.square)
    x = torch.arange(2048.0)
    case = Case("timed", (x,), call=SPEED)

    def judge(value=None, claimed=False, **facts):
        value = torch.square(speed.rotated(x, 3)) if value is None else value
        outcome = Outcome(value, facts={"us": 0.2, "n_rotations": 3, **facts})
        return speed.judge_speed(exercise, case, outcome, claimed)

    return judge


def test_the_judge_computes_the_speed_and_labels_claims(timed):
    assert timed() == (None, "82 % of the copy ceiling")
    assert timed(claimed=True) == (None, "claimed: 82 % of the copy ceiling")
    assert timed(fraction=0.1, gb_per_s=1.0, written=0.0) == (None, "82 % of the copy ceiling")


def test_timing_in_the_judges_process_keeps_the_contents(timed, monkeypatch):
    """In a notebook the case that is timed is the case that is judged."""
    from types import SimpleNamespace

    from helpers import timing
    from helpers.exercises import speed

    def time_gpu(call, before):
        for _ in range(5):
            before()
            call()
        return SimpleNamespace(median_us=0.2)

    monkeypatch.setattr(timing, "time_gpu", time_gpu)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    x = torch.arange(2048.0)
    outcome = speed.measure(torch.square, (x,))
    assert outcome.facts == {"us": 0.2, "n_rotations": 6} and torch.equal(x, torch.arange(2048.0))
    assert timed(outcome.value, **outcome.facts) == (None, "82 % of the copy ceiling")


@pytest.mark.parametrize(
    ("says", "mistake"),
    [
        ({"us": 0.1}, "above-ceiling"),
        ({"us": float("nan")}, "no-time"),
        ({"us": float("inf")}, "no-time"),
        ({"us": 0.0}, "no-time"),
        ({"us": True}, "no-time"),
        ({"n_rotations": 0}, "no-time"),
        ({"n_rotations": 2}, "fast-but-partial"),  # an answer for earlier contents
        ({"value": torch.zeros(3)}, "wrong-shape"),
        ({"value": {}}, "wrong-shape"),
    ],
)
def test_an_impossible_speed_is_refused(timed, says, mistake):
    failed, text = timed(**says)
    assert not failed.passed and failed.mistake == mistake and text == ""


def test_cases_and_outcomes_can_be_sent_and_views_stay_views(tmp_path):
    """The grader sends each case to another process: the verdict must not depend on it."""
    seen = []

    def call(case: Case) -> Outcome:
        torch.save([case.args, case.kwargs], tmp_path / "case.pt")
        args, kwargs = torch.load(tmp_path / "case.pt", weights_only=True)
        seen.extend(t for t in args if isinstance(t, torch.Tensor) and not t.is_contiguous())
        outcome = call_here(SQUARE, torch.square, Case(case.label, args, kwargs, call=case.call))
        torch.save([getattr(outcome, one.name) for one in fields(outcome)], tmp_path / "outcome.pt")
        return Outcome(*torch.load(tmp_path / "outcome.pt", weights_only=True))

    there = run_cases(SQUARE, call, seed=5)
    here = attempt(SQUARE, torch.square, seed=5)
    assert there == here and there.passed and there.n_cases > 30
    assert len(seen) >= 8 and any(0 in t.stride() for t in seen)


def test_the_same_seed_gives_the_same_cases():
    a, b = (repr(attempt(SQUARE, lambda x: x * 1.001 * x, seed=11)) for _ in range(2))
    assert a == b


def test_results_in_a_view_of_larger_memory_and_other_layouts_are_right():
    def column_major(x):
        out = torch.empty([*reversed(x.shape)], dtype=x.dtype).permute([*reversed(range(x.dim()))])
        return out.copy_(x * x)

    assert attempt(SQUARE, column_major, seed=1).passed


def test_learners_code_sees_nothing_of_the_guard_bands():
    def suspicious(x):
        assert x.storage_offset() < 100
        span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
        assert x.untyped_storage().nbytes() >= span * x.element_size()
        out = torch.empty_like(x)
        if out.numel() and out.is_contiguous():
            assert out.storage_offset() == 0
            assert out.untyped_storage().nbytes() == out.numel() * out.element_size()
        return torch.mul(x, x, out=torch.empty(0, dtype=x.dtype)) if x.dim() == 1 else out.copy_(x * x)

    verdict = attempt(SQUARE, suspicious, seed=2)
    assert verdict.passed, verdict


def test_compiled_functions_and_numpy_are_right_answers():
    def by_numpy(x):
        import numpy as np

        return torch.from_numpy(np.square(x.numpy()).copy() if x.dim() else np.array(x.numpy() ** 2))

    assert attempt(SQUARE, by_numpy, seed=4).passed


def test_writes_outside_are_reported():
    import ctypes

    def overruns(x):
        out = torch.empty_like(x, memory_format=torch.contiguous_format).copy_(x * x)
        ctypes.memset(out.data_ptr() + out.numel() * out.element_size(), 0, 40)
        return out

    verdict = attempt(SQUARE, overruns, seed=1)
    assert verdict.mistake == "missing-mask" and "10 elements" in verdict.sentence


def test_exits_and_interrupts():
    assert "SystemExit" in attempt(SQUARE, lambda x: sys.exit(3), seed=1).sentence

    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(SQUARE, interrupted, seed=1)


def test_answers_of_all_kinds_are_compared():
    from helpers.exercises.answers import difference
    from helpers.exercises.call import portable

    equal = [(3, 3.0), ((1, 2), [1, 2]), ({"a": 0.1 + 0.2}, {"a": 0.3}), (torch.tensor(4), 4), ("x ", "x")]
    for got, expected in equal:
        assert difference(portable(got), portable(expected)) is None, (got, expected)
    unequal = [(3, "3"), (1, True), ((1, 2), (1, 2, 3)), ({"a": 1}, {"b": 1}), (float("nan"), 1.0), (None, 0)]
    for got, expected in unequal:
        assert difference(portable(got), portable(expected)) is not None, (got, expected)
    assert "[1]" in difference((1, 5), (1, 2))


# -------------------------------------------------------------------------------- CUDA on the host, Triton
# interpreted


KERNEL = """
__global__ void square_kernel(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    %s
}
void launch(int64_t x, int64_t y, int n) {
    square_kernel<<<(n + 255) / 256, 256>>>((const float*)x, (float*)y, n);
}
"""
# on the host everywhere: on a GPU some of these would end the process
CUDA = replace(
    kernel_exercise(
        "square-cuda",
        "02_load_inline",
        "Square",
        "SQUARE",
        torch.square,
        cases=CasePlan(strides=False),
        must_launch="cuda",
        prepare=lambda text: _with_tensors(_built(text).launch),
    ),
    on_gpu=False,
)


def _built(text):
    declared = "void launch(int64_t x, int64_t y, int n);"
    return cuda.load_cuda(
        "lab_launch", text, ["launch"], cpp_source=declared, torch_headers=False, device="emulator"
    )


def _with_tensors(launch):
    def square(x):
        y = torch.empty_like(x)
        if x.numel():
            launch(x.data_ptr(), y.data_ptr(), x.numel())
        return y

    return square


def test_a_cuda_starter_is_to_do():
    verdict = attempt(CUDA, KERNEL % '#error "one element a thread, with a guard"')
    assert repr(verdict) == "square-cuda is not written yet: one element a thread, with a guard"


def test_cuda_that_does_not_build_is_reported_with_its_line():
    verdict = attempt(CUDA, KERNEL % "if (i < n) y[i] = x[i] * z[i];")
    assert verdict.mistake == "does-not-build"
    assert "lab_launch.cu, line 4" in verdict.sentence and "z[i]" in verdict.details


@pytest.mark.parametrize(
    ("body", "mistake", "told"),
    [
        ("y[i] = x[i] * x[i];", "missing-mask", "thread (39, 0)"),
        (
            "if (i < n) { __shared__ float s[256]; s[threadIdx.x] = x[i]; __syncthreads(); y[i] = "
            "s[threadIdx.x] * x[i]; }",
            "barrier",
            "__syncthreads",
        ),
        (
            "__shared__ float s[256]; if (i < n) y[i] = x[i] * x[i] + 0 * s[0];",
            "uninitialised-shared",
            "line 4",
        ),
        (
            "const float4 v = *reinterpret_cast<const float4*>(x + i % 4); if (i < n) y[i] = x[i] * x[i] + "
            "0 * v.x;",
            "misaligned",
            "float4",
        ),
        ("if (i < n - 1) y[i] = x[i] * x[i];", "off-by-one", "never written"),
        ("", "uninitialised-output", "never written"),
    ],
)
def test_mistakes_of_cuda_kernels_are_named_on_the_host(body, mistake, told):
    verdict = attempt(CUDA, KERNEL % body, seed=1)
    assert verdict.mistake == mistake and told in repr(verdict), verdict


def test_cuda_that_launches_nothing_is_no_answer():
    text = """
void launch(int64_t x, int64_t y, int n) {
    for (int i = 0; i < n; ++i) ((float*)y)[i] = ((const float*)x)[i] * ((const float*)x)[i];
}
"""
    verdict = attempt(CUDA, text, seed=1)
    assert verdict.mistake == "no-launch" and "no CUDA kernel" in verdict.sentence, verdict


def in_interpreter(code: str) -> dict[str, str]:
    """Run code that fills `told` in a process where Triton's kernels are interpreted."""
    head = """
import json, torch, triton, triton.language as tl
from helpers.exercises.attempt import attempt
from helpers.exercises.factories import kernel_exercise
from helpers.exercises.plans import CasePlan
S = kernel_exercise("square-it", "03_triton", "Square", "square", torch.square, must_launch="triton",
                    cases=CasePlan(dtypes=("float32", "bfloat16")))
told = {}
"""
    done = subprocess.run(
        [sys.executable, "-c", f"{head}\n{code}\nprint(json.dumps(told))"],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_triton_interpreted(tmp_path):
    """Kernels must be in a file: Triton reads their source."""
    (tmp_path / "kernels.py").write_text("""
import torch, triton, triton.language as tl

@triton.jit
def right(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x * x, mask=at < n)

@triton.jit
def unmasked_load(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x * x, mask=at < n)

@triton.jit
def nowhere(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK).to(tl.int64) + (1 << 44)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at >= n)

@triton.jit
def starter(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    raise NotImplementedError("load, square, store")

def with_kernel(kernel):
    def square(x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        if n:
            kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y
    return square
""")
    told = in_interpreter(f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import kernels
for name in ("right", "unmasked_load", "nowhere", "starter"):
    told[name] = repr(attempt(S, kernels.with_kernel(getattr(kernels, name)), 3))
""")
    assert told["right"].startswith("✓ square-it") and "4 cases (Triton's interpreter" in told["right"]
    assert "were read" in told["unmasked_load"]
    assert "far outside" in told["nowhere"] and "mask" in told["nowhere"].split("Hint: ")[1]
    assert told["starter"] == "square-it is not written yet: load, square, store"
