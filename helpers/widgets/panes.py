"""The HTML of `widgets.explore_ptx`: source, PTX and SASS with their lines tied together, and what changed.

No script: hovering or picking a source line lights its lines by CSS (`:has`), so the same text works inside an
ipywidgets HTML box, on a page without a kernel, and in the dark.
"""

from __future__ import annotations

import difflib
import html
import re
from collections import Counter
from typing import TYPE_CHECKING

from helpers import plots
from helpers.ptx.view import COLOURS, TITLES, Line, line_colours, pane, styled

if TYPE_CHECKING:
    from helpers.ptx import Stages

# JupyterLab takes arrow keys for moves between cells; an element with this attribute keeps its own.
KEEP_KEYS = 'data-lm-suppress-shortcuts="true"'
LONGEST = 400  # lines of a pane that are shown
_FACT_WORDS = {
    "loads": "loads a thread",
    "load_bytes": "widest load (bytes)",
    "stores": "stores a thread",
    "registers": "registers a thread",
    "spill_bytes": "spilled (bytes a thread)",
    "shared_bytes": "shared memory (bytes a block)",
    "ptx_instructions": "PTX instructions",
    "sass_instructions": "SASS instructions",
}


def facts(stages: Stages) -> dict[str, int]:
    """The numbers of the summary."""
    from helpers.ptx.artifacts import facts as from_ptx

    row = from_ptx(stages)
    return {
        **{name: row[name] for name in ("loads", "load_bytes", "stores")},
        "registers": stages.n_registers,
        "spill_bytes": stages.spill_bytes,
        "shared_bytes": stages.shared_bytes,
        "ptx_instructions": row["ptx_instructions"],
        "sass_instructions": len(stages.sass_reading.instructions),
    }


def style(stages: Stages, name: str) -> str:
    """The style sheet of one explorer: tints by source line, and what lights when a line is pointed at or picked.

    Args:
        stages: any of its positions; only the source's line numbers count.
        name: the CSS class of the explorer's outermost box.
    """
    rules = [
        f".{name} .kw-pane{{border:1px solid rgba(128,128,128,.45);border-radius:4px;overflow:hidden;min-width:0}}",
        f".{name} .kw-title{{font:600 13px sans-serif;padding:4px 8px;border-bottom:1px solid rgba(128,128,128,.45)}}",
        f".{name} .kw-text{{overflow:auto;max-height:30em;font:12px/1.45 ui-monospace,Menlo,Consolas,"
        "'DejaVu Sans Mono',monospace;white-space:pre}",
        f".{name} .kw-line{{display:block;padding:0 6px;border-left:4px solid transparent;width:max-content;min-width:100%;"
        "box-sizing:border-box}",
        f".{name} label.kw-line{{cursor:pointer}}",
        f".{name} input.kw-pick{{margin:0 6px 0 0;vertical-align:-2px}}",
        f".{name} .kw-n{{opacity:.75}}",
        f".{name} .kw-new .kw-sign{{color:{plots.PALETTE[3]};font-weight:700}}",
        f".{name} table.kw-facts{{border-collapse:collapse;font:13px/1.5 sans-serif;margin:4px 0}}",
        f".{name} table.kw-facts td,.{name} table.kw-facts th{{padding:1px 12px 1px 0;text-align:left;font-weight:400;"
        "background:none;border:none}",
        f".{name} table.kw-facts tr{{background:none!important}}",
        f".{name} table.kw-facts td{{text-align:right;font-variant-numeric:tabular-nums}}",
        f".{name} .kw-was{{color:{plots.PALETTE[3]};font-weight:600}}",
        f".{name} .kw-panes{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26em),1fr));gap:8px}}",
    ]
    for i, number in enumerate(sorted(line_colours(stages))):
        rgb = ",".join(map(str, COLOURS[i % len(COLOURS)]))
        rules.append(f".{name} .kw-l{number}{{background:rgba({rgb},.22);border-left-color:rgb({rgb})}}")
        lit = f"background:rgba({rgb},.6);outline:1px solid rgb({rgb})"
        rules.append(
            f".{name}:has(.kw-l{number}:hover) .kw-l{number},.{name}:has(.kw-p{number}:checked) .kw-l{number}{{{lit}}}"
        )
    return f"<style>{''.join(rules)}</style>"


def source_html(stages: Stages, name: str) -> str:
    """The source with a radio button on each line that became instructions: arrow keys and clicks pick one."""
    used = line_colours(stages)
    rows = []
    for line in pane(stages, "source"):
        code = styled("source", line.text) or "&nbsp;"
        if line.number in used:
            pick = f'<input type="radio" class="kw-pick kw-p{line.number}" name="{name}-line" {KEEP_KEYS} aria-label="source line {line.number}">'
            rows.append(
                f'<label class="kw-line kw-l{line.number}">{pick}<b>{line.number}</b>  {code}</label>'
            )
        else:
            rows.append(f'<span class="kw-line"><span class="kw-n">   {line.number}</span>  {code}</span>')
    none = f'<label class="kw-line"><input type="radio" class="kw-pick" name="{name}-line" {KEEP_KEYS} checked>no line picked</label>'
    return _pane("source: point at a line, or pick it", [*rows, none])


def _pane(title: str, rows: list[str]) -> str:
    text = "".join(rows)
    return (
        f'<div class="kw-pane"><div class="kw-title">{html.escape(title)}</div>'
        f'<div class="kw-text" tabindex="0">{text}</div></div>'
    )


def _essence(kind: str, text: str) -> str:
    """A line without what every recompilation renumbers: registers, addresses, labels."""
    text = re.sub(r"%(\w+?)\d+", r"%\1", text) if kind == "ptx" else re.sub(r"\b(U?[RP])\d+", r"\1", text)
    if kind == "sass":
        text = re.sub(r"^\s*[0-9a-f]{3,}\s+", "", text)
    return re.sub(r"(\$L__BB|\.L_x_)[\w]+", "label", " ".join(text.split()))


def news(kind: str, before: list[Line] | None, now: list[Line]) -> tuple[set[int], int]:
    """Which lines are new since the last position (by index), and how many of the last position's are gone."""
    if before is None:
        return set(), 0
    old, new = ([_essence(kind, line.text) for line in lines] for lines in (before, now))
    if len(old) * len(new) > 250_000:  # too long to align: count instead
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


def code_html(stages: Stages, kind: str, before: Stages | None) -> str:
    """PTX or SASS: tinted by source line, lines that are new since `before` marked with a +."""
    lines = pane(stages, kind)
    added, gone = news(kind, None if before is None else pane(before, kind), lines)
    wide = len(str(lines[min(len(lines), LONGEST) - 1].number)) if lines else 1
    deep = max((len(str(line.source_line or "")) for line in lines), default=1)
    rows = []
    for i, line in enumerate(lines[:LONGEST]):
        tag = f"{line.source_line or '':>{deep}}"
        classes = f"kw-line kw-l{line.source_line}" if line.source_line else "kw-line"
        if i in added:
            classes += " kw-new"
        sign = "+" if i in added else " "
        rows.append(
            f'<span class="{classes}"><span class="kw-sign">{sign}</span><span class="kw-n">{line.number:>{wide}}</span>'
            f" <b>{tag}</b> {styled(kind, line.text.strip())}</span>"
        )
    if len(lines) > LONGEST:
        rows.append(f'<span class="kw-line kw-n">… and {len(lines) - LONGEST:,} more lines</span>')
    title = TITLES[kind] if before is None else f"{TITLES[kind]}: {len(added)} lines new (+), {gone} gone"
    return _pane(title, rows)


def panes_html(stages: Stages, before: Stages | None) -> str:
    """PTX and SASS beside one another."""
    return (
        f'<div class="kw-panes">{"".join(code_html(stages, kind, before) for kind in ("ptx", "sass"))}</div>'
    )


def summary_html(stages: Stages, before: Stages | None) -> str:
    """The table of facts; one that changed since `before` says what it was."""
    now, then = facts(stages), None if before is None else facts(before)
    rows = []
    for key, words in _FACT_WORDS.items():
        was = f' <span class="kw-was">(was {then[key]:,})</span>' if then and then[key] != now[key] else ""
        rows.append(f"<tr><th scope='row'>{words}</th><td><b>{now[key]:,}</b>{was}</td></tr>")
    half = -(-len(rows) // 2)
    tables = "".join(
        f'<table class="kw-facts">{"".join(part)}</table>' for part in (rows[:half], rows[half:])
    )
    return f'<div role="status" style="display:flex;flex-wrap:wrap;gap:0 3em">{tables}</div>'


def plain_html(positions: list[tuple[str, Stages]], start: int, name: str, what: str) -> str:
    """A page's form: a slider over positions that were compiled beforehand. It needs no kernel and no network."""
    shown = []
    before: Stages | None = None
    for i, (_, stages) in enumerate(positions):
        hidden = "" if i == start else " hidden"
        shown.append(
            f'<div class="kw-position"{hidden}>{summary_html(stages, before)}{panes_html(stages, before)}</div>'
        )
        before = stages
    labels = ",".join(f"&quot;{html.escape(label)}&quot;" for label, _ in positions)
    move = (
        "const b=this.closest('.kw'),p=b.querySelectorAll('.kw-position');"
        "p.forEach((d,i)=>{d.hidden=i!=this.value});"
        f"b.querySelector('output').textContent=[{labels}][this.value]"
    )
    control = (
        f'<label style="font:13px sans-serif">{html.escape(what)} '
        f'<input type="range" {KEEP_KEYS} min="0" max="{len(positions) - 1}" value="{start}" step="1" oninput="{move}" '
        f'style="width:20em;vertical-align:middle"> <output>{html.escape(positions[start][0])}</output></label>'
    )
    return (
        f'{style(positions[start][1], name)}<div class="kw {name}">{control}'
        f"{source_html(positions[start][1], name)}{''.join(shown)}</div>"
    )
