"""How the examiner has calls made: objects that stay with it, texts, cases that claim to have no room; and
the seeds.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
import torch
from commands import ROOT

from helpers import check, exercises
from helpers.exercises.lab03.kernels import KERNELS
from helpers.exercises.model import Case, Exercise, Outcome
from helpers.exercises.proxies import KernelProxy, Proxy
from workbook.grade import seeds
from workbook.grade.calls import Calls, Unusable, _Desk
from workbook.grade.stand_ins import Link
from workbook.grade.stubs import as_told, stubs_of, without_answers
from workbook.usage import UsageError


def carried(value):
    """As it comes out at the other end of the pipe."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def shown(*values: object) -> list:
    """What a learner's process has of these objects."""
    desk = _Desk()
    link = Link(lambda message: carried(desk.answer(carried(message))))
    return link.decoded(carried(desk.encoded(list(values))))


# ------------------------------------------------------------------------------------------------ objects


def test_methods_are_called_there_and_results_may_be_objects_too():
    made = Proxy({"value": lambda: 3}, of="hidden")
    (found,) = shown(Proxy({"make": lambda: made, "of": lambda one: one.of, "add": lambda a, b: a + b}))
    assert found.add(1, 2) == 3 and found.make().value() == 3 and found.of(found.make()) == "hidden"
    assert not any("hidden" in str(value) for value in vars(found).values())


def test_what_a_method_raises_is_raised():
    class Odd(RuntimeError):
        pass

    def fails(kind):
        raise {"value": ValueError, "odd": Odd}[kind]("why")

    (found,) = shown(Proxy({"fails": fails}))
    with pytest.raises(ValueError, match="why"):
        found.fails("value")
    with pytest.raises(RuntimeError, match="why") as caught:
        found.fails("odd")
    assert type(caught.value).__name__ == "Odd"


@pytest.mark.parametrize(
    "message",
    [
        None, {}, {"object": 5, "method": "a", "args": []}, {"object": -1, "method": "a", "args": []},
        {"object": 0, "method": "other", "args": []}, {"object": 0, "method": "a", "args": [{"@shown": 9}]},
        {"object": 0, "method": "a", "args": [{"x": 1}]}, {"object": True, "method": "a", "args": []},
    ],
)  # fmt: skip
def test_any_message_is_answered_with_an_error(message):
    desk = _Desk()
    desk.encoded(Proxy({"a": lambda: 1}))
    assert set(desk.answer(message)) == {"error_type", "error"}


@pytest.mark.parametrize("name", KERNELS)
def test_a_hidden_kernel_seems_the_same_from_the_other_side(name):
    """Values, shapes, strides, changed inputs, shared memory, and what it does in poisoned memory."""

    def seen(kernel):
        generator = torch.Generator().manual_seed(3)
        found = []
        for shape in ((3, 40), (3, 40), (2, 1500), (0, 5)):
            whole = torch.randn(shape[0], shape[1] + 9, generator=generator)
            for x in (whole[:, :-9].clone(), whole[:, 3:-6]):
                for poison in (False, True):
                    try:
                        with check.poisoned() if poison else torch.no_grad():
                            y = kernel(x)
                    except (ValueError, RuntimeError) as error:
                        found.append(type(error).__name__)
                        continue
                    # Of memory that is not written there is nothing to compare.
                    same = y.data_ptr() == x.data_ptr()
                    written = y if poison else y.nan_to_num()
                    found.append((tuple(y.shape), y.stride(), same, written.clone(), x.clone(), y))
        shared = [
            a[-1].data_ptr() == b[-1].data_ptr()
            for a in found
            for b in found
            if a is not b and len(a) == len(b) == 6 and a[-1].numel() and b[-1].numel()
        ]
        return found, shared

    (there,) = shown(KernelProxy(KERNELS[name].make()))
    (one, shared_one), (two, shared_two) = seen(KERNELS[name].make()), seen(there)
    assert shared_one == shared_two
    for a, b in zip(one, two, strict=True):
        if isinstance(a, str):
            assert a == b
            continue
        assert a[:3] == b[:3]
        if name != "lucky-memory":  # which is the right answer or not, as its memory was
            assert torch.equal(a[3].nan_to_num(7), b[3].nan_to_num(7))
        assert torch.equal(a[4], b[4])


# ------------------------------------------------------------------------------------------------ what is
# told


def test_of_an_exercise_a_learners_process_is_told_nothing_that_judges():
    for lab in exercises.LABS:
        for description in stubs_of(exercises.of_lab(lab)):
            made = as_told([carried(description)], "")[description["id"]]
            with pytest.raises(RuntimeError, match="graded in another process"):
                made.cases(None, "cpu")
            assert made.speed is None and made.served == {}
            for path in [*description["adapters"].values(), description["text"]]:
                module = path.partition(":")[0].split(".") if path else []
                assert len(module) < 4 or module[3] in exercises.ADAPTERS[module[2]], path


def test_what_a_learners_process_has_imports_where_answers_cannot_be_read():
    """In a process in which the other modules of the labs' packages are not there."""
    code = """
import sys
from helpers import exercises
visible = {f"helpers.exercises.{package}.{name}" for package,
    names in exercises.ADAPTERS.items() for name in names}
class Hidden:
    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if len(parts) > 3 and parts[:2] == ["helpers", "exercises"] and name not in visible:
            raise ImportError(name)
sys.meta_path.insert(0, Hidden())
import importlib
for name in sorted(visible):
    importlib.import_module(name)
try:
    exercises.of_lab("05_ncu")
except ImportError:
    print("hidden")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "hidden\n", ran.stderr[-1500:]


def test_records_that_answer_an_exercise_are_kept_back_and_no_others():
    top = ROOT / "helpers"
    readable = without_answers()
    for record in (top / "records").rglob("*.json"):
        kept_back = record.relative_to(top / "records").as_posix() in exercises.KEPT_BACK
        assert kept_back != any(path == record or path in record.parents for path in readable), record
    assert all((top / "records" / name).is_file() for name in exercises.KEPT_BACK)


def test_an_adapter_that_cannot_be_found_by_its_name_is_a_sentence():
    exercise = Exercise(
        "a", "90_mini", "A", "f", lambda rng, on: iter(()), lambda *_: None, adapters={"x": lambda f: f}
    )
    with pytest.raises(ValueError, match="module"):
        stubs_of([exercise])


# ------------------------------------------------------------------------------------------------ texts and
# room


def text_exercise() -> Exercise:
    return Exercise("a", "90_mini", "A", "f", lambda rng, on: iter(()), lambda *_: None, text=str)


def never():
    raise AssertionError("no clean process is wanted")


@pytest.mark.parametrize("reply", [{"outcome": None}, {}, {"text": 3, "outcome": {}}, {"text": "x" * 10**7}])
def test_what_is_no_text_is_not_judged(reply):
    with pytest.raises(Unusable):
        Calls(text_exercise(), lambda message, answer=None: reply, never)(Case("a case"))


def test_an_outcome_instead_of_a_text_counts_only_as_an_error():
    def fields(**given):
        outcome = Outcome(**given)
        return {"outcome": {name: getattr(outcome, name) for name in outcome.__dataclass_fields__}}

    with pytest.raises(Unusable, match="no text"):
        Calls(text_exercise(), lambda message, answer=None: fields(value=1), never)(Case("a case"))
    replies = fields(value=1, error="BuildError: it is none", error_type="BuildError", facts={"skipped": "x"})
    outcome = Calls(text_exercise(), lambda message, answer=None: replies, never)(Case("a case"))
    assert (outcome.value, outcome.error, outcome.facts) == (None, "BuildError: it is none", {})


# ------------------------------------------------------------------------------------------------ seeds


def test_each_notebook_has_a_seed_of_its_own_and_the_class_repeats():
    one = seeds.of_notebook(7, "ada", "digest")
    assert one == seeds.of_notebook(7, "ada", "digest") and 1 << 64 < one < 1 << 128
    others = {
        seeds.of_notebook(*given) for given in ((8, "ada", "digest"), (7, "ad", "adigest"), (7, "ada", "d"))
    }
    assert len(others | {one}) == 4
    assert len({seeds.fresh().bit_length() > 90 for _ in range(20)}) == 1


def test_a_seed_is_read_from_a_file_as_it_is_said(monkeypatch, tmp_path):
    large = seeds.of_notebook(7, "ada", "digest")
    assert seeds.said(large).startswith("0x")
    file = tmp_path / "seed"
    for text in (seeds.said(large), f"{large}\nmore", json.dumps({"format": 1, "seed": large})):
        file.write_text(text)
        assert seeds.given(str(file)) == large
    monkeypatch.setattr(sys, "stdin", io.StringIO("0x1f\n"))
    assert seeds.given("-") == 31
    for text in ("x", "-3", "", str(1 << 128), "1.5", "{", '{"seed": true}', "[" * 10**5):
        file.write_text(text)
        with pytest.raises(UsageError, match="has no seed"):
            seeds.given(str(file))


def test_a_seed_that_others_can_read_is_refused(tmp_path):
    for text in ("7", "0x1f", "-3"):
        with pytest.raises(UsageError, match="can read a seed on the command line"):
            seeds.given(text)
    with pytest.raises(UsageError, match="cannot be read"):
        seeds.given(str(tmp_path / "none"))
