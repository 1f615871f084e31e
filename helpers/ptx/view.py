"""Displays the stages of kernels side by side, each line tinted by the source line that it came from.

The HTML has inline styles and no script, so it looks the same in Jupyter, on nbconvert's pages and in
GitHub's viewer. The tints are translucent and work on light and dark backgrounds. The palette is that of
Okabe and Ito, and each line also shows the number of its source line, so nothing depends on color alone.
Opcodes are bold.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helpers.ptx.lines import llir_lines, mlir_lines, ptx_lines, sass_lines

if TYPE_CHECKING:
    from helpers.ptx.artifacts import Stages

# Okabe and Ito's palette without black, as red, green, blue.
COLOURS = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
)
TITLES = {
    "source": "source",
    "ttir": "TTIR: what the kernel says",
    "ttgir": "TTGIR: who holds which element",
    "llir": "LLVM IR: one thread's work",
    "ptx": "PTX: a virtual machine's instructions",
    "sass": "SASS: what the GPU runs",
}


@dataclass(frozen=True)
class View:
    """A piece of HTML for a notebook; a terminal shows a one-line summary."""

    html: str = field(repr=False)
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Line:
    """A displayed line: its number in the full text, its source line, and its text without clutter."""

    number: int
    source_line: int | None
    text: str


def pane(stages: Stages, kind: str) -> list[Line]:
    """Returns the lines of a stage that are worth reading, with their source lines.

    It leaves out location tables, debug sections, `.loc`, labels that only carry them, and SASS padding. Line
    numbers are those of the full text, so gaps are visible.
    """
    text = stages.text(kind)
    rows = text.split("\n")
    if kind == "source":
        rows = text.rstrip().split("\n")
        numbers = range(stages.first_line, stages.first_line + len(rows))
        return [
            Line(number, number, row) for number, row in zip(numbers, rows, strict=True) if row or number > 1
        ]
    readers = {"ttir": mlir_lines, "ttgir": mlir_lines, "llir": llir_lines, "ptx": ptx_lines}
    mapped = sass_lines(text, stages.ptx) if kind == "sass" else readers[kind](text)
    show = {"ttir": _mlir, "ttgir": _mlir, "llir": _llir, "ptx": _ptx, "sass": _sass}[kind]
    span = _span(kind, rows, stages.kernel)
    found = []
    for n in span:
        cleaned = show(rows[n])
        if cleaned is not None and cleaned.strip():
            found.append(Line(n + 1, mapped[n], cleaned.expandtabs(4).rstrip()))
    return found


def _span(kind: str, rows: list[str], kernel: str) -> range:
    """Returns which lines of the full text belong to the kernel."""
    if kind == "ptx":
        starts = [
            n for n, row in enumerate(rows) if re.search(rf"\.entry\s+{re.escape(kernel)}(?![\w$])", row)
        ]
        start = starts[0] if starts else 0
        end = next((n for n in range(start, len(rows)) if rows[n].startswith("}")), len(rows) - 1)
        first = next((n for n, row in enumerate(rows) if row.startswith(".version")), start)
        return range(first if len([r for r in rows if ".entry" in r]) == 1 else start, end + 1)
    if kind == "llir":
        start = next(
            (n for n, row in enumerate(rows) if row.startswith("define") and f"@{kernel}(" in row), 0
        )
        end = next((n for n in range(start, len(rows)) if rows[n].startswith("}")), len(rows) - 1)
        return range(start, end + 1)
    return range(len(rows))


def _mlir(row: str) -> str | None:
    if row.startswith("#loc") or row.strip() == "":
        return None
    row = re.sub(r' loc\("[^"]*"\(#loc\d*\)\)', "", row)
    return re.sub(r" loc\((?:#loc\d*|\".*|callsite.*)\)\s*$", "", row)


def _llir(row: str) -> str | None:
    return re.sub(r",? !dbg !\d+", "", row)


def _ptx(row: str) -> str | None:
    bare = row.strip()
    if bare.startswith((".loc", "$L__tmp", "$L__func", "//")):
        return None
    match = re.match(r"\s+((?:@!?\S+\s+)?[a-z][\w.:]*)\s+(.*)$", row)
    return f"    {match[1]:<19} {match[2]}" if match else row


def _sass(row: str) -> str | None:
    if re.search(r"\bNOP\b", row) or not re.match(r"\s*(/\*[0-9a-f]{4,}\*/|\.L_\w+:)", row):
        return None
    return re.sub(r"/\*0*([0-9a-f]{3,})\*/\s{0,19}", r"\1  ", row.strip())


def styled(kind: str, text: str) -> str:
    """Returns the text as HTML with a bold opcode."""
    if kind == "source":
        return html.escape(text)
    opcode = {
        "ptx": r"^(\s*(?:@!?\S+\s+)?)([a-z][\w.:]*)(?=\s|;)",
        "sass": r"^(\s*[0-9a-f]{3,}\s+(?:@!?\w+\s+)?)([A-Z][\w.]*)",
        "llir": r"^(\s*(?:%\S+ = )?(?:tail )?)([a-z]+)(?=\s)",
    }.get(kind, r"^(\s*(?:%\S+ = )?\"?)([a-z]+\.[a-z_]+)(?=[\s\"])")
    match = re.match(opcode, text)
    if match is None:
        return html.escape(text)
    return f"{html.escape(match[1])}<b>{html.escape(match[2])}</b>{html.escape(text[match.end() :])}"


def _pane_html(
    kind: str, title: str, lines: Sequence[Line], colors: dict[int, tuple[int, int, int]], height: str
) -> str:
    number_width = max((len(str(line.number)) for line in lines), default=1)
    source_width = max((len(str(line.source_line or "")) for line in lines), default=1)
    rows = []
    for line in lines:
        rgb = colors.get(line.source_line or -1)
        color = ",".join(map(str, rgb)) if rgb else "0,0,0"
        tint = (
            f"background:rgba({color},.22);border-left:4px solid rgb({color})"
            if rgb
            else "border-left:4px solid transparent"
        )
        line_number = "" if kind == "source" else f"{line.number:>{number_width}} "
        tag = f"{line.source_line if line.source_line else '':>{source_width}}"
        # Spaces between two tags are lost where a page is tidied up, as nbconvert does; these are not.
        indent = "&nbsp;" * (2 + len(line.text) - len(line.text.lstrip()))
        rows.append(
            f'<div style="{tint};padding:0 6px"><span style="opacity:.75">{line_number}</span>'
            f"<b>{tag}</b>{indent}{styled(kind, line.text.lstrip())}</div>"
        )
    return (
        '<div style="min-width:0;border:1px solid rgba(128,128,128,.45);border-radius:4px;overflow:hidden">'
        '<div style="font:600 13px sans-serif;padding:4px 8px;border-bottom:1px solid rgba(128,128,128,.45)">'
        f"{html.escape(title)}</div>"
        f'<div tabindex="0" role="region" aria-label="{html.escape(title)}" '
        f'style="overflow:auto;max-height:{height}"><div style="font:12px/1.45 '
        "ui-monospace,Menlo,Consolas,"
        "'DejaVu Sans Mono',monospace;white-space:pre;width:max-content;min-width:100%;padding:2px 0\">"
        f"{''.join(rows)}</div></div></div>"
    )


def side_by_side(
    *stages: Stages,
    kinds: Sequence[str] = ("source", "ttgir", "ptx", "sass"),
    labels: Sequence[str] | None = None,
    columns: int | None = None,
    height: str = "30em",
) -> View:
    """Displays the stages of one or several kernels; lines from the same source line have the same tint.

    The bold number in front of a line is its source line, the faint one its line in the full text. Several
    kernels get one column each, with `kinds` as rows. A stage that a kernel doesn't have (TTGIR of CUDA C++)
    is left out.

    Args:
        *stages: the results of `stages` or `cuda_stages`.
        kinds: any of "source", "ttir", "ttgir", "llir", "ptx", "sass".
        labels: one title per kernel; by default its name and target.
        columns: panes per row; by default the number of kernels, or two for a single kernel.
        height: the maximum height of a pane before it scrolls, as CSS.

    Raises:
        ValueError: no kernel, an unknown kind, or the wrong number of labels.
    """
    if not stages:
        raise ValueError(
            "side_by_side() needs at least one Stages; pass what stages(...) or cuda_stages(...) returned."
        )
    for kind in kinds:
        if kind not in TITLES:
            raise ValueError(f"There is no stage {kind!r}; choose from {', '.join(TITLES)}.")
    if labels is not None and len(labels) != len(stages):
        raise ValueError(
            f"side_by_side() got {len(stages)} kernels and {len(labels)} labels; give one label for each."
        )
    labels = labels or [f"{one.name} · {one.target}" for one in stages]
    panes, counts = [], []
    for kind in kinds:
        for one, label in zip(stages, labels, strict=True):
            if getattr(one, kind) is None:
                panes.extend(['<div style="min-width:0"></div>'] if len(stages) > 1 else [])
                continue
            lines = pane(one, kind)
            counts.append(f"{kind} {len(lines)} lines")
            title = TITLES[kind] if len(stages) == 1 else f"{label} · {kind}"
            panes.append(_pane_html(kind, title, lines, line_colours(one), height))
    columns = columns or (len(stages) if len(stages) > 1 else min(2, len(panes)))
    names = ", ".join(f"{one.name} ({one.target})" for one in stages)
    style = f"display:grid;grid-template-columns:repeat({columns},minmax(0,1fr));gap:8px;align-items:start"
    grid = f'<div style="{style}">{"".join(panes)}</div>'
    return View(grid, f"{names}: {', '.join(counts)}")


def line_colours(stages: Stages) -> dict[int, tuple[int, int, int]]:
    """Returns a color for each source line. Neighbors differ; the palette repeats after seven."""
    kinds = [kind for kind in ("ttgir", "llir", "ptx") if getattr(stages, kind) is not None]
    used = {line.source_line for kind in kinds for line in pane(stages, kind) if line.source_line}
    last = stages.first_line + stages.source.count("\n")
    inside = sorted(n for n in used if stages.first_line <= n <= last)
    return {n: COLOURS[i % len(COLOURS)] for i, n in enumerate(inside)}
