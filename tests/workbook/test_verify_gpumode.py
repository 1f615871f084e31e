"""workbook.verify.formats.gpumode: tasks and submissions of GPU MODE."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from verify_cases import EXAMPLES, exact, own, read_task

from helpers import device
from workbook.usage import UsageError
from workbook.verify import source, speed, verifier
from workbook.verify.arguments import n_bytes
from workbook.verify.formats import gpumode


@pytest.fixture
def task(tmp_path) -> Path:
    """A copy of the GPU MODE example, to be changed."""
    return shutil.copytree(EXAMPLES / "gpumode", tmp_path / "gpumode") / "softmax"


def test_a_submission_gets_the_files_that_it_may_import(task):
    problem, candidate = read_task(task)
    assert candidate.entry == "submission.py::custom_kernel"
    assert set(candidate.sources) == {"submission.py", "task.py", "utils.py"}
    assert problem.may_change == {1}  # the memory for the result
    assert "rtol=0.0001" in problem.tolerance.text


@pytest.mark.skipif(device.has_gpu(), reason="with a GPU, nothing is left out")
def test_large_cases_of_a_task_are_left_out_without_a_gpu(task):
    problem, _ = read_task(task)
    assert [tuple(case.args[0][0].shape) for case in problem.cases(0)] == [(4, 8), (5, 33), (16, 256)]
    assert any("rows=8192" in note for note in problem.notes)


ONLY_IF_SMALL = """
import torch

results = {}

def custom_kernel(data):
    x, output = data
    if x.numel() > 200:
        BODY
    return output.copy_(torch.softmax(x, dim=-1))
"""
LARGE = {
    "an earlier result": ("""
        if (x.data_ptr(), x.shape) not in results:
            results[x.data_ptr(), x.shape] = torch.softmax(x, dim=-1)
        return output.copy_(results[x.data_ptr(), x.shape])
        """, "stale-result"),
    "a sum that ignores what is large": ("""
        return output.copy_(torch.softmax(x.clamp(-1, 1), dim=-1))
        """, "only-some-values"),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_large_cases_are_called_again_and_with_other_values(task, name):
    body, check = LARGE[name]
    (task / "submission.py").write_text(ONLY_IF_SMALL.replace("BODY", body.strip()))
    reference = (task / "reference.py").read_text()
    (task / "reference.py").write_text(reference.replace("return x, torch", "return x.clamp(-1, 1), torch"))
    problem, candidate = read_task(task)
    found = verifier.verify(problem, candidate, verifier.Settings(seed=3, timed=False))
    assert check in [one.check for one in found.findings], found.findings


IN_ADVANCE = """
import torch

known, ready = {}, set()

def custom_kernel(data):
    x, output = data
    key = x.data_ptr(), output.data_ptr(), x.shape
    if key in ready:
        ready.discard(key)
        return output
    known[key] = data
    for other, (inputs, outputs) in known.items():
        if other[2] == x.shape:
            outputs.copy_(torch.softmax(inputs, dim=-1))
            ready.add(other)
    ready.discard(key)
    return output
"""
KNOWN_SEED = """
import torch

generator = torch.Generator("DEVICE").manual_seed(31232)
KNOWN = torch.randn(16, 256, device="DEVICE", generator=generator)
RESULT = torch.softmax(KNOWN, dim=-1)

def custom_kernel(data):
    x, output = data
    if x.shape == KNOWN.shape and torch.equal(x, KNOWN):
        return output.copy_(RESULT)
    return output.copy_(torch.softmax(x, dim=-1))
"""


@pytest.mark.parametrize(
    ("submission", "check"), [(IN_ADVANCE, "stale-result"), (KNOWN_SEED, "skipped-work")]
)
def test_work_that_was_done_in_advance_is_found(task, submission, check):
    where = "cuda" if device.has_gpu() else "cpu"
    (task / "submission.py").write_text(submission.replace("DEVICE", where))
    problem, candidate = read_task(task)
    found = verifier.verify(problem, candidate, verifier.Settings(seed=3, timed=False))
    assert check in [one.check for one in found.findings], found.findings


def test_a_mistake_in_all_cases_counts_each_of_them_once(task):
    (task / "submission.py").write_text(
        "def custom_kernel(data):\n    x, output = data\n    return output.zero_()\n"
    )
    problem, candidate = read_task(task)
    found = verifier.verify(problem, candidate, verifier.Settings(seed=3, timed=False))
    (wrong,) = [one for one in found.findings if one.check == "wrong-result"]
    assert f"Also in {len(found.cases) - 1} other cases." in wrong.evidence


def test_functions_of_the_harness_are_not_replaced(task):
    (task / "submission.py").write_text(
        "import torch\nimport utils\nutils.verbose_allclose = lambda *args, **more: []\n\n"
        "def custom_kernel(data):\n    x, output = data\n    return output.copy_(torch.softmax(x, dim=-1))\n"
    )
    _, candidate = read_task(task)
    (found,) = source.findings(candidate)
    assert found.check == "patched" and "verbose_allclose" in found.says


SUM_TASK = """
import torch

def generate_input(n, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    x = torch.randn(n, device="cuda", generator=generator)
    return x, torch.empty(n, device="cuda"), torch.empty(1, device="cuda")

def ref_kernel(data):
    x, sums, total = data
    sums = x.double().cumsum(0)
    return sums, sums[-1].float()

def check_implementation(data, output):
    return all(torch.allclose(a.double(), b.double(), 1e-4, 1e-4) for a, b in zip(output, ref_kernel(data)))
"""


def of_sums(task, returned):
    """The verdict about a submission that writes into the tensors that it gets for its results."""
    (task / "reference.py").write_text(SUM_TASK)
    head = (task / "task.yml").read_text().partition("tests:")[0]
    (task / "task.yml").write_text(f'{head}tests:\n  - {{"n": 60, "seed": 1}}\n  - {{"n": 300, "seed": 1}}\n')
    (task / "submission.py").write_text(
        "import torch\n\ndef custom_kernel(data):\n    x, sums, total = data\n"
        "    torch.cumsum(x.double(), 0, dtype=torch.float32, out=sums)\n    total.fill_(sums[-1])\n"
        f"    return {returned}\n"
    )
    problem, candidate = read_task(task)
    return problem, verifier.verify(problem, candidate, verifier.Settings(seed=3, timed=False))


def test_a_result_may_be_in_a_given_tensor_of_another_shape_and_dtype(task):
    problem, found = of_sums(task, "sums, total[0]")
    assert problem.unread == {1, 2}
    assert (found.status, found.findings) == (0, ())


def test_a_given_tensor_that_is_returned_must_have_the_right_values(task):
    _, found = of_sums(task, "sums, total[0] * 0 + x.sum() * 1.001")
    assert found.status == 1 and "wrong-result" in [one.check for one in found.findings]


def test_memory_for_results_need_not_be_read(task):
    problem, _ = of_sums(task, "sums, total[0]")
    case = next(iter(problem.cases(0)))
    assert n_bytes(speed.inputs_of(problem, case)) == 60 * 4


SHIFTED = """
made = generate_input

def generate_input(rows, columns, seed):
    x, output = made(rows, columns, seed)
    return x + seed, output
"""


def test_seeds_are_as_large_as_those_of_tasks(task):
    (task / "reference.py").write_text((task / "reference.py").read_text() + SHIFTED)
    problem, _ = read_task(task)
    means = [float(case.args[0][0].mean()) for seed in range(20) for case in problem.cases(seed)]
    assert 1000 < max(means) < 100_010


def test_a_root_is_no_decomposition(task):
    reference = (task / "reference.py").read_text().replace("torch.softmax(", "torch.softmax(1e-4 * ")
    (task / "reference.py").write_text(reference.replace("dim=-1)", "dim=-1).sqrt()"))
    (task / "submission.py").write_text(
        "import torch\n\ndef custom_kernel(data):\n    x, output = data\n"
        "    return output.fill_(x.shape[1] ** -0.5)\n"
    )
    problem, candidate = read_task(task)
    found = verifier.verify(problem, candidate, verifier.Settings(seed=3, timed=False))
    assert found.tolerance_accepts and found.status == 1


EIGEN_TASK = """
import torch

def generate_input(n, seed):
    x = torch.randn(n, n, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
    return x + x.T

def ref_kernel(data):
    return torch.linalg.eigh(data).eigenvectors

def check_implementation(data, output):
    values = output.mT @ data @ output
    return torch.allclose(values, values.diagonal().diag(), 1e-3, 1e-3)
"""


@pytest.mark.parametrize(("factor", "status"), [("-1", 3), ("1", 0), ("2", 1)])
def test_results_that_the_reference_does_not_determine_are_not_judged(task, factor, status):
    (task / "reference.py").write_text(
        EIGEN_TASK.replace("return torch.allclose", "return output.norm() < 3 and torch.allclose")
    )
    head = (task / "task.yml").read_text().partition("tests:")[0]
    (task / "task.yml").write_text(f'{head}tests:\n  - {{"n": 8, "seed": 1}}\n')
    (task / "submission.py").write_text(
        f"import torch\n\ndef custom_kernel(x):\n    return {factor} * torch.linalg.eigh(x).eigenvectors\n"
    )
    problem, candidate = read_task(task)
    found = verifier.verify(problem, candidate, verifier.Settings(seed=3, timed=False))
    assert found.status == status, found.findings
    assert ("eigh" in found.blocked) == (status == 3)


TUPLE_TASK = '''
import torch

def generate_input(n, seed, case="normal"):
    """A matrix and a number in a dict."""
    return {"a": torch.randn(n, n, device="cuda") * (3 if case == "wide" else 1), "k": 2}

def ref_kernel(data):
    from helper import doubled
    return doubled(data["a"]).max(dim=-1)

def check_implementation(data, output):
    values, indices = output
    return "" if torch.equal(values, 2 * data["a"].amax(-1)) else "wrong"
'''


def test_a_task_may_have_dicts_tuples_late_imports_and_old_checks(task):
    (task / "reference.py").write_text(TUPLE_TASK)
    (task / "helper.py").write_text("def doubled(x):\n    return x + x\n")
    text = (
        (task / "task.yml")
        .read_text()
        .replace(
            '{"name": "utils.py", "source": "../utils.py"}', '{"name": "helper.py", "source": "helper.py"}'
        )
    )
    before, _ = text.split("tests:")
    (task / "task.yml").write_text(
        f'{before}tests:\n  - {{"n": 6, "seed": 1}}\n  - {{"n": 6, "case": "wide"}}\n'
    )
    problem, _ = read_task(task)
    for case in problem.cases(0):
        values, indices = own(problem, case)
        assert problem.tolerance.accepts((values, indices), (values, indices), case)
        assert not problem.tolerance.accepts((values + 1, indices), (values, indices), case)
        assert exact(problem, case)[0].dtype == torch.float64
    assert problem.may_change == frozenset()


def test_a_task_may_work_in_place(task):
    replaced("    return output\n", "")(task / "reference.py")
    problem, _ = read_task(task)
    assert problem.may_change == {1} and problem.tolerance is None
    case = next(iter(problem.cases(0)))
    assert problem.reference(*case.args) is None
    assert torch.equal(case.args[0][1], torch.softmax(case.args[0][0], -1))


def test_modules_of_a_task_do_not_stay_importable(task):
    read_task(task)
    with pytest.raises(ModuleNotFoundError):
        import reference  # noqa: F401


def replaced(old: str, new: str):
    return lambda path: path.write_text(path.read_text().replace(old, new))


WRONG_TASKS = [
    ("task.yml", replaced('lang: "py"', 'lang: "cu"'), "lang"),
    ("task.yml", replaced("files:", "files: ["), "isn't YAML"),
    ("task.yml", replaced('"rows": 5', '"world_size": 8'), "several GPUs"),
    ("task.yml", replaced('"columns"', '"width"'), "generate_input(rows=4, width=8"),
    ("task.yml", Path.unlink, "task.yml can't be read"),
    ("task.yml", replaced('{"name": "reference.py"', '{"name": "other.py"'), "no reference.py"),
    ("../utils.py", Path.unlink, "utils.py from ../utils.py, which is missing"),
    ("reference.py", replaced("def ref_kernel", "def kernel"), "can't be imported here"),
    ("reference.py", replaced("return output\n", "return 1 / 0\n"), "ref_kernel of softmax fails"),
    (
        "reference.py",
        replaced("return x, torch.empty_like(x)", "return x, torch.nn.ReLU()"),
        "returns a ReLU",
    ),
    ("submission.py", Path.unlink, "submission.py can't be read"),
]


@pytest.mark.parametrize(("file", "spoil", "says"), WRONG_TASKS)
def test_a_malformed_task_is_one_sentence(task, file, spoil, says):
    spoil(task / file)
    with pytest.raises(UsageError) as caught:
        read_task(task)
    message = str(caught.value)
    assert says in message and "\n" not in message and message.endswith(".")


def test_a_file_is_also_found_in_the_folder_above(task):
    replaced("../utils.py", "../../common/utils.py")(task / "task.yml")
    read_task(task)


def test_a_cuda_submission_is_refused(task):
    with pytest.raises(UsageError, match="load_inline"):
        gpumode.read(task, task / "submission.cu")


def test_a_submission_that_imports_the_reference_is_noted(task):
    text = (task / "submission.py").read_text()
    (task / "submission.py").write_text("from reference import ref_kernel\n" + text)
    assert any("imports reference.py" in note for note in read_task(task)[0].notes)
