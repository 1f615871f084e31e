"""Stamp the repository's address everywhere it stands: pyproject.toml, the documents, the forms on GitHub, the notebooks."""

from __future__ import annotations

import re
from pathlib import Path

from helpers.workshop.form import canonical
from helpers.workshop.outputs import replace
from helpers.workshop.project import load_project

# GitHub's own rules for an account and a repository.
_NAME = re.compile(r"(?!-)(?!.*--)[A-Za-z0-9-]{1,39}(?<!-)/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_TEXTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "environment.yml",
    "docs/*.md",
    ".github/**/*.md",
    ".github/**/*.yml",
)


def publish(repository: str, root: Path) -> list[str]:
    """Write `https://github.com/OWNER/REPO` wherever the workbook names its repository.

    Args:
        repository: `OWNER/REPO`.
        root: The checkout.

    Returns:
        A line for each file that changed; empty when the address stood everywhere already.

    Raises:
        ValueError: The name is not one that GitHub allows; nothing was changed.
    """
    if not _NAME.fullmatch(repository) or repository.endswith(".git"):
        raise ValueError(
            f"{repository!r} is not OWNER/REPO: an owner has letters, digits and single hyphens, a repository letters, "
            "digits, '.', '_' and '-', and neither is an address or ends in .git."
        )
    before = load_project(root).repository
    changed = []
    pyproject = root / "pyproject.toml"
    texts = [(pyproject, pyproject.read_text("utf-8"))]
    paths = [path for pattern in _TEXTS for path in sorted(root.glob(pattern)) if path.is_file()]
    texts += [(path, path.read_text("utf-8")) for path in paths]
    for path, text in texts:
        stamped = stamp(text, before, repository)
        if stamped != text:
            replace(path, stamped)
            changed.append(f"{path.relative_to(root)}: {before} is now {repository}.")
    project = load_project(root)
    for path in project.notebooks():
        formed = canonical.canonical(path, project)
        if formed.differences:
            replace(path, formed.text)
            changed.append(f"{path.relative_to(root)}: badge and setup cell name {repository}.")
    return changed


def stamp(text: str, before: str, after: str) -> str:
    """Replace one repository's address by another's in GitHub, Colab and Pages addresses; other repositories stay."""
    address = re.compile(rf"(github\.com/|/github/){re.escape(before)}(?![\w-]|\.(?!git\b)\w)")
    text = address.sub(lambda match: match[1] + after, text)
    owner, repository = before.split("/")
    pages = re.compile(
        rf"https://{re.escape(owner)}\.github\.io/{re.escape(repository)}(?![\w.-]*\w)", re.IGNORECASE
    )
    # A host is written in small letters: github.io is, whatever the account's name looks like.
    return pages.sub("https://{}.github.io/{}".format(after.split("/")[0].lower(), after.split("/")[1]), text)
