"""Compares a write-up with the data: what agrees, what they contradict, and what they don't decide.

There is no single right answer. A lab says what its data contain (`Data`): figures and, for each name that a
learner may choose, whether the data support it and which figures show that. The words are never judged.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from helpers.exercises import writeup
from helpers.exercises.answers import brief
from helpers.exercises.model import Case, Outcome, Verdict
from helpers.exercises.verdicts import is_number, raised

__all__ = ["Claim", "Data", "Figure", "Problem", "WriteUpJudge", "with_sentences"]

_FEWEST_WORDS, _FEWEST_DISTINCT = 25, 16
_MOST, _READ = 60, 20_000  # figures or questions; characters of the words
# Of the first words so many must differ from one another, so that one sentence repeated is not enough.
_AGAIN, _HEAD = 0.35, 100
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # written without spaces, so each character counts as a word
_WORD = re.compile(rf"[{_CJK}]|[^\W\d_{_CJK}]+")
_NUMBER = re.compile(r"\d[\d,_'\u202f\u00a0]*(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class Figure:
    """A number in the data.

    Attributes:
        value: in the unit that its name ends with.
        source: where it is found, as the end of a sentence: "the sum of `dur` over the trace's kernels".
        within: relative tolerance of a learner's figure.
        at_least: absolute tolerance; the larger of the two applies.
    """

    value: float
    source: str = ""
    within: float = 0.05
    at_least: float = 0.0

    def holds(self, given: float) -> bool:
        """Whether a learner's figure is this one."""
        return abs(given - self.value) <= max(self.within * abs(self.value), self.at_least)


@dataclass(frozen=True)
class Claim:
    """What the data say about a name that a learner may choose.

    Attributes:
        supported: True if the data support it, False if they contradict it, None if they don't decide it.
        because: the measurement that shows this, a clause with its figures.
        evidence: names of figures, at least one of which has to be given with it.
        acts_on: for a change, the findings that it acts on; empty if it goes with any.
        allows: figure that the learner predicts -> (least, most, why), as far as the data bound it.
    """

    supported: bool | None
    because: str = ""
    evidence: tuple[str, ...] = ()
    acts_on: tuple[str, ...] = ()
    allows: Mapping[str, tuple[float, float, str]] = field(default_factory=dict)


class Problem(NamedTuple):
    """A reason why a write-up doesn't pass: its kind, a sentence, a hint."""

    mistake: str
    sentence: str
    hint: str


@dataclass(frozen=True)
class Data:
    """The data of a free exercise.

    Attributes:
        called: what they are called in sentences, "the trace".
        figures: name -> `Figure`.
        findings, changes: name -> `Claim`.
        questions: name -> `Claim`, for what a learner may call undecided: `supported` is None if it is.
        predicted: names of figures that weren't measured, but are what the learner expects of the change;
            `Claim.allows` bounds them.
        n_figures: how many measured figures have to be given.
        n_undecided: how many questions have to be named as undecided.
        problems: reasons why the write-up can't be compared with the data at all.
    """

    called: str
    figures: Mapping[str, Figure]
    findings: Mapping[str, Claim]
    changes: Mapping[str, Claim]
    questions: Mapping[str, Claim]
    predicted: tuple[str, ...] = ()
    n_figures: int = 2
    n_undecided: int = 0
    problems: tuple[Problem, ...] = ()


def with_sentences(data: Data, path: Path, **facts: Any) -> Data:
    """The data with the sentences from a TOML file, for figures without a source and claims without a reason.

    Args:
        data: the data.
        path: of the file. Its sections are "figures", "findings", "changes" and "questions".
        facts: values for the names in braces in the sentences; the figures' values are known there, too.
    """
    texts = tomllib.loads(path.read_text(encoding="utf-8"))
    values = {name: figure.value for name, figure in data.figures.items()} | facts

    def filled(kind: str, field: str) -> dict[str, Any]:
        return {
            name: one
            if getattr(one, field)
            else replace(one, **{field: texts[kind][name].format_map(values)})
            for name, one in getattr(data, kind).items()
        }

    claims = {kind: filled(kind, "because") for kind in ("findings", "changes", "questions")}
    return replace(data, figures=filled("figures", "source"), **claims)


@dataclass(frozen=True)
class WriteUpJudge:
    """Judges the write-up in an outcome's value; it always returns a verdict, also if the write-up passes.

    Attributes:
        exercise, name: the exercise's id, and the name of the learner's write-up.
        data: `(outcome's value) -> Data`; the value has the write-up, and possibly facts about the answer.
    """

    exercise: str
    name: str
    data: Callable[[Mapping[str, Any]], Data]

    def __call__(self, case: Case, outcome: Outcome) -> Verdict | None:
        if error_verdict := raised(self.exercise, self.name, case, outcome):
            return error_verdict
        value = outcome.value
        given = value.get("write_up", value) if isinstance(value, dict) else value
        if unfinished := self.unfinished(given):
            return unfinished
        words = writeup.readable(given)
        problems = _of_the_form(given)
        agreed: list[str] = []
        if not problems:
            about = self.data(value)
            problems, agreed = (list(about.problems), []) if about.problems else _compare(about, given)
        problems += _of_the_words(given)
        lines = [f"  agrees: {one}" for one in agreed]
        if not problems:
            sentence = f"{self.exercise}: your write-up agrees with the data. Your teacher reads your words."
            return Verdict(self.exercise, True, sentence, details="\n".join(lines), words=words)
        first, *rest = problems
        lines = [f"  also: {one.sentence}" for one in rest] + lines
        sentence, details = f"{self.exercise}: {first.sentence}.", "\n".join(lines)
        rest = {"mistake": first.mistake, "hint": first.hint, "details": details, "words": words}
        return Verdict(self.exercise, False, sentence, **rest)

    def unfinished(self, given: Any) -> Verdict | None:
        """The verdict on an empty write-up or another object; None if there is a write-up to judge."""
        if not writeup.is_write_up(given):
            kind = given.get("of type", "") if isinstance(given, dict) else type(given).__name__
            sentence = (
                f"{self.exercise}: {self.name} is not a WriteUp{f', but of type {kind}' if kind else ''}."
            )
            hint = (
                f"Write {self.name} = WriteUp(finding=…, figures={{…}}, change=…, words=…), as in the "
                "starter."
            )
            return Verdict(self.exercise, False, sentence, mistake="no-write-up", hint=hint)
        filled = (given[name] for name in ("finding", "figures", "change", "words", "undecided"))
        if all(one is None or (isinstance(one, (str, dict, list, tuple)) and not one) for one in filled):
            return Verdict(self.exercise, False, f"{self.exercise} is not written yet.", mistake="to-do")
        return None


def _of_the_form(given: Mapping[str, Any]) -> list[Problem]:
    """Fields that have the wrong type."""
    found = [
        Problem("form", f"{name} is {brief(given[name], 60)}", f"{name} is a string, in quotation marks.")
        for name in ("finding", "change", "words")
        if type(given[name]) is not str
    ]
    found += _of_the_figures(given["figures"])
    undecided = given["undecided"]
    listed = isinstance(undecided, (list, tuple)) and len(undecided) <= _MOST
    if not listed or not all(type(one) is str for one in undecided):
        hint = 'undecided is a tuple of names from the task, such as ("other-gpus",) with its comma.'
        found.append(Problem("form", f"undecided is {brief(undecided, 60)}", hint))
    return found


def _of_the_figures(figures: Any) -> list[Problem]:
    if not isinstance(figures, dict) or not all(type(name) is str for name in figures):
        hint = 'figures is a dict of names and numbers: {"copy_us": 42_000}.'
        return [Problem("form", f"figures is {brief(figures, 60)}", hint)]
    found = []
    if len(figures) > _MOST:
        what = f"there are {len(figures):,} figures"
        found.append(Problem("form", what, "Give only those that your finding is based on."))
    for name, number in list(figures.items())[:_MOST]:
        if not _is_finite(number):
            large = is_number(number) and number == number
            what = f"the figure {brief(name, 40)} is {'too large a number' if large else brief(number, 60)}"
            found.append(Problem("form", what, "A figure is a plain number, and its unit is in its name."))
    return found


def _compare(data: Data, given: Mapping[str, Any]) -> tuple[list[Problem], list[str]]:
    """Where the write-up disagrees with the data, and where it agrees."""
    problems: list[Problem] = []
    agreed: list[str] = []
    right = _figures(data, given, problems, agreed)
    chosen: dict[str, Claim] = {}
    for kind, claims in (("finding", data.findings), ("change", data.changes)):
        name = given[kind].strip()
        claim = claims.get(name)
        if claim is None:
            what = f"the task has no {kind} {brief(name, 60)}" if name else f"there is no {kind} yet"
            problems.append(Problem("unknown-name" if name else "incomplete", what, _choose(kind, claims)))
            continue
        chosen[kind] = claim
        if claim.supported is None:
            what = f"{data.called} {_do(data)} not decide the {kind} {name!r}: {claim.because}"
            hint = f"Choose a {kind} that the data support, and say in your words what remains open."
            problems.append(Problem("not-decided", what, hint))
        elif not claim.supported:
            what = f"the {kind} {name!r} is contradicted by {data.called}: {claim.because}"
            problems.append(
                Problem(f"{kind}-contradicted", what, "Which figure would look different if it were true?")
            )
        elif claim.evidence and not any(one in right for one in claim.evidence):
            what = f"there is no evidence for the {kind} {name!r}: none of your figures supports it"
            problems.append(Problem("no-evidence", what, f"Give one of {', '.join(claim.evidence)}."))
        else:
            agreed.append(f"{kind} {name}, because {claim.because}")
    finding, change = chosen.get("finding"), chosen.get("change")
    if finding and change and change.acts_on and given["finding"].strip() not in change.acts_on:
        what = f"the change {given['change']!r} doesn't act on your finding, {given['finding']!r}"
        hint = f"It acts on {', '.join(change.acts_on)}. Choose another finding or another change."
        problems.append(Problem("change-elsewhere", what, hint))
    if change and change.supported:
        _predictions(data, given, change, problems, agreed)
    _questions(data, given, problems, agreed)
    return problems, agreed


def _figures(
    data: Data, given: Mapping[str, Any], problems: list[Problem], agreed: list[str]
) -> dict[str, float]:
    right = {}
    for name, number in given["figures"].items():
        figure = data.figures.get(name)
        if figure is None:
            if name not in data.predicted:
                known = ", ".join((*data.figures, *data.predicted))
                what = f"the task has no figure {brief(name, 40)}"
                problems.append(Problem("unknown-name", what, f"The figures are {known}."))
        elif figure.holds(number):
            right[name] = number
            agreed.append(f"{name} = {number:,.6g}, {figure.source}")
        else:
            than = "too large" if number > figure.value else "too small"
            what = (
                f"{name} = {number:,.6g} is {than}: {data.called} contradict{_s(data)} it. It is "
                f"{figure.source}"
            )
            problems.append(
                Problem(
                    "figure-contradicted",
                    what,
                    "Compute it from the data in a cell of your own, and print it.",
                )
            )
    if len(right) < data.n_figures and not any(one.mistake == "figure-contradicted" for one in problems):
        what = f"only {len(right)} of at least {data.n_figures} measured figures are given"
        problems.append(Problem("incomplete", what, f"Choose from {', '.join(data.figures)}."))
    return right


def _predictions(
    data: Data, given: Mapping[str, Any], change: Claim, problems: list[Problem], agreed: list[str]
) -> None:
    """Compare what the learner expects of the change with the bounds that the data give."""
    for name in data.predicted:
        bound, number = change.allows.get(name), given["figures"].get(name)
        if number is None:
            if bound is not None:
                what = f"your change {given['change']!r} has no prediction yet"
                problems.append(Problem("incomplete", what, f"Give the figure {name}: what do you expect?"))
        elif bound is None:
            agreed.append(
                f"{name} = {number:,.6g} is your prediction; {data.called} {_do(data)} not bound it"
            )
        elif bound[0] <= number <= bound[1]:
            agreed.append(f"{name} = {number:,.6g} is possible: {bound[2]}")
        else:
            what = f"{name} = {number:,.6g} can't result from {given['change']!r}: {bound[2]}"
            hint = "What does the change leave as it is, and how long does that take? Start with that."
            problems.append(Problem("prediction-impossible", what, hint))


def _questions(data: Data, given: Mapping[str, Any], problems: list[Problem], agreed: list[str]) -> None:
    n_open = 0
    for name in dict.fromkeys(given["undecided"]):
        claim = data.questions.get(name)
        if claim is None:
            what = f"the task has no question {brief(name, 60)}"
            problems.append(Problem("unknown-name", what, _choose("question", data.questions)))
        elif claim.supported is None:
            n_open += 1
            agreed.append(f"{name} is left open, as you say: {claim.because}")
        else:
            what = f"{data.called} {_do(data)} decide {name!r}: {claim.because}"
            problems.append(Problem("decided", what, "Only leave a question open if no figure decides it."))
    if n_open < data.n_undecided and not any(one.mistake == "decided" for one in problems):
        what = "you haven't said what the data leave open"
        problems.append(
            Problem("incomplete", what, _choose("question", data.questions) + " Name it in undecided.")
        )


def _of_the_words(given: Mapping[str, Any]) -> list[Problem]:
    """Check that there are words, and that they mention the learner's own figures."""
    if type(given["words"]) is not str:
        return []
    text = given["words"][:_READ]
    words = _WORD.findall(text.lower())
    distinct, head = len(set(words)), words[:_HEAD]
    hint = (
        "Write at least three sentences: what you saw, what you conclude, and what you don't know. Only your "
        "teacher judges them."
    )
    if not words:
        return [Problem("no-words", "there are no words yet", hint)]
    if len(words) < _FEWEST_WORDS or distinct < _FEWEST_DISTINCT:
        what = f"{len(words)} words, {distinct} of them different, are too few to follow"
        return [Problem("few-words", what, hint)]
    if len(set(head)) < _AGAIN * len(head):
        return [Problem("few-words", "the words repeat themselves", hint)]
    figures = given["figures"] if isinstance(given["figures"], dict) else {}
    numbers = [one for one in list(figures.values())[:_MOST] if _is_finite(one)]
    if numbers and not any(_same(written, one) for written in _NUMBER.findall(text) for one in numbers):
        what = "the words mention none of your figures"
        return [
            Problem("no-figure-in-words", what, "Say in a sentence what one of them shows, with the number.")
        ]
    return []


def _same(text: str, number: float) -> bool:
    """Whether a number in a text is this one, rounded, and perhaps in a larger or smaller unit."""
    value = float(re.sub(r"[,_'\u202f\u00a0]", "", text))
    decimals = len(text.partition(".")[2])
    steps = {10.0**power for power in (0, 3, -3, 6, -6)}
    near = (abs(value - abs(number) * step) <= max(0.5 * 10.0**-decimals, 0.01 * value) for step in steps)
    return (0 < value < math.inf and any(near)) or value == number == 0


def _is_finite(value: Any) -> bool:
    return is_number(value) and abs(value) < 1e300


def _choose(kind: str, claims: Mapping[str, Claim]) -> str:
    return f"The task's {kind}s are {', '.join(claims)}." if claims else f"The task has no {kind}s."


def _do(data: Data) -> str:
    return "do" if data.called.endswith("s") else "does"


def _s(data: Data) -> str:
    """The ending of a verb whose subject is the data."""
    return "" if data.called.endswith("s") else "s"
