"""Tables formatted to be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from helpers.plots.style import require_columns

if TYPE_CHECKING:
    import pandas as pd
    from pandas.io.formats.style import Styler


# A table of so many columns stands closer, so that it fits a page of 1,000 pixels.
_MANY = 10


def table(df: pd.DataFrame, columns: Mapping[str, str], *, decimals: int | Mapping[str, int] = 1) -> Styler:
    """A table formatted to be read: chosen columns under headings with units, rounded, a dash where there is no value.

    Args:
        df: any table.
        columns: column to heading, in the order shown; the others are left out.
        decimals: places after the point, of all numbers that are not whole, or a number for each column.

    Raises:
        ValueError: a column that the table does not have.

    Example:
        >>> import pandas as pd
        >>> from helpers import plots
        >>> rows = pd.DataFrame({"kernel": ["mine"], "median_us": [1234.5]})
        >>> "1,234.5" in plots.table(rows, {"kernel": "kernel", "median_us": "time (µs)"}, decimals=1).to_html()
        True
    """
    require_columns(df, list(columns), "table")
    shown = df[list(columns)].reset_index(drop=True)
    words = [columns[c] for c in columns if any(isinstance(v, str) for v in shown[c])]
    places = {} if isinstance(decimals, int) else {columns[c]: f"{{:,.{n}f}}" for c, n in decimals.items()}
    styler = shown.rename(columns=dict(columns)).style.hide(axis="index")
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
