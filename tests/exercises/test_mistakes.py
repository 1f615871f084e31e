"""Tables of mistakes: which row is reported, with which sentence, and that no sentence is without its row."""

from __future__ import annotations

import re
import string

import pytest
import torch

from helpers import exercises
from helpers.exercises import diagnose, mistakes
from helpers.exercises.evidence import Evidence
from helpers.exercises.factories import answer_exercise
from helpers.exercises.mistakes import Table, TableJudge, always
from helpers.exercises.model import Case, Outcome

LAB, ID = "05_ncu", "blocks-of-a-row"
SENTENCES = {
    "none": ["it returned {got}", "There are {n} elements."],
    "blocks/down": ["{got} blocks are too few", "Round {n} / {block} up."],
    "blocks/other": ["it is {got}", "Divide {n} by {block}."],
    "raises": ["{got.error_type}", "Don't divide by {block}."],
}
CONDITIONS = {
    "none": lambda s: s.got is None,
    "blocks/down": lambda s: s.got == s.n // s.block,
    "blocks/other": lambda s: s.got + 1 != s.want and s.got != s.want,
}


DIVIDED = Outcome(error="x", error_type="ZeroDivisionError")


@pytest.fixture
def table(monkeypatch) -> Table:
    monkeypatch.setattr(mistakes, "sentences", lambda lab, exercise: SENTENCES)
    return Table(ID, LAB, CONDITIONS, raises={"raises": lambda s: s.got.error_type == "ZeroDivisionError"})


@pytest.mark.parametrize(
    ("outcome", "mistake", "sentence", "hint"),
    [
        (Outcome(None), "none", "it returned None", "There are 10 elements."),
        (Outcome(2), "blocks", "2 blocks are too few", "Round 10 / 4 up."),
        (Outcome(40), "blocks", "it is 40", "Divide 10 by 4."),
        (DIVIDED, "raises", "ZeroDivisionError", "Don't divide by 4."),
    ],
)
def test_the_first_condition_that_holds_names_the_mistake(table, outcome, mistake, sentence, hint):
    judge = TableJudge(table, "blocks", lambda n, block: {})
    verdict = judge(Case("10 elements", (10, 4), expected=3), outcome)
    assert (verdict.mistake, verdict.hint) == (mistake, hint)
    assert verdict.sentence == f"{ID}, 10 elements: {sentence}."


def test_a_right_answer_and_one_that_makes_every_condition_fail_match_no_row(table):
    judge = TableJudge(table, "blocks", lambda n, block: {})
    for answer in (3, "three"):
        assert judge(Case("10 elements", (10, 4), expected=3), Outcome(answer)) is None


def test_a_table_and_its_sentences_have_the_same_keys():
    with pytest.raises(ValueError, match=r"without a sentence.*invented"):
        Table("sectors-of-a-run", LAB, {"invented": always})
    with pytest.raises(ValueError, match=r"without a condition.*no-bytes"):
        answer_exercise("sectors-of-a-run", LAB, "", "f", lambda rng: (), mistakes={"sectors": always})


def test_every_hint_is_a_sentence_and_its_braces_hold_names():
    for id in exercises.all_ids():
        for key, texts in mistakes.sentences(exercises.get(id).lab, id).items():
            *what, hint = [texts] if isinstance(texts, str) else texts
            assert key == "what" or hint.endswith((".", "?", "}")), (id, key)
            fields = [
                field for text in (*what, hint) for _, field, _, _ in string.Formatter().parse(text) if field
            ]
            assert all(re.match(r"[a-z_]+(\.|\[|$)", field) for field in fields), (id, key, fields)


@pytest.mark.parametrize("inner", [2, 16, 64])
def test_a_wrong_product_is_diagnosed_whatever_its_shapes(inner):
    """A square result may come from inputs that aren't square."""
    a, b = torch.rand(8, inner), torch.rand(inner, 8)
    right = (a @ b).double()
    seen = Evidence(
        case=Case("a product", (a, b)),
        kind="extra",
        args=(a, b),
        before=(),
        got=right.float() / 3,
        expected=right,
        wrong=torch.ones(8, 8, dtype=torch.bool),
        facts={},
        reference=lambda args: args[0].double() @ args[1].double(),
    )
    assert diagnose.of_values(seen, Table(ID, LAB, {}))[0] == "wrong-values"
