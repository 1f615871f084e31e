"""What is new between two positions of `widgets.explore_ptx`, and both of them side by side, line by line."""

from __future__ import annotations

import difflib
import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from helpers.ptx.view import Line, styled

LONGEST = 400  # lines of a text that are shown
_AROUND = 3  # equal lines that are shown beside a difference
_TOO_MANY = 250_000  # pairs of lines that are aligned at most


def essence(kind: str, text: str) -> str:
    """A line without what every recompilation renumbers: registers, addresses, labels."""
    text = re.sub(r"%(\w+?)\d+", r"%\1", text) if kind == "ptx" else re.sub(r"\b(U?[RP])\d+", r"\1", text)
    if kind == "sass":
        text = re.sub(r"^\s*[0-9a-f]{3,}\s+", "", text).replace(".reuse", "")
    return re.sub(r"(\$L__BB|\.L_x_)[\w]+", "label", " ".join(text.split()))


def news(kind: str, before: Sequence[Line] | None, now: Sequence[Line]) -> tuple[set[int], int]:
    """Which lines are new since the last position (by index), and how many of the last position's
    are gone.
    """
    if before is None:
        return set(), 0
    old, new = ([essence(kind, line.text) for line in lines] for lines in (before, now))
    if len(old) * len(new) > _TOO_MANY:  # too long to align: count instead
        spare = Counter(old)
        added = set()
        for i, text in enumerate(new):
            if spare[text]:
                spare[text] -= 1
            else:
                added.add(i)
        return added, sum(spare.values())
    added, gone = set(), 0
    for what, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what != "equal":
            added.update(range(k, m))
            gone += j - i
    return added, gone


def diff_html(
    kind: str, left: Sequence[Line], right: Sequence[Line], titles: tuple[str, str], exact: bool
) -> str:
    """Two texts side by side; a line that differs has a sign: - only left, + only right, ~ changed.

    Args:
        kind: "ptx" or "sass".
        left, right: their lines.
        titles: what stands above each.
        exact: whether registers and addresses count.
    """
    cut = max(len(left), len(right)) > LONGEST
    left, right = left[:LONGEST], right[:LONGEST]
    seen = (lambda line: line.text.strip()) if exact else (lambda line: essence(kind, line.text))
    old, new = [seen(line) for line in left], [seen(line) for line in right]
    rows, counts = [], Counter()
    opcodes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for what, i, j, k, m in opcodes:
        if what == "equal":
            rows += _equal(kind, left[i:j], right[k:m])
            continue
        pairs = min(j - i, m - k)
        for n in range(max(j - i, m - k)):
            sign = "~" if n < pairs else "-" if i + n < j else "+"
            counts[sign] += 1
            one = left[i + n] if i + n < j else None
            other = right[k + n] if k + n < m else None
            rows.append(
                _cell(kind, one, sign if sign != "+" else " ")
                + _cell(kind, other, sign if sign != "-" else " ")
            )
    said = f"{counts['~']} lines changed (~), {counts['-']} only left (-), {counts['+']} only right (+)"
    if cut:
        said += f"; of each text the first {LONGEST} lines"
    heads = "".join(f'<div class="kw-title">{html.escape(title)}</div>' for title in titles)
    return (
        f'<div class="kw-panes"><div class="kw-pane kw-wide"><div class="kw-title" role="status">{said}</div>'
        f'<div class="kw-text kw-diff" tabindex="0">{heads}{"".join(rows)}</div></div></div>'
    )


def _equal(kind: str, left: Sequence[Line], right: Sequence[Line]) -> Iterator[str]:
    """Lines that are the same on both sides; of a long run only its two ends."""
    hidden = range(_AROUND, len(left) - _AROUND) if len(left) > 2 * _AROUND + 1 else range(0)
    for n, (one, other) in enumerate(zip(left, right, strict=True)):
        if n not in hidden:
            yield _cell(kind, one, " ") + _cell(kind, other, " ")
        elif n == hidden.start:
            yield f'<span class="kw-same">… {len(hidden)} lines are the same</span>'


def _cell(kind: str, line: Line | None, sign: str) -> str:
    if line is None:
        return '<span class="kw-none"> </span>'
    changed = "" if sign == " " else ' class="kw-new"'
    number = f'<span class="kw-n">{line.number:>4}</span>'
    return (
        f'<span{changed}><span class="kw-sign">{sign}</span>{number} {styled(kind, line.text.strip())}</span>'
    )
