"""Lab 08: wrong diagnoses, and fixes that hide the symptom, are refused with the reason; unlike but right
ones are accepted.
"""

from __future__ import annotations

import json

import pytest
from lab_answers import judged, solution
from lab_attempts import solution_cells

from helpers import cuda, exercises
from helpers.exercises.lab08 import broken, runs
from helpers.exercises.model import Text
from helpers.lessons import failures

pytestmark = pytest.mark.seeded

RIGHT = {
    "fix-the-index": ("reverse_rows", "memcheck", 6, "index"),
    "fix-the-race": ("smooth_chunks", "racecheck", 10, "barrier"),
    "fix-the-unset": ("block_maxima", "host", 8, "never set"),
}


def answer(id: str, *changes: tuple[str, str], **diagnosis) -> dict:
    """The right diagnosis with some words changed, and the broken text with some words changed."""
    name, tool, line, cause = RIGHT[id]
    text = broken.KERNELS[name].text
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return {"tool": tool, "line": line, "cause": cause, "kernel": text, **diagnosis}


PLACE = "output[row * width + width - col]"
END_OF_LOOP = "right;\n        }\n"
COMPARE = "if (t < half) largest[t]"
SET = "if (i < n) largest[t] = input[i];"

FIXES = {
    "fix-the-index": [
        [(PLACE, "output[row * width + width - 1 - col]")],
        [
            ("const int row = i / width, col = i % width;", ""),
            (PLACE, "output[i / width * width + (width - 1 - i % width)]"),
        ],
    ],
    "fix-the-race": [
        [(END_OF_LOOP, END_OF_LOOP + "        __syncthreads();\n")],
        [("if (t < n) tile[t] = input[i];", "__syncthreads();\n        if (t < n) tile[t] = input[i];")],
        [
            ("float tile[64]", "float tiles[2][64]"),
            ("if (t < n) tile[t]", "float* tile = tiles[start / 64 % 2];\n        if (t < n) tile[t]"),
        ],
    ],
    "fix-the-unset": [
        [(COMPARE, "if (t < half && i + half < n) largest[t]")],
        [(SET, "largest[t] = i < n ? input[i] : -INFINITY;")],
        [(SET, "largest[t] = input[min(i, n - 1)];")],  # a neighbour's element once more
    ],
}


def test_an_answer_with_the_old_key_is_understood():
    now = answer("fix-the-unset", *FIXES["fix-the-unset"][0])
    before = {("mended" if key == "kernel" else key): value for key, value in now.items()}
    assert runs.as_text(before) == runs.as_text(now)


def test_infinity_compiles_for_a_gpu_too():
    """The host has the C library's INFINITY; NVRTC includes nothing."""
    text = answer("fix-the-unset", (SET, "largest[t] = i < n ? input[i] : -INFINITY;"))["kernel"]
    cuda.compile_ptx(text, flags=runs.GPU_FLAGS)


@pytest.mark.parametrize(("id", "n"), [(id, n) for id, ways in FIXES.items() for n in range(len(ways))])
def test_other_fixes_are_right(id, n):
    verdict = judged(id, answer(id, *FIXES[id][n]))
    assert verdict.passed, verdict


HIDDEN = {
    "fix-the-index": [
        ([("output[row", "if (col > 0) output[row")], "hides-the-symptom"),
        ([(PLACE, "output[i]")], "index"),
        (
            [
                ("if (i < height * width) {", "if (i == 0) for (int j = 0; j < height * width; ++j) {"),
                ("i / width, col = i % width", "j / width, col = j % width"),
                (PLACE + " = input[i]", "output[row * width + width - 1 - col] = input[j]"),
            ],
            "fewer-threads",
        ),
        ([], "still-outside"),
    ],
    "fix-the-race": [
        ([], "still-races"),
        ([(END_OF_LOOP, END_OF_LOOP + "        __syncwarp();\n")], "still-races"),
        (
            [("left + tile[t] + right;\n", "left + tile[t] + right;\n            __syncthreads();\n")],
            "barrier-in-branch",
        ),
        ([("start < width;", "start < 64 && start < width;")], "hides-the-symptom"),
        (
            [("tile[t - 1]", "input[i - 1]"), ("tile[t + 1]", "input[i + 1]"), ("tile[t] +", "input[i] +")],
            "reads-again",
        ),
        (
            [(END_OF_LOOP, END_OF_LOOP + "        __syncthreads();\n"), ("left + tile[t]", "left - tile[t]")],
            "values",
        ),
        (
            [
                ("tile[64]", "tile[4096]"),
                ("tile[t] = input[i]", "tile[start + t] = input[i]"),
                ("tile[t - 1]", "tile[start + t - 1]"),
                ("tile[t + 1]", "tile[start + t + 1]"),
                ("+ tile[t] +", "+ tile[start + t] +"),
            ],
            "tile-too-small",
        ),
    ],
    "fix-the-unset": [
        ([], "still-unset"),
        ([(SET, "largest[t] = i < n ? input[i] : 0.0f;")], "zero-for-nothing"),
        ([(SET, "largest[t] = i < n ? input[i] : -3.4028234e38f;")], "number-for-nothing"),
        ([(SET, "largest[t] = i < n ? input[i] : -FLT_MAX;")], "does-not-build"),
        ([(SET, "if (i >= n) return;\n    largest[t] = input[i];")], "barrier-in-branch|still-unset"),
        ([(SET, "largest[t] = input[i];")], "reads-outside"),
        (
            [
                ("if (t == 0) output", "if (t == 0 && i + 64 <= n) output"),
                (COMPARE, "if (t < half && i + half < n) largest[t]"),
            ],
            "hides-the-symptom",
        ),
        (
            [
                (
                    "if (t == 0) output[blockIdx.x] = largest[0];",
                    "if (t == 0) { float m = input[i]; for (int j = i; j < n && j < i + 64; ++j) m = "
                    "fmaxf(m, input[j]); output[blockIdx.x] = m; }",
                ),
                (COMPARE, "if (t < half && i + half < n) largest[t]"),
            ],
            "fewer-threads",
        ),
        (
            [("__syncthreads();\n    for", "for"), (COMPARE, "if (t < half && i + half < n) largest[t]")],
            "still-unset|race",
        ),
    ],
}


@pytest.mark.parametrize(("id", "n"), [(id, n) for id, ways in HIDDEN.items() for n in range(len(ways))])
def test_fixes_that_only_hide_the_symptom_are_named(id, n):
    changes, mistake = HIDDEN[id][n]
    verdict = judged(id, answer(id, *changes))
    assert not verdict.passed and verdict.mistake in mistake.split("|"), verdict


@pytest.mark.parametrize("id", RIGHT)
@pytest.mark.parametrize(
    ("diagnosis", "mistake"),
    [
        ({"tool": "synccheck"}, "tool"),
        ({"tool": "gdb"}, "no-tool"),
        ({"line": 2}, "line"),
        ({"cause": "guard"}, "cause"),
        ({"cause": "bad luck"}, "no-cause"),
        ({"tool": ""}, "to-do"),
        ({"line": 0}, "to-do"),
    ],
)
def test_a_wrong_diagnosis_is_refused_before_the_source_is_checked(id, diagnosis, mistake):
    right = FIXES[id][0]
    assert judged(id, answer(id, *right, **diagnosis)).mistake == mistake


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("__global__ void k() {}", "a dict with the keys"),
        ({"tool": "memcheck"}, "a dict with the keys"),
        (answer("fix-the-index", ("reverse_rows_kernel", "mine")), "has no kernel"),
        (answer("fix-the-index", ("if (i <", "system(0); if (i <")), "calls system"),
        (answer("fix-the-index", (PLACE, "outptu[0]")), "outptu"),
        (answer("fix-the-index", tool=["memcheck"]), "are words"),
        (answer("fix-the-index", line="6"), "line is a number"),
    ],
)
def test_an_unusable_answer_is_explained(given, says):
    verdict = judged("fix-the-index", given)
    assert verdict.mistake == "does-not-build" and says in repr(verdict), verdict


def test_unusable_text_from_the_learners_process_is_refused():
    """The grader takes the text from a process that may hand over anything."""
    for text in ("no json\n", json.dumps([1]) + "\n", json.dumps({"tool": "x"})):
        assert judged("fix-the-index", Text(text)).mistake == "does-not-build"


def test_the_starters_contain_the_source_whose_lines_are_shown(tmp_path):
    from workbook.form.starters import starter_text

    for id, source in solution_cells("08_builds").items():
        if id not in RIGHT:
            continue
        text, problems = starter_text(source, id)
        assert not problems
        names: dict = {}
        exec(text, names)
        of = broken.KERNELS[RIGHT[id][0]]
        given = names[exercises.get(id).name]
        assert given["kernel"].strip() == of.text.strip()
        assert not any(given[key] for key in ("tool", "line", "cause"))


def test_the_verdict_says_whether_another_tool_finds_the_bug():
    verdict = judged("fix-the-index", answer("fix-the-index", tool="host"))
    assert verdict.mistake == "tool" and "one of the other four" in repr(verdict)


def test_line_numbers_ignore_a_leading_empty_line():
    import torch

    from helpers.cuda.emulator import EmulatorError

    text = "\n" + broken.KERNELS["reverse_rows"].text
    with pytest.raises(EmulatorError, match="line 6:"):
        runs.launch("reverse_rows", text, torch.rand(3, 5), torch.empty(3, 5), numbers=(3, 5))


def test_the_broken_kernels_fail_only_at_the_lines_that_the_lab_names():
    assert "line 6: writes element 15" in runs.told("reverse_rows", 3, 5)
    assert runs.told("smooth_chunks", 2, 64).startswith("nothing")
    assert "line 10" in runs.told("smooth_chunks", 2, 65)
    assert runs.told("block_maxima", 64).startswith("nothing") and "line 8" in runs.told("block_maxima", 100)


def test_compute_sanitizers_output_becomes_one_line():
    said = """========= COMPUTE-SANITIZER
========= Error: Potential WAR hazard detected at __shared__ 0x0 in block (0,0,0) :
=========     Read Thread (1,0,0) at smooth_chunks_kernel(...)+0x1b0 in program.cu:10
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
    verdict = failures.verdict(said)
    assert verdict.startswith("Error: Potential WAR hazard") and ", line 10 · RACECHECK SUMMARY" in verdict
    assert failures.verdict("========= ERROR SUMMARY: 0 errors") == "ERROR SUMMARY: 0 errors"
    assert failures.verdict("cannot run\n") == "cannot run"


MAIN = """
int main() {{
    float *input, *output;
    cudaMalloc(&input, {n} * sizeof(float));
    cudaMalloc(&output, {n} * sizeof(float));
    cudaMemset(input, 0, {n} * sizeof(float));
    {name}_kernel<<<{grid}, {block}>>>(input, output, {numbers});
    return cudaDeviceSynchronize();
}}
"""


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("id", "tool", "sizes"),
    [
        ("fix-the-index", "memcheck", (3, 5)),
        ("fix-the-race", "racecheck", (2, 200)),
        ("fix-the-unset", "initcheck", (100,)),
    ],
)
def test_compute_sanitizer_names_the_labs_lines(id, tool, sizes):
    """Where the lab's tool is one of its four it names the lab's line; of shared memory that nobody set it
    says nothing.
    """
    of = broken.KERNELS[RIGHT[id][0]]
    n = sizes[0] * (sizes[1] if len(sizes) > 1 else 1)
    main = MAIN.format(
        n=n, name=of.name, grid=of.grid(*sizes), block=of.block, numbers=", ".join(map(str, sizes))
    )
    said = failures.sanitize(of.text + main, tool).message
    if RIGHT[id][1] == "host":
        assert "SUMMARY: 0 errors" in said, said
    else:
        lines = {"fix-the-index": (6,), "fix-the-race": (7, 10, 11, 12)}[id]
        assert any(f"line {line} " in said for line in lines), said


@pytest.mark.gpu
def test_the_solutions_texts_run_on_a_gpu(tmp_path):
    import torch

    names = solution("08_builds", tmp_path)
    x = torch.randn(3, 200, device="cuda")
    out = torch.empty_like(x)
    runs.launch("reverse_rows", names["REVERSE_ROWS"]["kernel"], x, out, numbers=(3, 200), device="cuda")
    assert torch.equal(out, x.flip(1))
    largest = torch.empty(10, device="cuda")
    text = names["BLOCK_MAXIMA"]["kernel"]
    runs.launch("block_maxima", text, x.flatten(), largest, numbers=(600,), device="cuda")
    assert torch.equal(largest[:9], x.flatten()[:576].reshape(9, 64).amax(1))


# ------------------------------------------------------------------------------------- the lesson's exercises
def timed(waited=lambda s: max(e for _, _, e in s) - min(b for _, b, _ in s), per=1000):
    return lambda steps: (waited(steps) / per, sum(e - b for _, b, e in steps) / per)


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (timed(), ""),
        (timed(per=1), "milliseconds"),
        (lambda steps: timed()(steps)[::-1], "exchanged"),
        (timed(lambda s: sum(e - b for _, b, e in s)), "sum-waited"),
        (timed(lambda s: max(e for _, _, e in s)), "from-zero"),
        (timed(lambda s: s[-1][2] - s[0][1]), "times"),
        (lambda steps: timed()(steps)[0], "not-two"),
        (lambda steps: ("9", "9"), "not-a-number"),
    ],
)
def test_build_times(answer, mistake):
    assert judged("build-times", answer).mistake == mistake


def element(block, thread, shape, width):
    return (block[1] * shape[1] + thread[1]) * width + block[0] * shape[0] + thread[0]


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (element, ""),
        (lambda *args: 4 * element(*args), "bytes"),
        (lambda b, t, s, w: element(b[1::-1], t[1::-1], s[::-1], w), "swapped"),
        (lambda b, t, s, w: t[1] * w + t[0], "no-block"),
        (lambda b, t, s, w: element(b, t, s[::-1], w), "exchanged-shape"),
        (lambda *args: element(*args) + 1, "element"),
        (lambda *args: (1, 2), "not-a-number"),
    ],
)
def test_element_of_an_access(answer, mistake):
    assert judged("element-of-an-access", answer).mistake == mistake
