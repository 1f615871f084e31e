"""`workbook book`: the executed course as pages that open from disk, without a network.

Sphinx with MyST-NB and sphinx-book-theme makes the pages. `course` reads what goes in, `cells` makes a notebook ready,
`figures` turns a Plotly figure into caption, controls and words, `lexers` colours what cells print, `front` is the first
page, `terms` the glossary's words as pages need them, `extension` what Sphinx loads, `build` all of it in order. `glossary`, `mistakes`, `headlines` and
`reference` each have `pages(root)`: file name to Markdown. `assets` is what the browser loads.
"""

from helpers.workshop.book.build import build_book

__all__ = ["build_book"]
