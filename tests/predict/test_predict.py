"""Questions before their answers: what is parsed, stored, shown and counted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types

import nbformat
import numpy as np
import pytest
import torch
from anywidget import _util

from helpers import predict, progress
from helpers.predict import answers, session, views
from helpers.predict.questions import InvalidQuestion, Question, number_words, read_number
from workbook import batch

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def live(monkeypatch, tmp_path):
    """A kernel with anywidget and no questions yet, and an empty progress folder; mistakes raise no error."""
    monkeypatch.setenv("WORKBOOK_PROGRESS", str(tmp_path / "progress"))
    monkeypatch.delenv("WORKBOOK_WIDGETS", raising=False)
    monkeypatch.delenv("WORKBOOK_STRICT", raising=False)
    monkeypatch.setattr(session, "_asked", {})
    return tmp_path


@pytest.fixture
def shown(monkeypatch):
    """The outputs so far, in order; an output that is replaced appears again in its new form."""
    seen = []

    class Display:
        update = staticmethod(seen.append)

    def show(output):
        seen.append(output)
        return Display()

    monkeypatch.setattr(session, "_show", show)
    return seen


def field(key: str):
    """The live field of a question."""
    return session._asked[key].field


def answer(key: str, *typed: str) -> str:
    """Type into the inputs of a question, or choose one of its choices; the status line after that."""
    field(key).receive({"typed": list(typed)})
    return field(key).status


def restart(monkeypatch) -> None:
    """Forget what a kernel's end forgets."""
    monkeypatch.setattr(session, "_asked", {})


# ------------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(4, "4"), (1823, "1,823"), (32.0, "32"), (266.43, "266"), (4251.7, "4,250"), (66.666, "66.7"),
        (0.01234, "0.0123"),
     (9.996, "10"), (999.6, "1,000"), (0, "0"), (-2.5, "-2.5"), (1.5e-7, "1.5e-07"), (123456.7, "123,000")],
)  # fmt: skip
def test_numbers_as_they_are_shown(value, text):
    assert number_words(value) == text


@pytest.mark.parametrize(
    ("typed", "unit", "value"),
    [("8", "", 8), (" 8 sectors ", "sectors", 8), ("1 sector", "sectors", 1), ("1,823", "", 1823),
        ("12 672", "", 12672),
     ("0,5", "", 0.5), ("1e6", "", 1_000_000), ("66.7%", "%", 66.7), ("3.1x", "×", 3.1), ("−2", "", -2),
     ("800 MB", "MB", 800), ("", "", None), ("many", "", None), ("nan", "", None), ("inf", "", None),
         ("1e999", "", None)],
)  # fmt: skip
def test_numbers_as_they_are_typed(typed, unit, value):
    assert read_number(typed, unit) == value


def test_one_is_singular_and_symbols_stay():
    assert Question("a", "?", unit="sectors").words(1) == "1 sector"
    assert Question("a", "?", unit="launches").words(1) == "1 launch"
    assert Question("a", "?", unit="GB/s").words(1) == "1 GB/s"
    assert Question("a", "?", unit="µs").words((1, 2)) == "1 to 2 µs"


# ------------------------------------------------------------------------------------------------ in
# JupyterLab


def test_a_number_is_saved_and_shown_next_to_the_answer(live, shown):
    predict.ask("sectors", "How many sectors?", unit="sectors")
    answer("sectors", "8")
    assert "saved: 8 sectors" in field("sectors").status
    predict.reveal("sectors", 4)
    assert shown[-1].text == "You said 8 sectors; it is 4 sectors."
    assert "You said <b>8 sectors</b>; it is <b>4 sectors</b>" in shown[-1].html
    assert shown[-1].field is None and shown[0].field is not None


@pytest.mark.parametrize("value", [4, 4.0, np.int64(4), np.float32(4), torch.tensor(4), torch.tensor([4.0])])
def test_numbers_of_all_kinds_are_right(live, shown, value):
    predict.ask("sectors", "How many?")
    answer("sectors", "4")
    predict.reveal("sectors", value)
    assert shown[-1].text == "You said 4; it is 4: ✓ right."


def test_choices(live, shown):
    predict.ask("which", "Which <b>?", choices=["m[0, 1]", "<script>"])
    assert "nothing is chosen" in answer("which") and "nothing is chosen" in answer("which", "neither")
    answer("which", "<script>")
    predict.reveal("which", "<script>")
    assert shown[-1].text == "You said <script>; it is <script>: ✓ right."
    for one in shown:
        assert "<script>" not in one.html and "Which &lt;b&gt;?" in one.html


def test_a_range_contains_the_truth_or_not(live, shown):
    predict.ask("share", "What share?", unit="%", measured=True)
    assert "both ends" in answer("share", "80", "") and answers.read("share") is None
    assert "saved: 60 to 80 %" in answer("share", "80", "60 %")
    predict.reveal("share", 66.66)
    assert shown[-1].text == "You said 60 to 80 %; it is 66.7 %: ✓ inside the range."
    predict.reveal("share", 99.0)
    assert shown[-1].text == "You said 60 to 80 %; it is 99 %: outside the range."


def test_invalid_numbers_are_reported_and_not_saved(live, shown):
    predict.ask("sectors", "How many?")
    assert "“<many>” is not a number" in answer("sectors", "<many>") and answers.read("sectors") is None
    assert "saved: 5" in answer("sectors", "5")
    assert "field is empty. Your last answer is still: 5." in answer("sectors", "")
    assert answers.read("sectors").answer == 5


def test_an_answer_survives_a_restart_and_may_change_until_it_is_revealed(live, shown, monkeypatch):
    for text in ("8", "16"):
        predict.ask("sectors", "How many?", unit="sectors")
        answer("sectors", text)
        restart(monkeypatch)
    predict.ask("sectors", "How many?", unit="sectors")
    assert field("sectors").typed == ["16"] and "saved: 16 sectors" in field("sectors").status
    predict.reveal("sectors", 4)
    assert "before you saw the answer" in field("sectors").status and field("sectors").entry["revealed"]
    kept = json.loads((live / "progress" / "predictions.json").read_text())["sectors"]
    assert (kept["answer"], kept["truth"]) == (16, 4)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", kept["revealed"])
    restart(monkeypatch)
    predict.ask("sectors", "How many?", unit="sectors")
    assert field("sectors").entry["revealed"] and "You said 16 sectors" in answer("sectors", "4")
    assert answers.read("sectors").answer == 16  # the first one counts
    predict.reveal("sectors", 5)
    assert answers.read("sectors").truth == 4


def test_a_range_and_a_choice_survive_a_restart(live, shown, monkeypatch):
    for _ in range(2):
        predict.ask("share", "What share?", unit="%", measured=True)
        predict.ask("which", "Which?", choices=["a", "b"])
        if answers.read("share") is None:
            answer("share", "60", "80.5")
            answer("which", "b")
            restart(monkeypatch)
    assert field("share").typed == ["60", "80.5"] and field("which").typed == ["b"]


def test_running_all_cells_folds_the_answer_until_the_learner_answers(live, shown):
    predict.ask("sectors", "How many?", unit="sectors")
    predict.reveal("sectors", 4, because="Two rows.")
    folded = shown[-1].html
    assert "You haven't answered yet." in folded and "<details>" in folded
    assert folded.index("<details>") < folded.index("4 sectors") < folded.index("Two rows.")
    assert not (live / "progress").exists()
    predict.ask("sectors", "How many?", unit="sectors")  # the cell is run again
    answer("sectors", "many")
    assert shown[-1].field is not None  # the answer below is still folded
    assert "before you saw the answer" in answer("sectors", "8")
    assert shown[-1].text == "You said 8 sectors; it is 4 sectors.\n\nTwo rows."
    assert "<details>" not in shown[-1].html and "Two rows." in shown[-1].html
    n_shown = len(shown)
    answer("sectors", "4")  # read off below
    assert answers.read("sectors").answer == 8 and len(shown) == n_shown


def test_an_explanation_has_paragraphs_and_code_and_nothing_else(live, shown):
    predict.ask("sectors", "How many does `load` need?")
    answer("sectors", "4")
    because = """
        A row is `16 * 4` bytes <b>wide</b>,
        so it takes two.

        If you said 2, you counted *one* row.
        """
    predict.reveal("sectors", 4, because=because)
    assert "does <code>load</code> need?" in shown[0].html
    explained = shown[-1].html
    assert "<code>16 * 4</code> bytes &lt;b&gt;wide&lt;/b&gt;" in explained
    assert explained.count("<p ") == 2 and "*one*" in explained
    assert shown[-1].text.endswith("so it takes two.\n\nIf you said 2, you counted *one* row.")


@pytest.mark.parametrize("revealed", [False, True])
def test_a_new_runtime_gets_the_answer_back_from_the_browser(live, shown, monkeypatch, revealed):
    predict.ask("share", "What share?", unit="%", measured=True)
    answer("share", "60", "80")
    if revealed:
        predict.reveal("share", 70.0)
    kept = json.loads(json.dumps(field("share").entry))  # what the browser stores
    (live / "progress" / "predictions.json").unlink()
    restart(monkeypatch)
    predict.ask("share", "What share?", unit="%", measured=True)
    predict.reveal("share", 90.0)  # as Run All does, before the browser has sent anything
    assert "haven't answered" in shown[-1].html
    field("share").receive({"kept": kept})
    assert shown[-1].text == "You said 60 to 80 %; it is 90 %: outside the range."
    assert field("share").typed == ["60", "80"] and field("share").entry["revealed"]
    assert answers.read("share").truth == (70.0 if revealed else 90.0)


def test_what_the_browser_kept_neither_replaces_an_answer_nor_answers_another_question(
    live, shown, monkeypatch
):
    predict.ask("sectors", "How many?")
    answer("sectors", "8")
    kept = dict(field("sectors").entry)
    answer("sectors", "9")
    field("sectors").receive({"kept": kept})
    assert answers.read("sectors").answer == 9
    restart(monkeypatch)
    predict.ask("sectors", "How many lines?")
    for broken in (kept, None, [], {"answer": 3}, "8"):
        field("sectors").receive({"kept": broken})
        assert field("sectors").entry == {} and field("sectors").status == ""


def test_another_question_with_an_old_key_starts_again(live, shown, monkeypatch):
    predict.ask("sectors", "How many?")
    answer("sectors", "8")
    predict.reveal("sectors", 4)
    restart(monkeypatch)
    predict.ask("sectors", "How many of 32 bytes?")
    assert field("sectors").typed == [""] and field("sectors").entry == {}
    answer("sectors", "5")
    assert answers.read("sectors").answer == 5


def test_revealing_without_asking_after_a_restart(live, shown, monkeypatch):
    predict.ask("sectors", "How many?", unit="sectors")
    answer("sectors", "8")
    restart(monkeypatch)
    predict.reveal("sectors", 4)
    assert shown[-1].text == "You said 8 sectors; it is 4 sectors."
    predict.reveal("never-asked", 7)
    assert shown[-1].text == "It is 7." and "was not run" in shown[-1].html and "<details>" in shown[-1].html


def test_an_unwritable_disk_is_reported_in_the_field(live, shown, monkeypatch):
    (live / "file").write_text("")
    monkeypatch.setenv("WORKBOOK_PROGRESS", str(live / "file" / "below"))
    predict.ask("sectors", "How many?")
    answer("sectors", "8")
    assert "not saved" in field("sectors").status
    predict.reveal("sectors", 4)
    assert shown[-1].text == "It is 4."
    predict.review()


@pytest.mark.parametrize(
    "broken",
    ["", "[]", '{"sectors": 3}', '{"sectors": {"answer": 8}}', "[" * 100_000,
     '{"sectors": {"question": "How many?", "choices": null, "unit": "", "measured": false, "guess": false, '
     '"answer": "x"}}'],
)  # fmt: skip
def test_a_broken_file_does_no_harm(live, shown, broken):
    (live / "progress").mkdir()
    (live / "progress" / "predictions.json").write_text(broken)
    predict.ask("sectors", "How many?")
    answer("sectors", "8")
    predict.reveal("sectors", 4)
    assert shown[-1].text == "You said 8; it is 4."


# ------------------------------------------------------------------------------------------------ the review


def test_the_review_counts(live, shown):
    predict.review()
    assert shown[-1].text.startswith("No question has been asked")
    predict.ask("empty", "Question empty?")
    predict.review()
    assert shown[-1].text.startswith("You haven't answered any question yet")
    for key, kind, said, is_now in [
        ("one", {}, "4", 4),
        ("two", {}, "5", 4),
        ("three", {"guess": True}, "4", 4),
        ("share", {"measured": True}, "1 2", 1.5),
        ("time", {"measured": True}, "1 2", 2.5),
        ("none", {}, "", 4),
        ("which", {"choices": ["a", "b"]}, "a", "a"),
    ]:
        predict.ask(key, f"Question {key}?", **kind)
        answer(key, *said.split())
        predict.reveal(key, is_now)
    predict.ask("open", "Question open?")
    answer("open", "3")
    predict.review()
    says = shown[-1].text.splitlines()
    assert says[:2] == [
        "Answered: 7 of 9 questions.",
        "Right: 2 of 3 answers that you could work out.",
    ]
    assert says[2].startswith("Ranges that contained the measured value: 1 of 2.")
    assert "Question three? (a guess)" in shown[-1].text and "not revealed yet" in shown[-1].text
    assert shown[-1].html.count("<tr>") == 10


# ------------------------------------------------------------------------------------------------ what is
# wrong


WRONG = [
    (lambda: predict.ask("Sectors 1", "How many?"), "not made of words"),
    (lambda: predict.ask("a", " "), "no text"),
    (lambda: predict.ask("a", "Which?", choices=["x"]), "at least two choices"),
    (lambda: predict.ask("a", "Which?", choices=["x", "x"]), "at least two choices"),
    (lambda: predict.ask("a", "Which?", choices=["x", "y"], unit="ms"), "neither a unit nor a range"),
    (lambda: (predict.ask("a", "1?"), predict.ask("a", "2?")), "the key of two questions"),
    (lambda: (predict.ask("a", "1?"), predict.reveal("a", "much")), "is not a number"),
    (lambda: (predict.ask("a", "1?"), predict.reveal("a", float("nan"))), "is not a number"),
    (lambda: (predict.ask("a", "1?"), predict.reveal("a", None)), "is not a number"),
    (lambda: (predict.ask("a", "1?"), predict.reveal("a", torch.ones(2))), "more than one number"),
    (lambda: (predict.ask("a", "?", choices=["x", "y"]), predict.reveal("a", "z")), "'z'"),
    (lambda: (predict.ask("a", "1?"), predict.reveal("a", 1, because=2)), "explanation is not text"),
]


@pytest.mark.parametrize(("what", "told"), WRONG)
@pytest.mark.parametrize("widgets", ["plain", "widgets"])
def test_an_authors_mistake_is_shown_and_raises_in_tests(live, shown, monkeypatch, what, told, widgets):
    monkeypatch.setenv("WORKBOOK_WIDGETS", widgets)
    what()
    assert told in shown[-1].text
    monkeypatch.setenv("WORKBOOK_STRICT", "1")
    restart(monkeypatch)
    with pytest.raises(InvalidQuestion, match=re.escape(told)):
        what()


def test_an_answer_without_its_question_raises_in_tests(live, shown, monkeypatch):
    monkeypatch.setenv("WORKBOOK_STRICT", "1")
    with pytest.raises(InvalidQuestion, match="never-asked"):
        predict.reveal("never-asked", 7)


# ------------------------------------------------------------------------------------------------ batches and
# pages


CELLS = """
from helpers import predict
###
predict.ask("sectors", "How many sectors?", unit="sectors")
###
predict.reveal("sectors", 4)
###
predict.ask("which", "Which?", choices=["a", "b"])
###
predict.reveal("which", "b")
###
predict.review()
"""


def test_a_batch_neither_reads_nor_writes_saved_answers(make_notebook, live):
    path = make_notebook("asked", *CELLS.strip().split("\n###\n"))
    answer = answers.StoredAnswer(Question("sectors", "How many sectors?", unit="sectors"), 8)
    progress.update("predictions", "sectors", lambda entry: answers.entry_of(answer))
    before = (live / "progress" / "predictions.json").read_bytes()
    report = batch.run_course([path], live / "out")
    assert report.ok, repr(report)
    assert (live / "progress" / "predictions.json").read_bytes() == before
    outputs = [cell.outputs for cell in nbformat.read(live / "out" / "asked.ipynb", as_version=4).cells]
    html = [one[0].data["text/html"] for one in outputs[1:]]
    assert "8" not in html[0].replace("size=", "").replace('"8"', "") and "You said" not in "".join(html)
    assert "<input" in html[0] and "<details>" in html[1] and "How many sectors?" in html[1]
    assert all(WIDGET not in one[0].data for one in outputs[1:])
    page = (live / "out" / "asked.html").read_text()
    assert "<summary" in page and "4 sectors" in page


def test_in_colab_the_field_names_colabs_widget_manager(live, monkeypatch):
    enabled = []
    output = types.ModuleType("google.colab.output")
    output.enable_custom_widget_manager = lambda: enabled.append(True)
    output._widgets = types.SimpleNamespace(_installed_url="https://example.org/manager")
    monkeypatch.setitem(sys.modules, "google.colab.output", output)
    _util.enable_custom_widget_manager_once.cache_clear()
    asked = session._Asked(Question("which", "Which?", choices=("a", "b")))
    shown = session.Output("text", "<p>fallback</p>", session._new_field(asked))
    data, metadata = shown._repr_mimebundle_(include=None, exclude=None)
    assert enabled and data["text/html"] == "<p>fallback</p>" and data["text/plain"] == "text"
    assert data[WIDGET]["model_id"] == shown.field.model_id
    assert metadata[WIDGET]["colab"]["custom_widget_manager"]["url"] == "https://example.org/manager"


def test_without_anywidget_it_is_html(live, shown, monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    predict.ask("which", "Which?", choices=["a", "b"])
    predict.reveal("which", "b", because="Since.")
    assert all(one.field is None for one in shown)
    assert "<input" in shown[0].html and "<details>" in shown[1].html and "Since." in shown[1].html


def test_outside_a_notebook_it_is_text(live):
    code = CELLS.replace("###\n", "")
    done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [
        "Predict. How many sectors? [sectors]",
        "It is 4 sectors.",
    ]


def test_a_guess_is_labeled():
    assert "a guess" in views.heading(Question("a", "How many?", guess=True))
