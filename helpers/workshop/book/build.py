"""The book from the executed lessons, the labs' starters and the pages that are made from the checkout."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from helpers.workshop import outputs
from helpers.workshop.book import glossary
from helpers.workshop.book.cells import Shelf, prepared
from helpers.workshop.book.course import Entry, read_course
from helpers.workshop.book.front import front, kernels
from helpers.workshop.book.glossary import Term, term_id
from helpers.workshop.book.made import Made, of_course
from helpers.workshop.project import UNPUBLISHED, Project, load_project
from helpers.workshop.usage import UsageError

_HERE = Path(__file__).parent
# What Sphinx and its theme write and no page loads.
_NOT_NEEDED = (
    "*.map",
    "_static/locales",
    ".doctrees",
    "reports",
    "_static/webpack-macros.html",
    "objects.inv",
    ".buildinfo",
)
_WHERE = re.compile(r"^\S*/source/")


@dataclass(frozen=True)
class Book:
    """What was built.

    Attributes:
        index: The first page.
        n_pages: How many pages there are.
        n_bytes: Of all files together.
        says: Sentences for the author: what is stale, and what Sphinx warned of.
    """

    index: Path
    n_pages: int
    n_bytes: int
    says: tuple[str, ...]


def build_book(root: Path, executed: Path, out: Path, make: Callable[[Path, Path], Made] = of_course) -> Book:
    """Make the book anew, whole: a reader of `out` sees the old one or the new one.

    Args:
        root: The checkout.
        executed: The folder of `workbook run notebooks`, with each lesson executed.
        out: The book's folder; what is there is replaced where it is an earlier book.
        make: Makes the pages beside the notebooks' from `root` and `executed`.

    Raises:
        UsageError: Sphinx is not installed, a lesson was not executed or failed, `out` holds something that is no book,
            or a page cannot be made.
    """
    _require_sphinx()
    project = load_project(root)
    lessons, labs, says = read_course(project, executed)
    shelf = Shelf(project, {one.stem: one for one in lessons}, {one.stem: one for one in labs})
    _require_replaceable(out)
    outputs.require_writable(out.parent)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as folder:
        source, made = Path(folder) / "source", Path(folder) / "book"
        pages = make(root, executed)
        _write_sources(source, shelf, pages)
        says += _run_sphinx(source, made, project, pages.terms)
        _trim(made)
        _put(made, out, Path(folder))
    files = [path for path in out.rglob("*") if path.is_file()]
    n_pages = sum(path.suffix == ".html" for path in files)
    return Book(out / "index.html", n_pages, sum(path.stat().st_size for path in files), tuple(says))


def _require_sphinx() -> None:
    lacking = [
        name for name in ("sphinx", "myst_nb", "sphinx_book_theme") if importlib.util.find_spec(name) is None
    ]
    if lacking:
        raise UsageError(
            f"The book is made by Sphinx, and {', '.join(lacking)} is missing here: `make book` sets it up, and "
            "`pip install -c constraints.txt -e '.[book]'` adds it to an environment of your own."
        )


def _require_replaceable(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()) and not (out / "_static" / "book.js").is_file():
        raise UsageError(f"{out} holds something that is no book; give --out an empty folder or a new name.")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; give --out a folder.")


# ---------------------------------------------------------------------------------------------- sources


def _write_sources(source: Path, shelf: Shelf, made: Made) -> None:
    """Write what Sphinx reads."""
    for entry in (*shelf.lessons.values(), *shelf.labs.values()):
        path = source / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(prepared(entry, shelf), path)
    for name, text in (item for texts in made.pages.values() for item in texts.items()):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, "utf-8")
    (source / "index.md").write_text(front(shelf, kernels()) + _lists(shelf, made), "utf-8")
    _write_static(source / "_book", made.terms)


def _lists(shelf: Shelf, made: Made) -> str:
    """The lists of pages for the sidebar and for previous and next, which the first page does not show."""
    parts = {
        "Lessons": [e for e in shelf.lessons.values() if not e.deeper],
        "Deeper": [e for e in shelf.lessons.values() if e.deeper],
        "Labs": list(shelf.labs.values()),
    }
    lists = {heading: [_listed(e) for e in entries] for heading, entries in parts.items() if entries}
    lists |= {heading: [name.removesuffix(".md") for name in texts] for heading, texts in made.pages.items()}
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n" + "\n".join(names) + "\n```\n"
        for heading, names in lists.items()
    )


def _listed(entry: Entry) -> str:
    return f"{entry.name} <{entry.path.removesuffix('.ipynb')}>"


def _write_static(folder: Path, terms: Iterable[Term]) -> None:
    """What the browser loads beside the theme: style, script, the terms' meanings, and plotly.js once for all pages."""
    import plotly

    shutil.copytree(_HERE / "assets", folder)
    shutil.copyfile(Path(plotly.__file__).parent / "package_data" / "plotly.min.js", folder / "plotly.min.js")
    meanings = {term_id(one.term): one.meaning for one in terms}
    (folder / "terms.js").write_text(f"window.kwTerms = {json.dumps(meanings)};\n", "utf-8")


# ---------------------------------------------------------------------------------------------- Sphinx


def _settings(project: Project) -> dict[str, Any]:
    published = project.repository != UNPUBLISHED
    return {
        "project": "Kernel Workbook",
        "author": "Kernel Workbook authors",
        "html_title": "Kernel Workbook",
        "extensions": ["myst_nb", "helpers.workshop.book.extension"],
        "exclude_patterns": ["_book", "_templates"],
        "nb_execution_mode": "off",
        "nb_merge_streams": True,
        "nb_code_prompt_show": "Show the code",
        "nb_code_prompt_hide": "Hide the code",
        "myst_enable_extensions": ["deflist"],
        "myst_heading_anchors": 4,
        "templates_path": ["_templates"],
        "html_theme": "sphinx_book_theme",
        "html_context": {"default_mode": "auto"},
        "html_static_path": ["_book"],
        "html_css_files": ["book.css"],
        "html_js_files": [("terms.js", {"defer": "defer"}), ("book.js", {"defer": "defer"})],
        "html_copy_source": False,
        "html_show_sourcelink": False,
        "html_show_copyright": False,
        "html_use_index": False,
        "html_domain_indices": False,
        "html_theme_options": {
            "use_download_button": False,
            "use_fullscreen_button": False,
            "navbar_persistent": [],
            "home_page_in_toc": True,
            "show_toc_level": 2,
            "pygments_light_style": "a11y-high-contrast-light",
            "pygments_dark_style": "a11y-high-contrast-dark",
            **({"repository_url": f"https://github.com/{project.repository}"} if published else {}),
        },
        "language": "en",
        "suppress_warnings": ["misc.highlighting_failure"],
    }


def _words(terms: Iterable[Term]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Each word of each term with the term, and the pages where it is not marked; phrases that are none with ""."""
    words = {}
    for one in terms:
        elsewhere = [f"{kind}/{lesson}" for lesson in one.not_on for kind in ("notebooks", "labs")]
        words |= dict.fromkeys(one.names(), (one.term, (f"notebooks/{one.lesson}", *elsewhere)))
    return words | dict.fromkeys(glossary.not_in(), ("", ()))


def _run_sphinx(source: Path, out: Path, project: Project, terms: Iterable[Term]) -> list[str]:
    """Run Sphinx over the sources; what it warned of.

    Raises:
        UsageError: a page cannot be made.
    """
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    shutil.copytree(_HERE / "templates", source / "_templates")
    warnings = io.StringIO()
    with patch_docutils(None), docutils_namespace():
        try:
            app = Sphinx(
                srcdir=source,
                confdir=None,
                outdir=out,
                doctreedir=out / ".doctrees",
                buildername="html",
                confoverrides={**_settings(project), "kw_terms": _words(terms)},
                status=None,
                warning=warnings,
                parallel=min(4, os.cpu_count() or 1),
            )
            app.build(force_all=True)
        except SphinxError as error:
            raise UsageError(f"Sphinx cannot make the book: {error}") from error
    said = re.sub(r"\x1b\[[\d;]*m", "", warnings.getvalue())
    return [_WHERE.sub("", line) for line in said.splitlines() if line.strip()]


def _trim(book: Path) -> None:
    """Remove what no page loads."""
    for pattern in _NOT_NEEDED:
        for path in [*book.rglob(pattern)] if "*" in pattern else [book / pattern]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _put(made: Path, out: Path, beside: Path) -> None:
    """Put the finished book into its place; the one before goes with the temporary folder."""
    if out.exists():
        os.replace(out, beside / "before")
    try:
        os.replace(made, out)
    except OSError:
        with contextlib.suppress(OSError):
            os.replace(beside / "before", out)
        raise
