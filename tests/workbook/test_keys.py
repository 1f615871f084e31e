"""workbook.form.keys: which lesson asks what is written down, of all lessons together."""

from __future__ import annotations

import json

import nbformat
from commands import LESSONS, ROOT
from small_checkout import BADGE, code

from workbook.form import files, keys

ASK = 'predict.ask("{}", "How many sectors?", unit="sectors")'


def test_which_lesson_asks_what_is_written_down(checkout, monkeypatch):
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


def test_the_package_knows_what_the_lessons_ask():
    asked = {path.stem: keys.asked(nbformat.read(path, as_version=4)) for path in LESSONS}
    assert not keys.differ(ROOT, asked), "run `workbook form`"
