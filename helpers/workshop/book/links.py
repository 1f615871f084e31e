"""Links that lead nowhere: in the sources and in a built book without a network, on the web by a command run by hand.

`broken` looks at a folder of HTML pages, `broken_in_sources` at the documents and notebooks of a checkout, `unreachable` asks
the web for each address that `addresses` finds in them.
"""

from __future__ import annotations

import concurrent.futures
import html.parser
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from helpers.workshop.project import UNPUBLISHED

# Where the sources' links are. Starters are derived from solutions, and looked at all the same: a learner reads them.
_DOCUMENTS = ("*.md", "docs/*.md", ".github/**/*.md", ".github/**/*.yml")
_NOTEBOOKS = ("notebooks/*.ipynb", "labs/*.ipynb", "labs/solutions/*.ipynb")
_CODE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2[^\n]*$|`+[^`\n]*`+", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"")
_BARE = re.compile(r"https?://[^\s<>()\[\]\"'`]+[^\s<>()\[\]\"'`.,;:!?]")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_EXPLICIT = re.compile(r"<\w+\b[^>]*?\b(?:id|name)=\"([^\"]+)\"")
# A cell's anchor on the pages that nbconvert makes, and in the book.
_CELL = ("cell-id=", "cell-")
_PATIENCE_S, _AT_ONCE = 20, 8
_AGENT = "Mozilla/5.0 (compatible; kernel-workbook links)"  # some sites refuse Python's own name


@dataclass(frozen=True)
class Source:
    """A text of the checkout: a document, or a notebook's Markdown with the names of its cells."""

    path: Path
    text: str
    cells: tuple[str, ...] = ()

    def anchors(self) -> set[str]:
        """The places in it that a link can name."""
        prose = _CODE.sub(lambda match: match[0] if "\n" not in match[0] else "", self.text)
        found = set(_EXPLICIT.findall(prose)) | {begin + cell for cell in self.cells for begin in _CELL}
        if self.path.suffix == ".ipynb":
            # JupyterLab's: the heading's words, joined
            return found | {heading.replace(" ", "-") for heading in _HEADING.findall(prose)}
        count: dict[str, int] = {}
        for heading in _HEADING.findall(prose):
            # GitHub's: small letters, no punctuation, the second of a name with -1
            plain = re.sub(r"\]\([^)]*\)|[^\w\- ]", "", heading.lower()).replace(" ", "-")
            found.add(f"{plain}-{count[plain]}" if plain in count else plain)
            count[plain] = count.get(plain, 0) + 1
        return found

    def links(self) -> Iterator[str]:
        """The targets of its links and images, without what stands in code."""
        for match in _LINK.finditer(_CODE.sub("", self.text)):
            yield match[1] or match[2]


def sources(root: Path) -> list[Source]:
    """The documents and notebooks of a checkout."""
    found = [
        Source(path, path.read_text("utf-8"))
        for pattern in _DOCUMENTS
        for path in sorted(root.glob(pattern))
        if path.is_file()
    ]
    for path in (path for pattern in _NOTEBOOKS for path in sorted(root.glob(pattern))):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        found.append(Source(path, text, tuple(cell.get("id", "") for cell in cells)))
    return found


def broken_in_sources(root: Path) -> list[str]:
    """A sentence for each link of a document or a notebook to a file or a place that is not in the checkout.

    Args:
        root: the checkout.
    """
    root = root.resolve()
    known = {source.path.resolve(): source for source in sources(root)}
    said = []
    for path, source in known.items():
        for link in source.links():
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            aim = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            where = f"{path.relative_to(root)}: {link}"
            if not aim.is_relative_to(root):
                said.append(f"{where} leaves the checkout.")
            elif not aim.exists():
                said.append(f"{where} leads nowhere.")
            elif parts.fragment and aim in known and unquote(parts.fragment) not in known[aim].anchors():
                said.append(f"{where}: {aim.relative_to(root)} has no place of that name.")
    return said


class _Page(html.parser.HTMLParser):
    """What an HTML page links to, and the places in it that a link can name."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if value and (name == "id" or (name == "name" and tag == "a")):
                self.ids.add(value)
            if value and ((name == "href" and tag in ("a", "link", "area")) or name in ("src", "poster")):
                self.links.append(value)


def broken(folder: Path) -> list[str]:
    """A sentence for each link of a folder's HTML pages to a file or a place in a page that is not in the folder.

    Addresses on the web are not looked at, nor are links that a script makes.

    Args:
        folder: a built book, or any folder of pages.
    """
    folder = folder.resolve()
    # Sphinx keeps templates of its theme under _static, which are no pages.
    pages = {
        path: _Page(path.read_text("utf-8", errors="replace"))
        for path in sorted(folder.rglob("*.html"))
        if "_static" not in path.relative_to(folder).parts
    }
    said = []
    for path, page in pages.items():
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            where = f"{path.relative_to(folder)}: {link}"
            if parts.path.startswith("/"):
                said.append(
                    f"{where} begins at the disk's top: it leads nowhere once the folder lies elsewhere."
                )
                continue
            aim = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            aim = aim / "index.html" if aim.is_dir() else aim
            if not aim.is_relative_to(folder):
                said.append(f"{where} leaves the folder.")
            elif not aim.is_file():
                said.append(f"{where} leads nowhere.")
            elif aim in pages and (place := unquote(parts.fragment)) and place not in pages[aim].ids:
                said.append(f"{where}: {aim.relative_to(folder)} has no place of that name.")
    return said


def addresses(root: Path) -> dict[str, list[str]]:
    """The web addresses in a checkout's documents and notebooks, each with the files that name it.

    Left out are the repository's own before it is published.
    """
    found: dict[str, list[str]] = {}
    for source in sources(root):
        text = _CODE.sub("", source.text)
        linked = [link for link in source.links() if link.startswith(("http://", "https://"))]
        # What stands bare is no link that is written out.
        bare = _BARE.findall(_LINK.sub(" ", text))
        for address in dict.fromkeys([*linked, *bare]):
            if UNPUBLISHED not in address:
                found.setdefault(address, []).append(str(source.path.relative_to(root)))
    return dict(sorted(found.items()))


def unreachable(found: Mapping[str, Iterable[str]]) -> list[str]:
    """Ask the web for each address; a sentence for each that does not answer, or not with a page. It needs a network.

    Args:
        found: what `addresses` gave.
    """
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        pages = dict.fromkeys(address.partition("#")[0] for address in found)
        answers = dict(zip(pages, pool.map(_ask, pages), strict=True))
    return [
        f"{', '.join(where)}: {address} {answer}."
        for address, where in found.items()
        if (answer := answers[address.partition("#")[0]])
    ]


def _ask(address: str) -> str:
    """What is wrong with an address; "" where it answers."""
    for method in ("HEAD", "GET"):  # some servers know no HEAD
        request = urllib.request.Request(address, method=method, headers={"User-Agent": _AGENT})
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S):
                return ""
        except urllib.error.HTTPError as error:
            answer = f"answers {error.code}"
        except (urllib.error.URLError, OSError, ValueError) as error:
            answer = f"does not answer ({getattr(error, 'reason', error)})"
    return answer
