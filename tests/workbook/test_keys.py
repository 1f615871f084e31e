"""workbook.form.keys: which lesson asks what is written down, of all lessons together."""

from __future__ import annotations

import json

import nbformat
from small_checkout import BADGE, code

from workbook.form import files, keys

ASK = 'predict.ask("{}", "How many sectors?", unit="sectors")'


def test_form_writes_which_lesson_asks_what(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    badge = BADGE.format("https://colab.research.google.com/github/x/y")
    for name, key in (("01_x", "sectors"), ("02_y", "lines")):
        cells = [nbformat.v4.new_markdown_cell(f"# T\n\n{badge}", id="title"), code("", "setup", "setup")]
        cells.append(code(ASK.format(key), "ask"))
        path = checkout / "notebooks" / f"{name}.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        files.form([path])
    assert not (checkout / keys.KEYS).exists()  # one lesson alone does not say what all ask
    written, _, _ = files.form([])
    assert keys.KEYS in written
    assert json.loads((checkout / keys.KEYS).read_text()) == {"01_x": ["sectors"], "02_y": ["lines"]}
    assert files.form([], check=True)[1] == []
    (checkout / keys.KEYS).write_text("{}")
    (difference,) = files.form([], check=True)[1]
    assert difference.startswith(keys.KEYS)
