"""Messages between a process that we trust and one that we don't: sent as a frame, and checked before they
are read.

A message is eight bytes of length and a dict written by `torch.save`. The trusted side loads it with
`weights_only=True`, and only after `is_plain_zip` has accepted its bytes.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from workbook.sandbox.texts import clean

MAX_BYTES = 512 * 2**20  # of one message
PART_BYTES = 1 << 20  # of one read or write
_LENGTH = struct.Struct(">Q")
_MAX_LISTED = 16 << 20  # bytes of a message's table of contents
_MAX_NODES, _MAX_DEPTH, _MAX_TEXT = 200_000, 40, 1_000_000


class Source(io.RawIOBase):
    """Bytes as a file that is read without another copy of them: a message may be hundreds of megabytes."""

    def __init__(self, payload: bytes | bytearray) -> None:
        self._view, self._at = memoryview(payload), 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """Its position can be changed."""
        return True

    def readinto(self, into: Any) -> int:
        """Copy the next bytes, as many as there are and fit."""
        into = memoryview(into).cast("B")
        n = max(0, min(len(into), len(self._view) - self._at))
        into[:n] = self._view[self._at : self._at + n]
        self._at += n
        return n

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position."""
        self._at = offset + (0, self._at, len(self._view))[whence]
        return self._at

    def tell(self) -> int:
        """The position."""
        return self._at


def receive(fd: int, read: Callable[[int, list[memoryview]], int] = os.readv) -> bytearray | None:
    """The next message's bytes, or None at the end of the pipe."""
    head = _exactly(fd, _LENGTH.size, read)
    return None if head is None else _exactly(fd, _LENGTH.unpack(head)[0], read)


def _exactly(fd: int, n: int, read: Callable[[int, list[memoryview]], int]) -> bytearray | None:
    found = bytearray(n)
    rest = memoryview(found)
    while rest:
        told = read(fd, [rest[:PART_BYTES]])
        if not told:
            return None
        rest = rest[told:]
    return found


def frame(message: Any, save: Callable[[Any, Any], object]) -> memoryview:
    """A message as it goes through the pipe.

    Args:
        message: what is sent.
        save: `torch.save`.
    """
    buffer = io.BytesIO()
    buffer.write(bytes(_LENGTH.size))
    save(message, buffer)
    view = buffer.getbuffer()
    _LENGTH.pack_into(view, 0, len(view) - _LENGTH.size)
    return view


def is_plain_zip(payload: bytes | bytearray) -> bool:
    """Whether this is a zip as torch.save makes it: nothing compressed, and no part of it used twice.

    So reading it takes no more memory than its own size.
    """
    if not payload.startswith(b"PK") or payload[-22:-18] != b"PK\5\6":
        return False
    listed = [struct.unpack("<I", payload[-10:-6])[0]]
    if payload[-42:-38] == b"PK\6\7" and len(payload) >= 98:
        listed.append(struct.unpack("<Q", payload[-58:-50])[0])
    if max(listed) > _MAX_LISTED:
        return False
    try:
        with zipfile.ZipFile(Source(payload)) as found:
            parts = found.infolist()
    except Exception:  # whatever a forged one makes the reader raise
        return False
    stored = all(part.compress_type == zipfile.ZIP_STORED for part in parts)
    return stored and sum(part.file_size for part in parts) <= len(payload)


class Plain:
    """Copies values of plain types and plain tensors, and counts their parts: all of an outcome's go into one
    count.
    """

    def __init__(self) -> None:
        self._n_parts = 0

    def copy(self, value: Any, depth: int = 0) -> Any:
        """A copy without anything of the sender's.

        Raises:
            ValueError: It is of another type, nested too deep or too large.
        """
        import torch

        self._n_parts += 1
        if self._n_parts > _MAX_NODES or depth > _MAX_DEPTH:
            raise ValueError("it has too many parts")
        if value is None or type(value) in (bool, int, float, complex):
            return value
        if type(value) is str:
            if len(value) > _MAX_TEXT:
                raise ValueError("it holds a text of more than a million characters")
            return clean(value)
        if type(value) in (list, tuple):
            return type(value)(self.copy(one, depth + 1) for one in value)
        if type(value) is torch.Size:
            return tuple(value)
        if type(value) is dict:
            return {self.copy(k, depth + 1): self.copy(v, depth + 1) for k, v in value.items()}
        if type(value) is torch.Tensor:
            if value.layout is not torch.strided or value.numel() * value.element_size() > MAX_BYTES:
                raise ValueError("it holds a tensor that is sparse or too large")
            return value.detach()
        raise ValueError(f"it holds a {type(value).__name__}")


def plain(value: Any) -> Any:
    """A copy of plain values and plain tensors.

    Raises:
        ValueError: it holds something else, or is larger than an answer can be.
    """
    return Plain().copy(value)
