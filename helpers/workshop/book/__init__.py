"""The course as a book: pages that are made from the lessons, the records and the docstrings, and a look at its links.

`glossary`, `mistakes`, `headlines` and `reference` each have `pages(root)`, file name to Markdown; `places` knows the anchors
that their links lead to. `links` finds links that lead nowhere, in the sources and in a built book.
"""
