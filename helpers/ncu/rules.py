"""The advice of Nsight Compute's rules, as a table and as HTML."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from helpers.ncu.reader import MARK, Kernel, Report, Rule, launches_of, mark_parts

if TYPE_CHECKING:
    import pandas as pd


def advice(
    report: Report | Kernel,
    kernel: int | Kernel | None = None,
    *,
    from_percent: float = 0.0,
    notes: bool = False,
) -> pd.DataFrame:
    """Returns the advice of ncu's rules (OPT in its own output) as a table.

    For each launch, estimates for the whole kernel come before local ones, and larger before smaller ones.

    Args:
        report: a report, or one of its launches.
        kernel: a launch of the report, or its index; all launches by default.
        from_percent: leave out advice with an estimate below this; advice without an estimate is included.
        notes: also include the rules' notes and warnings.

    Example:
        >>> from helpers import ncu, records
        >>> report = ncu.load_report(records.folder() / "h100" / "ncu" / "advice.ncu-rep")
        >>> set(ncu.advice(report).speedup_type) >= {"global"}
        True
    """
    import pandas as pd

    rows = []
    for k in launches_of(report, kernel):
        for rule in k.rules:
            if rule.kind != "advice" and not notes:
                continue
            if rule.speedup_percent is not None and rule.speedup_percent < from_percent:
                continue
            rows.append(
                {
                    "launch": k.index,
                    "grid_size": ", ".join(map(str, k.grid)),
                    "title": rule.title,
                    "est_speedup_percent": rule.speedup_percent,
                    "speedup_type": rule.speedup_type or "",
                    "message": rule.message,
                    "rule": rule.name,
                    "section": rule.section,
                    "kind": rule.kind,
                    "markup": rule.markup,
                }
            )
    columns = ["launch", "grid_size", "title", "est_speedup_percent", "speedup_type", "message"]
    columns += ["rule", "section", "kind", "markup"]
    # If no advice has an estimate, the column would otherwise contain None instead of NaN.
    table = pd.DataFrame(rows, columns=columns).astype({"est_speedup_percent": float})
    order = {"global": 0, "local": 1, "": 2}
    table = table.assign(_rank=table["speedup_type"].map(order))
    table = table.sort_values(
        ["launch", "_rank", "est_speedup_percent"], ascending=[True, True, False], kind="stable"
    )
    return table.drop(columns="_rank").reset_index(drop=True)


def advice_html(
    report: Report | Kernel,
    kernel: int | Kernel | None = None,
    *,
    from_percent: float = 0.0,
    titles: bool = False,
) -> str:
    """Returns the advice as HTML with links, one collapsible section per launch.

    If there is only one launch, its section is open.

    Args:
        report, kernel, from_percent: as for `advice`.
        titles: Show only the title and the estimate of each piece of advice, without its text.
    """
    launches = launches_of(report, kernel)
    parts = []
    for k in launches:
        rows = advice(k, from_percent=from_percent)
        items = []
        for row in rows.to_dict("records"):
            estimate = row["est_speedup_percent"]
            badge = f"{estimate:.1f} %, {row['speedup_type']}" if estimate == estimate else "no estimate"
            text = "" if titles else f"<br>{readable_html(row['markup'])}"
            items.append(f"<li><b>{html.escape(row['title'])}</b> <small>({badge})</small>{text}</li>")
        n_pieces = "1 piece" if len(rows) == 1 else f"{len(rows)} pieces"
        head = f"{html.escape(k.name)}, grid {', '.join(map(str, k.grid))}: {n_pieces} of advice"
        is_open = " open" if len(launches) == 1 else ""
        parts.append(f"<details{is_open}><summary>{head}</summary><ul>{''.join(items)}</ul></details>")
    return "".join(parts)


def outcome(change: str, before: Kernel, after: Kernel, rule: Rule | None) -> dict[str, str | float]:
    """Returns one row that compares what a rule promised with what a change achieved.

    Times are in µs, and shares of the time are in percent.

    Args:
        change: a description of the change.
        before: the launch that the advice is about.
        after: the launch with the change.
        rule: the advice, or None if ncu gave none.
    """
    estimate = rule.speedup_percent if rule is not None else None
    estimate = float("nan") if estimate is None else estimate
    return {
        "change": change,
        "advice": rule.title if rule is not None else "(none here)",
        "speedup_type": rule.speedup_type if rule is not None else None,
        "estimate_percent": estimate,
        "before_us": before.duration_us,
        "promised_us": before.duration_us * (1 - estimate / 100),
        "came_us": after.duration_us,
        "saved_percent": 100 * (1 - after.duration_us / before.duration_us),
    }


def readable_html(markup: str) -> str:
    """Returns a message as HTML, with links and with section names in italics."""
    pieces, end = [], 0
    for match in MARK.finditer(markup):
        pieces.append(html.escape(markup[end : match.start()]))
        text, address = mark_parts(match)
        label = html.escape(text)
        pieces.append(f'<a href="{html.escape(address)}">{label}</a>' if address else f"<i>{label}</i>")
        end = match.end()
    return "".join([*pieces, html.escape(markup[end:])])
