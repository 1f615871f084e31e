"""`workbook book`: the executed course as pages that open from disk, without a network.

Sphinx with MyST-NB and sphinx-book-theme makes the pages. `course` reads what goes in, `cells` makes a notebook ready,
`figures` turns a Plotly figure into caption, controls and words, `lexers` colours what cells print, `front` is the first
page, `extension` what Sphinx loads, `build` all of it in order; `assets` is what the browser loads.

`made` collects the pages that are made from the checkout: `glossary`, `mistakes`, `headlines` and `reference` each have
`pages(root)`, file name to Markdown; `places` knows the anchors that their links lead to. `links` finds links that lead
nowhere, in the sources and in a built book.
"""

from helpers.workshop.book.build import build_book

__all__ = ["build_book"]
