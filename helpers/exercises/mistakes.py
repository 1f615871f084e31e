"""Tables of mistakes: what a wrong answer looks like, what the mistake is called, and what the learner reads.

How to write a table for an exercise:

1. The conditions are a dict, `{"rounded-down": lambda s: s.got == s.n // s.block}`. The first one that holds
   names the mistake, so put a specific one before a general one, and end with `always`. To describe one
   mistake in two ways, give its key a suffix: "blocks/x" and "blocks/y" are both reported as "blocks".
2. `s` is everything that is known about the answer: a `Seen`, or an `evidence.Evidence` for a kernel. The
   exercise's `facts` names the case's arguments and adds what several conditions or hints need.
3. The sentences are in the lab's `hints.toml`, below the exercise's id: `key = "hint"`, or for a `TableJudge`
   `key = ["what is wrong", "hint"]`; `what = "…"` is for rows that have only a hint. A name in braces is
   filled in from `s`. A condition may return what is wrong as text. `hints.HINTS` has the hints that labs
   share.
4. `at` is for one part of an answer with several parts, and `not_numbers`, `not_named` and `not_one_of` are
   the usual first conditions. A condition that raises doesn't hold, so it needs no guards against odd
   answers.
"""

from __future__ import annotations

import functools
import inspect
import math
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from helpers.exercises.hints import HINTS
from helpers.exercises.model import Case, Outcome, Verdict
from helpers.exercises.verdicts import is_number, raised

Condition = Callable[[Any], "bool | str | None"]
Conditions = Mapping[str, Condition]
Facts = Callable[..., Mapping[str, Any]]


class Found(NamedTuple):
    """The mistake that explains an answer: its key, what is wrong, and a hint."""

    key: str
    what: str
    hint: str


class Seen(SimpleNamespace):
    """Everything that is known about one answer: the argument of a table's conditions.

    Attributes:
        case, got, want: the case, the answer, and the right answer.
        at: index or key of the first part of `got` that is wrong; None if they have no parts to compare.
        value, right: that part, and what it should be; `got` and `want` if `at` is None.
        tolerance: relative and absolute, of the exercise.
        and the case's arguments and the exercise's facts under their own names.
    """

    def near(self, *candidates: float) -> bool:
        """Whether the wrong part equals one of these numbers, within the exercise's tolerance."""
        rel, abs = self.tolerance
        return close(self.value, *candidates, rel=rel, abs=abs)

    def also(self, **facts: Any) -> Seen:
        """A copy with more facts."""
        return Seen(**(vars(self) | facts))


@dataclass(frozen=True)
class Table:
    """An exercise's mistakes.

    Attributes:
        exercise, lab: where the sentences are: below the exercise's id, in the lab's `hints.toml`.
        conditions: key -> condition, in the order in which they are checked.
        raises: the same for calls that raised, where `s.got` is the outcome.

    Raises:
        ValueError: A condition has no sentence, or a sentence no condition.
    """

    exercise: str
    lab: str
    conditions: Conditions
    raises: Conditions = field(default_factory=dict)

    def __post_init__(self) -> None:
        written, keys = sentences(self.lab, self.exercise), [*self.raises, *self.conditions]
        kinds = {_kind(key) for key in keys}
        without_sentence = [key for key in keys if not {key, _kind(key)} & {*written, *HINTS}]
        section = _of_lab(_file(self.lab)).get(self.exercise, {})
        without_condition = [key for key in section if keys and key not in {*keys, *kinds, "what"}]
        if without_sentence or without_condition:
            raise ValueError(
                f"{_file(self.lab)}, [{self.exercise}]: the table and its sentences differ; "
                f"without a sentence: {without_sentence}, without a condition: {without_condition}."
            )

    def first_match(self, seen: Any) -> Found | None:
        """The first mistake whose condition holds, with its sentences filled in."""
        raised = isinstance(getattr(seen, "got", None), Outcome)
        for key, condition in (self.raises if raised else self.conditions).items():
            try:
                if answer := condition(seen):
                    return self._found(key, seen, answer)
            except Exception:  # an answer may be anything, even something that can't be compared at all
                continue
        return None

    def _found(self, key: str, seen: Any, answer: bool | str) -> Found:
        written = sentences(self.lab, self.exercise)
        texts = next(found[k] for k in (key, _kind(key)) for found in (written, HINTS) if k in found)
        default_what = "" if key in self.raises else written.get("what", "")
        what, hint = (default_what, texts) if isinstance(texts, str) else texts
        what = answer if isinstance(answer, str) else _filled(what, seen)
        return Found(_kind(_filled(key, seen)), what, _filled(hint, seen))


def _kind(key: str) -> str:
    return key.partition("/")[0]


def _file(lab: str) -> Path:
    return Path(__file__).with_name(f"lab{lab[:2]}") / "hints.toml"


@functools.cache
def _of_lab(path: Path) -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def sentences(lab: str, exercise: str) -> Mapping[str, Any]:
    """What learners read about the mistakes of an exercise: key -> hint, or [what is wrong, hint].

    The section "all" of a lab's file is for what its exercises share.
    """
    texts = _of_lab(_file(lab))
    return {**texts.get("all", {}), **texts.get(exercise, {})}


class _Names(dict):
    """The attributes of an object as a mapping, for `str.format_map`."""

    def __init__(self, of: Any):
        self._of = of

    def __missing__(self, name: str) -> Any:
        return getattr(self._of, name)


def _filled(text: str, seen: Any) -> str:
    return text.format_map(_Names(seen))


def seen_answer(
    case: Case, got: Any, facts: Facts | None = None, tolerance: float | tuple[float, float] = 0
) -> Seen:
    """Gather what the conditions of a table need to know about an answer.

    Args:
        case: its `args` are passed to `facts`, and its `expected` is the right answer.
        got: the learner's answer.
        facts: `(*args) -> dict`; its parameters name the case's arguments. A keyword parameter `want` gets
            the right answer.
        tolerance: relative, or relative and absolute.
    """
    want, tolerances = (
        case.expected,
        tolerance if isinstance(tolerance, tuple) else (max(tolerance, 1e-9), 1e-9),
    )
    part = _first_wrong_part(got, want, tolerances)
    known = {"case": case, "got": got, "want": want, "tolerance": tolerances, "at": part}
    known |= {"value": got, "right": want} if part is None else {"value": got[part], "right": want[part]}
    if facts is not None:
        signature = inspect.signature(facts)
        right = {"want": want} if "want" in signature.parameters else {}
        known |= signature.bind(*case.args, **right).arguments | facts(*case.args, **right)
    return Seen(**known)


def _first_wrong_part(got: Any, want: Any, tolerance: tuple[float, float]) -> int | str | None:
    if isinstance(want, Mapping) and isinstance(got, Mapping):
        parts: Collection = [key for key in want if key in got]
    elif isinstance(want, list | tuple) and isinstance(got, list | tuple):
        parts = range(min(len(got), len(want)))
    else:
        return None
    return next((part for part in parts if not _equal(got[part], want[part], tolerance)), None)


def _equal(got: Any, want: Any, tolerance: tuple[float, float]) -> bool:
    if is_number(got) and is_number(want):
        return close(got, want, rel=tolerance[0], abs=tolerance[1])
    return type(got) is type(want) and got == want


# ------------------------------------------------------------------------------- conditions that labs share
def always(s: Any) -> bool:
    """A condition that is always true, for a table's last row."""
    return True


def close(value: float, *candidates: float, rel: float = 1e-9, abs: float = 1e-9) -> bool:
    """Whether a number equals one of the candidates, within these tolerances."""
    return any(math.isclose(value, one, rel_tol=rel, abs_tol=abs) for one in candidates)


def under(condition: Condition, conditions: Conditions) -> dict[str, Condition]:
    """The conditions, each combined with this one by `and`."""
    return {key: lambda s, other=other: condition(s) and other(s) for key, other in conditions.items()}


def at(part: int | str, conditions: Conditions) -> dict[str, Condition]:
    """The conditions, for answers of which this part is the first that is wrong."""
    return under(lambda s: s.at == part, conditions)


def not_numbers(n: int) -> Condition:
    """The answer isn't a tuple or list of n numbers."""
    return lambda s: not isinstance(s.got, list | tuple) or len(s.got) != n or not all(map(is_number, s.got))


def not_named(keys: Collection[str]) -> Condition:
    """The answer isn't a dict with exactly these keys."""
    return lambda s: not isinstance(s.got, Mapping) or set(keys) != set(s.got)


def not_one_of(words: Collection[str]) -> Condition:
    """The answer isn't one of these words."""
    return lambda s: not isinstance(s.got, str) or s.got not in words


# ----------------------------------------------------------------------------------------------- the judge
@dataclass(frozen=True)
class TableJudge:
    """Judges an exercise whose table lists everything that can be wrong; other answers are right.

    Attributes:
        table: the mistakes, with two sentences each: what is wrong, and a hint. For a call that raised, what
            is wrong may be "": then the exception is quoted.
        name: of what the learner writes.
        facts: `(*args) -> dict`, as in `seen_answer`.
        parts: `(seen) -> iterable of Seen`, to check several parts of the answer, one after another. Their
            `details`, if any, are printed below the sentence.
        tolerance: relative, or relative and absolute.
    """

    table: Table
    name: str
    facts: Facts | None = None
    parts: Callable[[Seen], Iterable[Seen]] = lambda seen: (seen,)
    tolerance: float | tuple[float, float] = 0

    def __call__(self, case: Case, outcome: Outcome) -> Verdict | None:
        if outcome.error:
            found = self.table.first_match(seen_answer(case, outcome, self.facts))
            if found and found.what:
                return self._verdict(case, found)
            error_verdict = raised(self.table.exercise, self.name, case, outcome)
            return replace(error_verdict, mistake=found.key, hint=found.hint) if found else error_verdict
        for seen in self.parts(seen_answer(case, outcome.value, self.facts, self.tolerance)):
            if found := self.table.first_match(seen):
                return self._verdict(case, found, getattr(seen, "details", ""))
        return None

    def _verdict(self, case: Case, found: Found, details: str = "") -> Verdict:
        exercise = self.table.exercise
        sentence = f"{exercise}, {case.label}: {found.what.removesuffix('.')}."
        return Verdict(exercise, False, sentence, case.label, found.key, found.hint, details=details)
