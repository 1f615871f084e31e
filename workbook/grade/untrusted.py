"""What a learner's process sent: looked at before it is read, and copied without anything of the
learner's.
"""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import fields
from typing import Any

import torch

from helpers.exercises.model import Outcome
from workbook.grade.texts import clean
from workbook.grade.worker import MAX_BYTES

_MAX_LISTED = 16 << 20  # bytes of a reply's table of contents
_MAX_NODES, _MAX_DEPTH, _MAX_TEXT = 200_000, 40, 1_000_000


def is_plain_zip(payload: bytes) -> bool:
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
        with zipfile.ZipFile(io.BytesIO(payload)) as found:
            parts = found.infolist()
    except Exception:  # whatever a forged one makes the reader raise
        return False
    stored = all(part.compress_type == zipfile.ZIP_STORED for part in parts)
    return stored and sum(part.file_size for part in parts) <= len(payload)


def outcome_of(raw: Any) -> Outcome:
    """An outcome from what the learner's process sent.

    Raises:
        ValueError: It is no outcome: it has another shape or type, or is larger than an answer can be.
    """
    if type(raw) is not dict or set(raw) != {field.name for field in fields(Outcome)}:
        raise ValueError("it is no outcome")
    plain = _Plain()
    values = {name: plain.copy(value) for name, value in raw.items()}
    expected = {"error": str, "error_type": str, "args_after": tuple, "facts": dict, "line": int}
    for name, kind in expected.items():
        if type(values[name]) is not kind:
            raise ValueError(f"its {name} is a {type(values[name]).__name__}")
    values["error"] = values["error"][:4000]
    return Outcome(**values)


class _Plain:
    """Copies values of plain types and plain tensors, and counts their parts: all of an outcome's go into one
    count.
    """

    def __init__(self) -> None:
        self._n_parts = 0

    def copy(self, value: Any, depth: int = 0) -> Any:
        """A copy without anything of the learner's.

        Raises:
            ValueError: It is of another type, nested too deep or too large.
        """
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
    return _Plain().copy(value)
