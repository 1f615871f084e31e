"""Does anything in a set name a person or their machine? Also inside reports, compressed traces and archives."""

from __future__ import annotations

import contextlib
import getpass
import gzip
import io
import json
import re
import socket
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from helpers.workshop.offered.reading import Offer, Problem

# First folders that say nothing about whose machine it is. `notebooks` is what a recorded checkout is called.
_NEUTRAL = (
    "usr",
    "opt",
    "tmp",
    "notebooks",
    "lib",
    "lib64",
    "bin",
    "sbin",
    "dev",
    "proc",
    "sys",
    "etc",
    "var",
    "content",
)
_PATH = re.compile(r"(?<![\w/.<>:*@-])/([A-Za-z_][\w.+-]*)((?:/[\w.+@~-]+)+)")
# In a binary file only the folders that people's files are in: other bytes look like short paths by chance.
_PERSONAL = re.compile(
    r"(?<![\w.-])/(?:home|Users|root|work|workspace|mnt|media|srv|scratch|data|lustre|gpfs|nfs|export|projects?|storage)"
    r"/[\w.+@~-]{2,}(?:/[\w.+@~-]+)*",
    re.ASCII,
)
# A member of a JSON object that says whose it is.
_NAMED = re.compile(
    r'"(?:host_?name|computer_?name|user_?name|user|login|home|cwd)"\s*:\s*"[^"\s][^"]*"', re.IGNORECASE
)
_ALWAYS = {
    "the path of a person's folder": re.compile(r"[A-Za-z]:(?:\\{1,2})Users(?:\\{1,2})[\w .-]{2,}"),
    "a user's name": re.compile(r"torchinductor_(?!root\b)[A-Za-z]\w{2,}"),
    "one GPU's own number": re.compile(r"\bGPU-[0-9a-f]{8}-[0-9a-f]{4}-"),
}
_IN_TEXTS = {
    "an e-mail address": re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.(?:[\w-]+\.)*[A-Za-z]{2,}\b"),
    "an address in a private network": re.compile(
        r"(?<![\w.])(?:10\.\d+|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3}(?![\w.])"
    ),
    "a machine's or a user's name": _NAMED,
}
_ANYBODY = (
    "root",
    "user",
    "users",
    "ubuntu",
    "debian",
    "admin",
    "runner",
    "jovyan",
    "nobody",
    "localhost",
    "nvidia",
)
_DEEPEST, _LONGEST = 3, 100_000_000  # archives in archives, and bytes of one member, that are looked into


def problems(offer: Offer, names: tuple[str, ...] | None = None) -> Iterator[Problem]:
    """Paths, names, addresses: one sentence for each kind and file, with the first that was found.

    Args:
        offer: the set.
        names: words that name this machine and its user; found here where None, since a set is mostly checked where it was
            made.
    """
    words = this_machine() if names is None else names
    for path in offer.files():
        where = path.relative_to(offer.folder).as_posix()
        said = set()
        for inside, content in _members(path.name, path.read_bytes()):
            for what, found in _found(inside, content, words):
                if what not in said:
                    said.add(what)
                    member = "" if inside == path.name else f" (in {inside})"
                    yield Problem(
                        "private",
                        where,
                        f"{where}{member} holds {what}, {found!r}: record it again in a neutral folder and account, such as a "
                        "container's /tmp, or take it out.",
                    )


def this_machine() -> tuple[str, ...]:
    """The words that name this machine and its user, without those that name anybody's."""
    found = {socket.gethostname(), socket.gethostname().partition(".")[0], Path.home().name}
    with contextlib.suppress(KeyError, OSError):  # a container's user id may have no name
        found.add(getpass.getuser())
    return tuple(sorted(word for word in found if len(word) > 3 and word.lower() not in _ANYBODY))


def _members(name: str, content: bytes, depth: int = 0) -> Iterator[tuple[str, bytes]]:
    """A file's bytes, and those of what is packed in it, as far as it can be unpacked."""
    yield name, content
    if depth == _DEEPEST:
        return
    if content[:2] == b"\x1f\x8b":
        try:
            with gzip.open(io.BytesIO(content)) as packed:
                header = content[10 : content.index(b"\0", 10)] if content[3] & 8 else b""
                if header:  # the name that the file had when it was packed
                    yield f"{name}'s own name", header
                yield from _members(name.removesuffix(".gz"), packed.read(_LONGEST), depth + 1)
        except (OSError, EOFError, zlib.error, ValueError):
            return  # `plausible` says that it does not open
    elif zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            for member in packed.infolist():
                if member.file_size <= _LONGEST and not member.flag_bits & 1:
                    yield from _members(f"{name}/{member.filename}", packed.read(member), depth + 1)


def _found(name: str, content: bytes, words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """What is private in one text or binary: (what it is, what was found)."""
    try:
        text, binary = content.decode("utf-8"), False
    except UnicodeDecodeError:
        # Latin-1 keeps every byte; without zeros, what is written in UTF-16 can be read too.
        text, binary = content.decode("latin-1"), True
        text += "\n" + text.replace("\0", "")
    raw = text
    if not binary and (read := _strings(text)) is not None:
        text = read
    for what, pattern in {**_ALWAYS, **({} if binary else _IN_TEXTS)}.items():
        if match := pattern.search(text) or pattern.search(raw if pattern is _NAMED else ""):
            yield what, match[0]
    if binary:
        if match := _PERSONAL.search(text):
            yield "the path of a person's folder", match[0]
    else:
        for match in _PATH.finditer(text):
            if match[1] not in _NEUTRAL:
                yield "a path of the machine", match[0]
                break
    for word in words:
        if match := re.search(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", text):
            yield "a name of this machine or its user", match[0]


def _strings(text: str) -> str | None:
    """All texts in a JSON document, keys too, a line each: as they are, without JSON's escapes. None where it is no JSON."""
    try:
        left, found = [json.loads(text)], []
    except (ValueError, RecursionError):
        return None
    while left:
        value = left.pop()
        if isinstance(value, dict):
            found += value.keys()
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str):
            found.append(value)
    return "\n".join(found)
