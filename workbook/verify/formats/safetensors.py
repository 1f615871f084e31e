"""Read single tensors from .safetensors files.

The format, as the project huggingface/safetensors documents it in its README: 8 bytes with the length of a
header, a header in JSON with each tensor's dtype, shape and place, and the tensors' bytes.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import torch

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_LFS = b"version https://git-lfs"


class Unreadable(Exception):
    """A tensor can't be had; the message is the end of a sentence, such as "has no tensor x"."""


def tensor_of(path: Path, key: str) -> torch.Tensor:
    """One tensor of a file, on the CPU.

    Raises:
        Unreadable: the file is malformed, or has no such tensor.
    """
    with path.open("rb") as file:
        start = file.read(len(_LFS))
        if start == _LFS:
            raise Unreadable("is a pointer of Git LFS; `git lfs pull` downloads the file")
        try:
            length = struct.unpack("<Q", start[:8])[0]
            file.seek(8)
            header = json.loads(file.read(length))
            about = header[key]
            dtype, shape = _DTYPES[about["dtype"]], about["shape"]
            first, last = about["data_offsets"]
            file.seek(8 + length + first)
            data = bytearray(file.read(last - first))
            if not data:
                return torch.empty(shape, dtype=dtype)
            return torch.frombuffer(data, dtype=dtype, count=math.prod(shape)).reshape(shape)
        except KeyError as missing:
            raise Unreadable(f"has no tensor {missing}, or it has a dtype that we don't read") from None
        except (struct.error, ValueError, TypeError, OverflowError, MemoryError):
            raise Unreadable("isn't a file of safetensors") from None
