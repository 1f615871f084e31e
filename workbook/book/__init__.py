"""`workbook book`: the executed course as a book that opens from disk, without a network.

Sphinx builds the pages, with MyST-NB and sphinx-book-theme. `build` writes what Sphinx reads and runs it.
`course` reads the lessons and labs, `cells` prepares a notebook, `plotly_html` turns a Plotly figure into
HTML with controls and a description, and `lexers` colors PTX, SASS and CUDA C++. `front`, `glossary`,
`mistakes` and `headlines` each write a page; their text is in `docs/book`. Sphinx loads `extension`, and the
browser loads `assets`.
"""

from workbook.book.build import build_book, check_web_links

__all__ = ["build_book", "check_web_links"]
