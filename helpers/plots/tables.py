"""Formatted tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from helpers.plots.style import require_columns

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler


# Tables with at least this many columns get less padding, so that they fit a page of 1,000 pixels.
_MANY = 10


def table(df: pd.DataFrame, columns: Mapping[str, str], *, decimals: int | Mapping[str, int] = 1) -> Styler:
    """Returns a formatted table of selected columns.

    Columns get readable headings, numbers are rounded, and missing values become dashes.

    Args:
        df: any table.
        columns: column to heading, in display order; other columns are left out.
        decimals: the number of decimal places for non-integers, or one number per column.

    Raises:
        ValueError: the table lacks a column.

    Example:
        >>> import pandas as pd
        >>> from helpers import plots
        >>> rows = pd.DataFrame({"kernel": ["mine"], "median_us": [1234.5]})
        >>> titles = {"kernel": "kernel", "median_us": "time (µs)"}
        >>> "1,234.5" in plots.table(rows, titles, decimals=1).to_html()
        True
    """
    require_columns(df, list(columns), "table")
    visible = df[list(columns)].reset_index(drop=True)
    words = [columns[c] for c in columns if any(isinstance(v, str) for v in visible[c])]
    places = {} if isinstance(decimals, int) else {columns[c]: f"{{:,.{n}f}}" for c, n in decimals.items()}
    styler = visible.rename(columns=dict(columns)).style.hide(axis="index")
    styler.format(
        places or None,
        precision=decimals if isinstance(decimals, int) else 1,
        thousands=",",
        na_rep="–",
        escape="html",
    )
    left = [{"selector": "th, td", "props": "text-align: left"}]
    styler.set_table_styles({word: left for word in words} if words else [])
    if len(columns) >= _MANY:
        styler.set_table_styles([{"selector": "th, td", "props": "padding: 0.4em 3px"}], overwrite=False)
    return styler
