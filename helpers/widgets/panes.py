"""The HTML of `widgets.explore_ptx`: source, PTX and SASS with their lines tied together, and what each line
says.

No script: hovering or picking a source line lights its lines by CSS (`:has`), so the same text works inside
an ipywidgets HTML box, on a page without a kernel, and in the dark.
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from helpers import plots
from helpers.ptx.sass import memory_bytes
from helpers.ptx.view import COLOURS, TITLES, line_colours, pane, styled
from helpers.widgets.diffs import LONGEST, diff_html, news

if TYPE_CHECKING:
    from helpers.ptx import Stages

# JupyterLab takes arrow keys for moves between cells; an element with this attribute keeps its own.
KEEP_KEYS = 'data-lm-suppress-shortcuts="true"'
_WIDTHS = (1, 2, 4, 8, 16, 32)  # bytes that a lane loads or stores at once
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
    """The style sheet of one explorer: tints by source line, and what lights when a line is pointed at or
    picked.

    Args:
        stages: any of its positions; only the source's line numbers count.
        name: the CSS class of the explorer's outermost box.
    """
    rules = [
        f".{name} .kw-pane{{border:1px solid "
        f"rgba(128,128,128,.45);border-radius:4px;overflow:hidden;min-width:0}}",
        f".{name} .kw-title{{font:600 13px sans-serif;padding:4px 8px;border-bottom:1px solid "
        f"rgba(128,128,128,.45)}}",
        f".{name} .kw-text{{overflow:auto;max-height:30em;font:12px/1.45 ui-monospace,Menlo,Consolas,"
        "'DejaVu Sans Mono',monospace;white-space:pre}",
        f".{name} .kw-line{{display:block;padding:0 6px;border-left:4px solid "
        "transparent;width:max-content;min-width:100%;"
        "box-sizing:border-box}",
        f".{name} label.kw-line{{cursor:pointer}}",
        f".{name} input.kw-pick{{margin:0 6px 0 0;vertical-align:-2px}}",
        f".{name} .kw-n{{opacity:.75}}",
        f".{name} .kw-new .kw-sign{{color:{plots.PALETTE[3]};font-weight:700}}",
        f".{name} table.kw-facts{{border-collapse:collapse;font:13px/1.5 sans-serif;margin:4px 0}}",
        f".{name} table.kw-facts td,.{name} table.kw-facts th{{padding:1px 12px 1px "
        "0;text-align:left;font-weight:400;"
        "background:none;border:none}",
        f".{name} table.kw-facts tr{{background:none!important}}",
        f".{name} table.kw-facts td{{text-align:right;font-variant-numeric:tabular-nums}}",
        f".{name} .kw-was{{color:{plots.PALETTE[3]};font-weight:600}}",
        f".{name} .kw-panes{{display:grid;gap:8px;"
        "grid-template-columns:repeat(auto-fit,minmax(min(100%,26em),1fr));margin-bottom:8px}",
        f".{name} .kw-wide{{grid-column:1/-1}}",
        f".{name} .kw-b{{display:inline-block;min-width:4ch;text-align:right;"
        "margin-right:1ch;padding-right:.4ch;border-right:3px solid transparent;box-sizing:content-box}",
        f".{name} .kw-legend{{font:12px/1.5 sans-serif;padding:4px 8px;border-bottom:1px solid "
        f"rgba(128,128,128,.45)}}",
        f".{name} .kw-legend .kw-b{{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}}",
        f".{name} .kw-diff{{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:0 8px}}",
        f".{name} .kw-diff>span{{overflow-x:auto;scrollbar-width:none}}",
        f".{name} .kw-diff .kw-new{{background:rgba(213,94,0,.2)}}",
        f".{name} .kw-none{{background:rgba(128,128,128,.12)}}",
        f".{name} .kw-same{{grid-column:1/-1;opacity:.7}}",
    ]
    for n_bytes, rgb in zip(_WIDTHS, COLOURS, strict=False):
        colour = ",".join(map(str, rgb))
        rules.append(
            f".{name} .kw-b{n_bytes}{{background:rgba({colour},.25);border-right-color:rgb({colour})}}"
        )
    for i, number in enumerate(sorted(line_colours(stages))):
        rgb = ",".join(map(str, COLOURS[i % len(COLOURS)]))
        rules.append(f".{name} .kw-l{number}{{background:rgba({rgb},.22);border-left-color:rgb({rgb})}}")
        lit = f"background:rgba({rgb},.6);outline:1px solid rgb({rgb})"
        rules.append(
            f".{name}:has(.kw-l{number}:hover) .kw-l{number},.{name}:has(.kw-p{number}:checked) "
            f".kw-l{number}{{{lit}}}"
        )
    return f"<style>{''.join(rules)}</style>"


def source_html(stages: Stages, name: str) -> str:
    """The source with a radio button on each line that became instructions: arrow keys and clicks
    pick one.
    """
    used = line_colours(stages)
    rows = []
    for line in pane(stages, "source"):
        code = styled("source", line.text) or "&nbsp;"
        if line.number in used:
            pick = (
                f'<input type="radio" class="kw-pick kw-p{line.number}" name="{name}-line" {KEEP_KEYS} '
                f'aria-label="source line {line.number}">'
            )
            rows.append(
                f'<label class="kw-line kw-l{line.number}">{pick}<b>{line.number}</b>  {code}</label>'
            )
        else:
            rows.append(f'<span class="kw-line"><span class="kw-n">   {line.number}</span>  {code}</span>')
    none = (
        f'<label class="kw-line"><input type="radio" class="kw-pick" name="{name}-line" {KEEP_KEYS} '
        "checked>no line picked</label>"
    )
    return _pane("source: point at a line, or pick it", [*rows, none])


def _pane(title: str, rows: list[str], legend: str = "") -> str:
    text = "".join(rows)
    return (
        f'<div class="kw-pane"><div class="kw-title">{html.escape(title)}</div>{legend}'
        f'<div class="kw-text" tabindex="0">{text}</div></div>'
    )


def code_html(stages: Stages, kind: str, before: Stages | None) -> str:
    """PTX or SASS: tinted by source line, lines that are new since `before` marked with a +.

    Each load and store starts with the number of bytes that it moves per thread.
    """
    lines = pane(stages, kind)
    added, gone = news(kind, None if before is None else pane(before, kind), lines)
    wide = len(str(lines[min(len(lines), LONGEST) - 1].number)) if lines else 1
    deep = max((len(str(line.source_line or "")) for line in lines), default=1)
    notes = _memory_notes(stages, kind)
    blank = notes.get(None, "")
    rows = []
    for i, line in enumerate(lines[:LONGEST]):
        tag = f"{line.source_line or '':>{deep}}"
        classes = f"kw-line kw-l{line.source_line}" if line.source_line else "kw-line"
        if i in added:
            classes += " kw-new"
        sign = "+" if i in added else " "
        rows.append(
            f'<span class="{classes}"><span class="kw-sign">{sign}</span><span '
            f'class="kw-n">{line.number:>{wide}}</span>'
            f" <b>{tag}</b> {notes.get(line.number, blank)}{styled(kind, line.text.strip())}</span>"
        )
    if len(lines) > LONGEST:
        rows.append(f'<span class="kw-line kw-n">… and {len(lines) - LONGEST:,} more lines</span>')
    title = TITLES[kind] if before is None else f"{TITLES[kind]}: {len(added)} lines new (+), {gone} gone"
    return _pane(title, rows, _legend())


def _bytes(n: int | None) -> str:
    """The bytes of a lane in front of a load or store: a number, with a colour that says the same."""
    return f'<span class="kw-b kw-b{n}">{n} B</span>' if n else '<span class="kw-b"></span>'


def _memory_notes(stages: Stages, kind: str) -> dict[int | None, str]:
    """Returns the text in front of each load and store by line number; None: in front of all other lines."""
    if kind == "sass":
        widths = {one.line: memory_bytes(one) for one in stages.sass_reading.instructions}
    else:
        spaces = ("global", "shared", "local", "generic")
        widths = {one.line: one.n_bytes for one in stages.reading.instructions if one.space in spaces}
    return {None: _bytes(None), **{line: _bytes(n) for line, n in widths.items()}}


def _legend() -> str:
    """Explains the numbers in front of loads and stores."""
    widths = "".join(_bytes(n) for n in _WIDTHS[2:5])
    return f'<div class="kw-legend">Bytes that a load or store moves per thread: {widths}</div>'


def listings_html(stages: Stages, before: Stages | None) -> str:
    """Returns PTX and SASS, side by side where there is room."""
    return (
        f'<div class="kw-panes">{code_html(stages, "ptx", before)}{code_html(stages, "sass", before)}</div>'
    )


def diff(kind: str, left: Stages, right: Stages, titles: tuple[str, str], *, exact: bool) -> str:
    """Returns PTX or SASS of two positions side by side; `exact` also compares registers and addresses."""
    return diff_html(kind, pane(left, kind), pane(right, kind), titles, exact)


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
    return (
        '<div role="status" style="display:flex;flex-wrap:wrap;gap:0 '
        f'3em;align-items:flex-start">{tables}</div>'
    )


def plain_html(
    axes: Mapping[str, Sequence[str]],
    positions: Sequence[str],
    start: Sequence[int],
    above: str,
    name: str,
) -> str:
    """A page's form: sliders over positions that were compiled beforehand. It needs no kernel and no network.

    Args:
        axes: what stands beside each slider, and the words of its positions.
        positions: the HTML of every position, the last slider's changing fastest.
        start: each slider's first position.
        above: what stands between the sliders and each position: the style sheet, and the source where all
            have the same.
        name: the CSS class of the box.
    """
    steps = [len(words) for words in axes.values()]
    first = 0
    for at, n in zip(start, steps, strict=True):
        first = first * n + at
    # All positions together are compressed: their lines differ little.
    packed = base64.b64encode(zlib.compress(json.dumps(positions).encode(), 9)).decode()
    move = (
        "const b=this.closest('.kw'),s=[...b.querySelectorAll('input[type=range]')];"
        "this.nextElementSibling.textContent=JSON.parse(this.dataset.words)[this.value];"
        "b.kw=b.kw||new Response(new Blob([Uint8Array.from(atob(b.querySelector('template').dataset.packed),"
        "c=>c.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream('deflate'))).json();"
        "b.kw.then(all=>{b.querySelector('.kw-position').innerHTML="
        "all[s.reduce((at,i)=>at*(+i.max+1)+ +i.value,0)]})"
    )
    controls = "".join(
        f'<label style="font:13px sans-serif;display:block;margin:2px 0">{html.escape(what)} '
        f'<input type="range" {KEEP_KEYS} min="0" max="{len(words) - 1}" value="{at}" step="1" '
        f'data-words="{html.escape(json.dumps(list(words)))}" oninput="{html.escape(move)}" '
        f'style="width:20em;vertical-align:middle"> <output>{html.escape(words[at])}</output></label>'
        for (what, words), at in zip(axes.items(), start, strict=True)
    )
    return (
        f'<div class="kw {name}">{controls}{above}'
        f'<div class="kw-position">{positions[first]}</div><template data-packed="{packed}"></template></div>'
    )
