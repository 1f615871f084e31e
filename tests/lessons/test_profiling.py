"""What lessons 01 and 07 draw and measure, and what their text says of torch."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch
from commands import cells

from helpers.lessons import profiling

LESSON = cells("notebooks/01_profiling.ipynb")


def texts(figure) -> list[str]:
    return [a.text for a in figure.layout.annotations if a.text]


def test_every_element_has_a_thread_and_the_rest_of_the_last_block_has_nothing_to_do():
    figure = profiling.f_for_all(torch.square, torch.arange(14.0), threads=4)
    assert [t for t in texts(figure) if t.startswith("block")] == ["block 0", "block 1", "block 2", "block 3"]
    assert [t.text[0] for t in figure.data] == ["f"] * 14 + ["–"] * 2
    assert {"13", "169"} <= set(texts(figure))
    assert figure.data[6].hovertext[0] == "thread 2: element 6"
    assert "nothing to do" in figure.data[15].hovertext[0]


@pytest.mark.parametrize(
    ("x", "threads", "says"),
    [
        (torch.zeros(0), 4, r"1 to 24 elements; this x has the shape \(0,\)"),
        (torch.zeros(25), 4, r"the shape \(25,\)"),
        (torch.zeros(2, 2), 4, r"the shape \(2, 2\)"),
        (torch.zeros(4), 0, "at least one thread"),
    ],
)
def test_inputs_that_cannot_be_drawn_are_errors(x, threads, says):
    with pytest.raises(ValueError, match=says):
        profiling.f_for_all(torch.square, x, threads)


def test_a_printed_table_has_the_columns_that_the_lesson_names():
    rule = "----  -----  --"
    table = "\n".join([rule, "name  much time  N", rule, " a<1        2us  3", rule, "Total: 4"])
    page = profiling.columns(table, "name", "N").data
    assert "white-space: pre" in page
    lines = page[page.index(">") + 1 :].splitlines()
    assert lines == ["----  -", "name  N", "----  -", " a&lt;1  3", "----  -", "Total: 4</pre>"]


@pytest.mark.gpu
def test_three_squares_have_a_row_each_with_the_true_time():
    rows = profiling.time_three_squares({"seven": lambda fn: 7.0})
    assert [list(row) for row in rows] == [["square of", "trace", "seven"]] * 3
    assert all(0 < row["trace"] < 1e5 and row["seven"] == 7.0 for row in rows)


@pytest.mark.gpu
def test_the_first_call_is_timed_in_a_new_process():
    assert profiling.first_call_us(64, 64) > 0


def said_about_use_cuda() -> list[str]:
    said = io.StringIO()
    with redirect_stdout(said):
        exec(LESSON["use-cuda"], {"torch": torch, "small": torch.ones(4)})
    return said.getvalue().splitlines()


def test_the_lesson_prints_this_torchs_answer_to_use_cuda():
    autograd, newer = said_about_use_cuda()
    assert autograd.startswith("torch.autograd.profiler: ") and newer.startswith("torch.profiler.profiler: ")
    assert "use_cuda" in autograd and "use_cuda" in newer


def test_the_lesson_prints_the_error_if_use_cuda_is_gone(monkeypatch):
    class Profile:
        def __init__(self):
            pass

    monkeypatch.setattr(torch.autograd.profiler, "profile", Profile)
    monkeypatch.setattr(torch.profiler, "profile", Profile)
    for line in said_about_use_cuda():
        assert ": TypeError: " in line and "unexpected keyword argument 'use_cuda'" in line


def test_the_schedule_keeps_the_steps_of_the_lesson():
    plan = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    recording = (torch.profiler.ProfilerAction.RECORD, torch.profiler.ProfilerAction.RECORD_AND_SAVE)
    assert [step for step in range(10) if plan(step) in recording] == [2, 3, 6, 7]


def test_a_row_of_up_to_2048_elements_goes_to_a_warp_in_softmax():
    header = Path(torch.__file__).parent / "include/ATen/native/cuda/PersistentSoftmax.cuh"
    text = header.read_text()
    forward = text[text.index("void dispatch_softmax_forward") : text.index("void dispatch_softmax_backward")]
    assert "softmax_elements <= 2048" in forward
    assert "(next_power_of_two <= 128) ? 2 : 1" in text


def test_eight_elements_a_thread_for_a_square_of_floats():
    header = Path(torch.__file__).parent / "include/ATen/native/cuda/CUDALoops.cuh"
    text = header.read_text()
    assert "return input_size + output_size;" in text  # 4 + 4 bytes, so not the 16 elements of one byte
