"""Builds the book with Sphinx from the executed lessons, the labs' starters and the checkout's documents."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from helpers.widgets.shown import page_script
from workbook import outputs
from workbook.book import glossary, headlines, mistakes
from workbook.book.cells import prepared, relinked
from workbook.book.course import CHANGELOG, SOURCES, Course, read_course
from workbook.book.front import front
from workbook.page import BLOCKS
from workbook.project import load_project
from workbook.usage import UsageError

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


@dataclass(frozen=True)
class Book:
    """A built book.

    Attributes:
        index: The first page.
        n_pages: How many pages it has.
        n_bytes: The size of all files together.
        stale: A sentence for each lesson that has changed since it was executed.
        warnings: Sphinx's warnings, for example about a link that leads nowhere.
    """

    index: Path
    n_pages: int
    n_bytes: int
    stale: tuple[str, ...]
    warnings: tuple[str, ...]


def build_book(root: Path, executed: Path, out: Path) -> Book:
    """Build the whole book. A reader of `out` sees either the old book or the new one.

    Args:
        root: The checkout.
        executed: The folder of `workbook run notebooks`, with each lesson executed.
        out: The book's folder; an earlier book there is replaced.

    Raises:
        UsageError: Sphinx is not installed, a lesson was not executed or failed, `out` contains something
            other than a book, or Sphinx cannot build a page.
    """
    _require_sphinx()
    course = read_course(load_project(root), executed)
    _require_replaceable(out)
    outputs.require_writable(out.parent)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as folder:
        source, made = Path(folder) / "source", Path(folder) / "book"
        _write_sources(source, course)
        warnings = _run_sphinx(source, made, course, "html")
        _trim(made)
        _replace(made, out, Path(folder) / "before")
    files = [path for path in out.rglob("*") if path.is_file()]
    n_pages = sum(path.suffix == ".html" for path in files)
    n_bytes = sum(path.stat().st_size for path in files)
    return Book(out / "index.html", n_pages, n_bytes, tuple(course.stale), tuple(warnings))


def check_web_links(root: Path, executed: Path) -> list[str]:
    """A line for each address on the web that doesn't answer, from Sphinx's linkcheck. It needs a network.

    Raises:
        UsageError: As `build_book`.
    """
    _require_sphinx()
    course = read_course(load_project(root), executed)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        _write_sources(source, course)
        return _run_sphinx(source, Path(folder) / "checked", course, "linkcheck")


def _require_sphinx() -> None:
    packages = ("sphinx", "myst_nb", "sphinx_book_theme")
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        raise UsageError(
            f"Sphinx builds the book, and {', '.join(missing)} is not installed. `make book` installs it; in "
            "your own environment, run `pip install -c constraints.txt -e '.[book]'`."
        )


def _require_replaceable(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; give --out a folder.")
    if out.is_dir() and any(out.iterdir()) and not (out / "_static" / "book.js").is_file():
        raise UsageError(
            f"{out} contains something other than a book; give --out an empty folder or a new name."
        )


# ---------------------------------------------------------------------------------------------- sources


def _write_sources(source: Path, course: Course) -> None:
    """Write the folder that Sphinx reads; its layout is the checkout's, so that relative links work."""
    for entry in (*course.lessons.values(), *course.labs.values()):
        path = source / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(prepared(entry, course), path)
    _copy_documents(source, course)
    look_up = _look_up(course)
    for name, text in look_up.items():
        (source / name).write_text(text, "utf-8")
    names = [Path(name).stem for name in look_up]
    (source / "index.md").write_text(front(course, names), "utf-8")
    _write_static(source / "_book")
    for entry in (*course.lessons.values(), *course.labs.values()):
        path = source / "_book" / "ipynb" / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(course.project.root / entry.path, path)
    shutil.copytree(_HERE / "templates", source / "_templates")


def _copy_documents(source: Path, course: Course) -> None:
    """The guide with its pictures."""
    root = course.project.root
    for path in (root / "docs").rglob("*.png"):
        (source / path.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, source / path.relative_to(root))
    for path in course.guide:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(relinked((root / path).read_text("utf-8"), path, course), "utf-8")


def _look_up(course: Course) -> dict[str, str]:
    """The pages to look something up, by file name; a checkout need not have all of them."""
    root = course.project.root
    terms = glossary.terms(root)
    reference, changelog = root / SOURCES / "reference.md", root / CHANGELOG
    pages = {
        "glossary.md": glossary.page(terms) if terms else "",
        "mistakes.md": mistakes.page(root) if mistakes.mistakes(root) else "",
        "headlines.md": headlines.page(course.lessons),
        "reference.md": reference.read_text("utf-8") if reference.is_file() else "",
        CHANGELOG: relinked(changelog.read_text("utf-8"), CHANGELOG, course) if changelog.is_file() else "",
    }
    return {name: text for name, text in pages.items() if text}


def _write_static(folder: Path) -> None:
    """What the browser loads in addition to the theme: style, script, and one plotly.js for all pages."""
    import plotly

    shutil.copytree(_HERE / "assets", folder)
    shutil.copyfile(Path(plotly.__file__).parent / "package_data" / "plotly.min.js", folder / "plotly.min.js")
    (folder / "explorer.js").write_text(page_script(), "utf-8")
    shutil.copyfile(BLOCKS, folder / "blocks.js")


# ---------------------------------------------------------------------------------------------- Sphinx


def _settings(course: Course) -> dict[str, Any]:
    repository = {"repository_url": f"https://github.com/{course.project.repository}"}
    return {
        "project": "Kernel Workbook",
        "author": "Kernel Workbook authors",
        "html_title": "Kernel Workbook",
        "language": "en",
        "extensions": [
            "myst_nb",
            "sphinx.ext.autodoc",
            "sphinx.ext.autosummary",
            "sphinx.ext.napoleon",
            "workbook.book.extension",
        ],
        "exclude_patterns": ["_book", "_templates"],
        "templates_path": ["_templates"],
        "kw_words": glossary.words(course.project.root),
        "nb_execution_mode": "off",
        "nb_merge_streams": True,
        "nb_mime_priority_overrides": [("linkcheck", "text/html", 0)],
        "nb_code_prompt_show": "Show the code",
        "nb_code_prompt_hide": "Hide the code",
        "myst_enable_extensions": ["attrs_block", "deflist"],
        "myst_heading_anchors": 4,
        # Docstrings have Markdown's code in single backticks, which is reStructuredText's default role.
        "default_role": "code",
        "add_module_names": False,
        "autodoc_member_order": "groupwise",
        "autodoc_typehints": "description",
        "autodoc_typehints_description_target": "documented",
        "napoleon_use_ivar": True,
        "napoleon_use_rtype": False,
        "html_theme": "sphinx_book_theme",
        "html_context": {"default_mode": "auto"},
        "html_static_path": ["_book"],
        "html_css_files": ["book.css"],
        "html_js_files": [
            (name, {"defer": "defer"}) for name in ("blocks.js", "book.js", "explorer.js", "questions.js")
        ],
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
            **(repository if course.project.published else {}),
        },
        "suppress_warnings": ["misc.highlighting_failure"],
    }


def _run_sphinx(source: Path, out: Path, course: Course, builder: str) -> list[str]:
    """Run one of Sphinx's builders over the sources.

    Returns:
        Its warnings, a line each.

    Raises:
        UsageError: Sphinx cannot build a page.
    """
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    warnings = io.StringIO()
    with patch_docutils(None), docutils_namespace():
        try:
            app = Sphinx(
                srcdir=source,
                confdir=None,
                outdir=out,
                doctreedir=out / ".doctrees",
                buildername=builder,
                confoverrides=_settings(course),
                status=None,
                warning=warnings,
                parallel=min(4, os.cpu_count() or 1),
            )
            app.build(force_all=True)
        except SphinxError as error:
            raise UsageError(f"Sphinx cannot build the book: {error}") from error
    text = re.sub(r"\x1b\[[\d;]*m", "", warnings.getvalue())
    return [line.removeprefix(f"{source}/") for line in text.splitlines() if line.strip()]


def _trim(book: Path) -> None:
    """Remove what no page loads."""
    for pattern in _NOT_NEEDED:
        for path in [*book.rglob(pattern)] if "*" in pattern else [book / pattern]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _replace(made: Path, out: Path, before: Path) -> None:
    """Put the finished book in its place, and move the earlier one to `before`."""
    if out.exists():
        os.replace(out, before)
    try:
        os.replace(made, out)
    except OSError:
        with contextlib.suppress(OSError):
            os.replace(before, out)
        raise
