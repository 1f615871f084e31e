"""The reference: the public functions and classes of `helpers` from their docstrings, one page a package.

Docstrings are in Google's style: a paragraph, then sections such as `Args:`, `Returns:`, `Raises:` and `Example:`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

# What learners import first; then what runs the course. A module without `__all__` shows what is defined in it.
PACKAGES = (
    "check",
    "timing",
    "plots",
    "trace",
    "cuda",
    "ptx",
    "ncu",
    "widgets",
    "predict",
    "records",
    "lab",
    "device",
    "kernels.ops",
    "workshop.batch",
    "workshop.bench",
    "workshop.grade",
)
_SECTIONS = {
    "Args": "Arguments",
    "Attributes": "Attributes",
    "Returns": "Returns",
    "Yields": "Yields",
    "Raises": "Raises",
    "Example": "Example",
    "Examples": "Example",
}
_LISTED = ("Args", "Attributes", "Raises")
_SECTION = re.compile(rf"^({'|'.join(_SECTIONS)}):[ \t]*$", re.MULTILINE)
_ITEM = re.compile(r"^(\*{0,2}\w[\w.*]*(?:, \*{0,2}\w[\w.*]*)*)(?: \(([^)]*)\))?: ", re.MULTILINE)
_WIDE = 88  # characters of a signature on one line


@dataclass(frozen=True)
class Documented:
    """A docstring in parts.

    Attributes:
        text: what stands before the first section.
        sections: by Google's name, such as "Args", what stands in each, without its indentation.
    """

    text: str
    sections: dict[str, str]

    def items(self, section: str) -> list[tuple[str, str]]:
        """The entries of a section that lists names: (names, meaning), as "Args" does."""
        body = self.sections.get(section, "")
        found = list(_ITEM.finditer(body))
        ends = [match.start() for match in found[1:]] + [len(body)] * bool(found)
        return [(match[1], body[match.end() : end].strip()) for match, end in zip(found, ends, strict=True)]


def public(package: str) -> Iterator[tuple[str, Any]]:
    """The public functions and classes of a package's face, with their names, functions before classes.

    Args:
        package: below `helpers`, such as "check" or "workshop.batch".
    """
    module = importlib.import_module(f"helpers.{package}")
    found = [(name, getattr(module, name)) for name in _names(module)]
    found = [
        (name, one) for name, one in found if (inspect.isclass(one) or callable(one)) and inspect.getdoc(one)
    ]
    yield from (pair for pair in found if not inspect.isclass(pair[1]))
    yield from (pair for pair in found if inspect.isclass(pair[1]))


def _names(module: ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, one in vars(module).items()
        if not name.startswith("_") and callable(one) and getattr(one, "__module__", "") == module.__name__
    ]


def documented(one: Any) -> Documented:
    """The parts of a function's or a class's docstring."""
    doc = inspect.getdoc(one) or ""
    heads = list(_SECTION.finditer(doc))
    ends = [head.start() for head in heads[1:]] + [len(doc)] * bool(heads)
    text = doc[: heads[0].start()].strip() if heads else doc
    sections = {}
    for head, end in zip(heads, ends, strict=True):
        inside, after = _indented(doc[head.end() : end])
        sections[head[1]] = inspect.cleandoc(inside)
        text += f"\n\n{after}" if after else ""
    return Documented(text, sections)


def _indented(text: str) -> tuple[str, str]:
    """A section's own lines, and the paragraphs after it that are not indented."""
    lines = text.splitlines()
    after = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith(" ")), len(lines))
    return "\n".join(lines[:after]), "\n".join(lines[after:]).strip()


def signature(name: str, one: Any) -> str:
    """How it is called, with types and defaults; a line for each parameter where one line would be long."""
    try:
        given = inspect.signature(one)
    except (TypeError, ValueError):
        return f"{name}(…)"
    # Types are written as in the source, where annotations are texts.
    line = re.sub(r": '([^']*)'", r": \1", re.sub(r"-> '([^']*)'", r"-> \1", f"{name}{given}"))
    if len(line) <= _WIDE:
        return line
    parameters, kind = [], None
    for parameter in given.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and kind not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            parameters.append("*")
        kind = parameter.kind
        parameters.append(re.sub(r": '([^']*)'", r": \1", str(parameter)))
    end = re.search(r"\)( -> .*)?$", line)
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parameters) + f"){(end and end[1]) or ''}"


def pages(root: Path) -> dict[str, str]:
    """The reference's pages.

    Args:
        root: the checkout; unused, since docstrings come from the imported package.

    Returns:
        {"reference.md": the list of packages, "reference/check.md": …}, MyST Markdown.
    """
    made = {f"reference/{package}.md": _page(package) for package in PACKAGES}
    lines = [
        "# Reference",
        "",
        "The public functions and classes of `helpers`, from their docstrings. Sizes are in bytes, times in µs and bandwidths in "
        "decimal GB/s (10⁹ bytes a second) wherever a name does not say otherwise. The tests run every example.",
        "",
        "| Package | What is in it |",
        "|---|---|",
    ]
    for package in PACKAGES:
        first = _first_line(importlib.import_module(f"helpers.{package}"))
        lines.append(f'| <a href="reference/{package}.html">helpers.{package}</a> | {_prose(first)} |')
    return {"reference.md": "\n".join([*lines, ""]), **made}


def _first_line(one: Any) -> str:
    return (inspect.getdoc(one) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def _page(package: str) -> str:
    module = importlib.import_module(f"helpers.{package}")
    lines = [f"# helpers.{package}", "", _prose(_first_line(module)), ""]
    for name, one in public(package):
        lines += [f"## {name}", "", "```python", signature(name, one), "```", "", *_body(documented(one))]
        if inspect.isclass(one):
            lines += _members(one)
    return "\n".join(lines)


def _body(parts: Documented) -> list[str]:
    lines = [_prose(parts.text), ""]
    for section, title in _SECTIONS.items():
        if section not in parts.sections:
            continue
        lines += [f"**{title}**", ""]
        if section.startswith("Example"):
            lines += ["```pycon", parts.sections[section], "```", ""]
        elif section in _LISTED and (items := parts.items(section)):
            for names, meaning in items:
                code = ", ".join(f"`{name}`" for name in names.split(", "))
                lines.append(f"- {code}: {_prose(' '.join(meaning.split()))}")
            lines.append("")
        else:
            lines += [_prose(parts.sections[section]), ""]
    return lines


def _members(one: type) -> list[str]:
    """The public methods and properties of a class, a line each."""
    lines = []
    for name, member in vars(one).items():
        plain = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(plain) or not plain.__doc__:
            continue
        call = name if isinstance(member, property) else f"{name}(…)"
        lines.append(f"- `{call}`: {_prose(_first_line(plain))}")
    return [*lines, ""] if lines else []


def _prose(text: str) -> str:
    """A docstring's text as Markdown: code in backticks stays, what else looks like markup is meant as it stands."""
    parts = re.split(r"(``[^`]+``|`[^`\n]+`)", text)
    return "".join(part if i % 2 else re.sub(r"([<>*_\[\]$])", r"\\\1", part) for i, part in enumerate(parts))
