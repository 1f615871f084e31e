"""A verdict as one page of text, and as one self-contained HTML page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from workbook.page import document, escaped
from workbook.sandbox.texts import printable
from workbook.verify.verdict import DISHONEST, FAILED, LIMIT, NOT_JUDGED, NOTE, WRONG, Finding, Verdict

_WIDTH = 100
_HEADINGS = {
    WRONG: "Wrong",
    DISHONEST: "Not honest",
    LIMIT: "Limits (outside of what the problem describes)",
    NOTE: "Worth knowing",
}
_MAX_EVIDENCE = 8  # lines


def headline(verdict: Verdict) -> str:
    """The verdict in one sentence."""
    if verdict.status == NOT_JUDGED:
        return "Not judged."
    if verdict.status == FAILED:
        kinds = ["wrong"] * (not verdict.is_right) + ["not honest"] * (not verdict.is_honest)
        return f"Rejected: the candidate is {' and '.join(kinds)}."
    sentence = "Accepted: the candidate is right and honest"
    if any(one.severity == LIMIT for one in verdict.findings):
        sentence += ", within the limits below"
    if verdict.gpu and not verdict.speed:
        sentence += "; its speed was not measured"
    return f"{sentence}."


def text(verdict: Verdict) -> str:
    """The page for a terminal."""
    lines = [f"{verdict.candidate} for {verdict.problem} ({verdict.format})", "", headline(verdict)]
    if verdict.blocked:
        lines += _wrapped(verdict.blocked[0].upper() + verdict.blocked[1:] + ".", "  ")
    for severity, heading in _HEADINGS.items():
        found = [one for one in verdict.findings if one.severity == severity]
        if found:
            lines += ["", heading]
            for one in found:
                lines += _of_finding(one)
    lines.append("")
    for sentence in (*_speed_lines(verdict), *_about(verdict)):
        lines += _wrapped(sentence, "")
    lines = [printable(line) for line in lines]
    return "\n".join(lines)


def _of_finding(finding: Finding) -> Iterator[str]:
    yield from _wrapped(f"{finding.check}: {finding.says}", "  ", "    ")
    evidence = finding.evidence.splitlines()
    for line in evidence[:_MAX_EVIDENCE]:
        yield from _wrapped(line.strip(), "      ")


def _about(verdict: Verdict) -> Iterator[str]:
    """Sentences about what was done."""
    n = len(verdict.cases)
    first = f"; the first one is {verdict.cases[0]}" if n else ""
    yield f"Compared {n} case{'s' * (n != 1)}{first}."
    if verdict.tolerance and verdict.tolerance_accepts is not None:
        answer = "accepts" if verdict.tolerance_accepts else "rejects"
        yield f"The benchmark's own tolerance ({verdict.tolerance}) {answer} its results."
    yield from verdict.notes
    if verdict.not_judged:
        yield f"Not judged without a GPU: {', '.join(verdict.not_judged)}."
    where = verdict.gpu or "No GPU: Triton's interpreter and our CUDA emulator"
    yield f"{where}. {verdict.seconds:.0f} s. To reproduce this, pass --seed {verdict.seed}."


def _speed_lines(verdict: Verdict) -> Iterator[str]:
    for one in verdict.speed:
        low, high = one.speedup_ci95
        yield (
            f"Speed, {one.case}: {one.median_us:,.1f} µs (95 % CI {one.ci95_us[0]:,.1f} to "
            f"{one.ci95_us[1]:,.1f}), reference {one.reference_us:,.1f} µs: {one.speedup:.2f} × "
            f"({low:.2f} to {high:.2f})."
        )
        if one.bound_us:
            yield f"This GPU's memory bandwidth allows no less than {one.bound_us:,.1f} µs."


def _wrapped(sentence: str, indent: str, further: str = "") -> list[str]:
    return textwrap.wrap(
        sentence, _WIDTH, initial_indent=indent, subsequent_indent=further or indent, break_long_words=False
    )


def page(verdict: Verdict) -> str:
    """The HTML page: verdict, findings with evidence, figures, and the candidate's code."""
    parts = [f"<h1>{escaped(headline(verdict))}</h1>"]
    parts.append(f"<p>{escaped(verdict.candidate)} for {escaped(verdict.problem)} ({verdict.format})</p>")
    if verdict.blocked:
        parts.append(f"<p>{escaped(verdict.blocked)}</p>")
    for severity, heading in _HEADINGS.items():
        found = [one for one in verdict.findings if one.severity == severity]
        if found:
            parts.append(f"<h2>{escaped(heading)}</h2>" + "".join(map(_finding_html, found)))
    if verdict.speed:
        parts.append("<h2>Speed</h2>" + _speed_table(verdict))
    parts.append("<h2>What was done</h2>")
    parts += [f"<p>{escaped(sentence)}</p>" for sentence in _about(verdict)]
    cases = "".join(f"<li>{escaped(one)}</li>" for one in verdict.cases)
    parts.append(f"<details><summary>All {len(verdict.cases)} cases</summary><ul>{cases}</ul></details>")
    for name, source in verdict.sources.items():
        parts.append(f"<h2>{escaped(name)}</h2><pre>{escaped(source)}</pre>")
    return document(f"{verdict.candidate}: {headline(verdict)}", parts, _STYLE)


def _finding_html(finding: Finding) -> str:
    evidence = f"<pre>{escaped(finding.evidence)}</pre>" if finding.evidence else ""
    return f"<h3>{escaped(finding.check)}</h3><p>{escaped(finding.says)}</p>{evidence}"


def _speed_table(verdict: Verdict) -> str:
    names = ("case", "candidate, µs", "reference, µs", "speedup", "bound, µs")
    head = f"<tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>"
    rows = "".join(
        f"<tr><td>{escaped(one.case)}</td><td>{one.median_us:,.1f} ({one.ci95_us[0]:,.1f} to "
        f"{one.ci95_us[1]:,.1f})</td><td>{one.reference_us:,.1f}</td><td>{one.speedup:.2f} × "
        f"({one.speedup_ci95[0]:.2f} to {one.speedup_ci95[1]:.2f})</td><td>{one.bound_us:,.1f}</td></tr>"
        for one in verdict.speed
    )
    return f'<div class="wide"><table>{head}{rows}</table></div>'


_STYLE = "\nh3 { font-size: 16px; margin: 16px 0 0; }"
