"""Write the repository's address into pyproject.toml, the documents, the forms on GitHub and the notebooks.

Until there is an address, links and badges that need it are not shown. Markdown keeps them in a comment,
`<!-- published: … -->`, and YAML in lines that begin with `# published: `. Publishing removes the comment
marks, so that the text appears.
"""

from __future__ import annotations

import re
from pathlib import Path

from workbook.form import canonical
from workbook.outputs import replace
from workbook.project import load_project

# GitHub's own rules for an account and a repository.
_NAME = re.compile(r"(?!-)(?!.*--)[A-Za-z0-9-]{1,39}(?<!-)/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_TEXTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "environment.yml",
    "docs/**/*.md",
    ".github/**/*.md",
    ".github/**/*.yml",
)
_HIDDEN_MARKDOWN = re.compile(r"^<!-- published:\s+(.*?)\s*-->$", re.MULTILINE | re.DOTALL)
_HIDDEN_YAML = re.compile(r"^# published: ", re.MULTILINE)


def publish(repository: str, root: Path) -> list[str]:
    """Write the address of the repository wherever the workbook names it, and show the links that need it.

    Args:
        repository: `OWNER/REPO`.
        root: The checkout.

    Returns:
        A line for each file that changed; empty if the whole checkout had this address already.

    Raises:
        ValueError: GitHub doesn't allow such a name; nothing was changed.
    """
    if not _NAME.fullmatch(repository) or repository.endswith(".git"):
        raise ValueError(
            f"{repository!r} is not OWNER/REPO. An owner consists of letters, digits and single hyphens, and "
            "a repository of letters, digits, '.', '_' and '-'. Give neither an address nor a name in .git."
        )
    before = load_project(root).repository
    changed = []
    texts = {path: path.read_text("utf-8") for path in _documents(root)}
    for path, text in texts.items():
        stamped = stamp(show_links(text, path.suffix), before, repository)
        if stamped != text:
            replace(path, stamped)
            changed.append(f"{path.relative_to(root)}: {before} is now {repository}.")
    project = load_project(root)
    for path in project.notebooks():
        formed = canonical.canonical(path, project)
        if formed.differences:
            replace(path, formed.text)
            changed.append(f"{path.relative_to(root)}: the badge and the setup cell name {repository}.")
    return changed


def _documents(root: Path) -> list[Path]:
    """pyproject.toml, which has the address, and every document that may name it."""
    found = [path for pattern in _TEXTS for path in sorted(root.glob(pattern)) if path.is_file()]
    return [root / "pyproject.toml", *found]


def show_links(text: str, suffix: str) -> str:
    """Uncomment the parts of a document that are hidden until the repository has an address.

    Args:
        text: The document.
        suffix: The suffix of its file name: ".md" for Markdown, ".yml" or ".cff" for YAML.
    """
    if suffix == ".md":
        return _HIDDEN_MARKDOWN.sub(lambda match: match[1], text)
    return _HIDDEN_YAML.sub("", text)


def stamp(text: str, before: str, after: str) -> str:
    """Replace one repository's address with another's in links to GitHub, Colab and GitHub Pages.

    Links to other repositories stay as they are.
    """
    address = re.compile(rf"(github\.com/|/github/){re.escape(before)}(?![\w-]|\.(?!git\b)\w)")
    text = address.sub(lambda match: match[1] + after, text)
    owner, repository = before.split("/")
    pages = re.compile(
        rf"https://{re.escape(owner)}\.github\.io/{re.escape(repository)}(?![\w.-]*\w)", re.IGNORECASE
    )
    new_owner, new_repository = after.split("/")
    # Host names are lowercase, whatever the account's name looks like.
    return pages.sub(f"https://{new_owner.lower()}.github.io/{new_repository}", text)
