"""Search the files of a set for names of people and machines, including compressed and binary files."""

from __future__ import annotations

import contextlib
import gzip
import re
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path

from workbook.records_check.complete import Problem

_HOMES = "home|Users|root|work|workspace|mnt|media|srv|scratch|data|lustre|gpfs|nfs|export|projects?|storage"
_PRIVATE = {
    "a path in a personal folder": rf"(?<![\w.-])/(?:{_HOMES})/[\w.+@~-]{{2,}}(?:/[\w.+@~-]+)*"
    r"|[A-Za-z]:\\{1,2}Users\\{1,2}[\w .-]{2,}",
    "a user name": r"torchinductor_(?!root\b)[A-Za-z]\w{2,}",
    "a host or user name": r'(?i)"(?:host_?name|computer_?name|user_?name|user|login)"\s*:\s*"[^"\s][^"]*"',
}
_PRIVATE_IN_TEXT = {  # in binary files, random bytes look like this
    "an e-mail address": r"(?<![\w.+-])[\w.+-]+@[\w-]+\.(?:[\w-]+\.)*[A-Za-z]{2,}\b"
}
# Names that say nothing about whose machine it is.
_GENERIC = ("root", "user", "ubuntu", "debian", "admin", "runner", "jovyan", "nobody", "localhost", "nvidia")


def problems(folder: Path, names: tuple[str, ...]) -> Iterator[Problem]:
    """Find personal data: one problem for each file and kind.

    Args:
        folder: the set.
        names: words that identify the machine and the user, such as `names_of_this_machine()`.
    """
    words = "|".join(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])" for name in names)
    private = _PRIVATE | ({"the name of this machine or user": words} if words else {})
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        text, is_binary = _read(path)
        for what, pattern in (private if is_binary else private | _PRIVATE_IN_TEXT).items():
            if match := re.search(pattern, text, re.ASCII):
                where = path.relative_to(folder).as_posix()
                sentence = f"{where} contains {what}, {match[0]!r}; record it again in a neutral folder."
                yield Problem("private", where, sentence)


def names_of_this_machine() -> tuple[str, ...]:
    """The names of this machine and its user, except for generic ones such as "ubuntu"."""
    host = socket.gethostname()
    found = {host, host.partition(".")[0], Path.home().name}
    return tuple(sorted(name for name in found if len(name) > 3 and name.lower() not in _GENERIC))


def _read(path: Path) -> tuple[str, bool]:
    """A file's content as text, and whether it is binary."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        with contextlib.suppress(OSError, EOFError, zlib.error):  # a damaged file is searched as it is
            content = gzip.decompress(content)
    try:
        # JSON escapes line breaks and sometimes slashes, which would hide the start of a path.
        return re.sub(r"\\[nrt]", "\n", content.decode("utf-8")).replace("\\/", "/"), False
    except UnicodeDecodeError:
        text = content.decode("latin-1")
        return text + "\n" + text.replace("\0", ""), True  # the second part makes UTF-16 readable
