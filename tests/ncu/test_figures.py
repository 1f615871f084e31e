"""The summary to be read, and figures of a launch."""

from __future__ import annotations

import pytest

from helpers.ncu import figures


def test_the_summary_to_be_read_has_ncus_columns(report):
    html = figures.summary_table(report).to_html()
    assert "est. speedup (%)" in html and "demangled name" in html and "4096, 1, 1" in html


@pytest.mark.parametrize("draw", ["draw_over_time", "draw_occupancy", "draw_hot_instructions"])
def test_figures_of_a_launch_are_plain_json_with_units(report, draw):
    fig = getattr(figures, draw)(report[4], title="a launch")
    assert fig.to_json() and len(fig.data) > 1
    assert any(axis.title.text and "%" in axis.title.text for axis in fig.select_yaxes())
