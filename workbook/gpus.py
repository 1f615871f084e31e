"""The GPUs of this machine that a command may use: `--gpus` resolved to UUIDs."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

from workbook.usage import UsageError


@dataclass(frozen=True)
class Gpu:
    """A GPU. `index` is its number in nvidia-smi, and `parts` are the UUIDs of its MIG instances."""

    index: int
    uuid: str
    name: str
    parts: tuple[str, ...] = ()


def choose(text: str) -> tuple[str, ...]:
    """The UUIDs of the GPUs that `--gpus` names.

    Args:
        text: "all", or a comma-separated list of nvidia-smi's numbers and of UUIDs or their beginnings.

    Raises:
        UsageError: There is no such GPU, CUDA_VISIBLE_DEVICES hides it, or it is named twice.
    """
    here = installed()
    if not here:
        raise UsageError(f"--gpus {text}: nvidia-smi lists no GPU on this machine; omit --gpus.")
    named, allowed = os.environ.get("CUDA_VISIBLE_DEVICES"), _visible(here)
    if text.strip() == "all":
        if not allowed:
            raise UsageError(f"--gpus all: CUDA_VISIBLE_DEVICES={named} hides every GPU of this machine.")
        return allowed
    chosen: list[str] = []
    for part in text.split(","):
        uuid = _one(part, text, here)
        if named is not None and uuid not in allowed:
            raise UsageError(
                f"--gpus {text}: CUDA_VISIBLE_DEVICES={named} hides {part.strip()} from this process."
            )
        if uuid in chosen:
            raise UsageError(f"--gpus {text} names {uuid} twice; name it once.")
        chosen.append(uuid)
    return tuple(chosen)


def _one(part: str, text: str, here: list[Gpu]) -> str:
    """The one UUID that a part of `--gpus` names."""
    uuids = _named(part, here)
    if len(uuids) != 1:
        listed = "; ".join(f"{gpu.index}: {gpu.name}, {', '.join((gpu.uuid, *gpu.parts))}" for gpu in here)
        matches = "several GPUs" if uuids else "no GPU of this machine"
        name = part.strip() or "an empty name"
        raise UsageError(f"--gpus {text}: {name} matches {matches}; there are {listed}.")
    return uuids[0]


def visible() -> tuple[str, ...]:
    """The UUIDs of the GPUs, or of their MIG instances, that this process may use; empty without
    nvidia-smi.
    """
    return _visible(installed())


def _visible(here: list[Gpu]) -> tuple[str, ...]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return tuple(u for gpu in here for u in (gpu.parts or (gpu.uuid,)))
    return tuple(dict.fromkeys(u for part in named.split(",") for u in _named(part, here)))


def installed() -> list[Gpu]:
    """The GPUs that nvidia-smi lists; empty without nvidia-smi."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    gpus: list[Gpu] = []
    for line in listed.splitlines():
        if match := re.match(r"GPU (\d+): (.+) \(UUID: (GPU-[\w-]+)\)", line):
            gpus.append(Gpu(int(match[1]), match[3], match[2]))
        elif gpus and (match := re.search(r"\(UUID: (MIG-[\w/-]+)\)", line)):
            last = gpus.pop()
            gpus.append(Gpu(last.index, last.uuid, last.name, (*last.parts, match[1])))
    return gpus


def _named(part: str, here: list[Gpu]) -> list[str]:
    """The UUIDs that one name stands for. A GPU in MIG mode can only be used through its instances."""
    part = part.strip()
    if part.isdigit():
        return [u for gpu in here if gpu.index == int(part) for u in (gpu.parts or (gpu.uuid,))]
    if not part.startswith(("GPU-", "MIG-")):
        return []
    return [u for gpu in here for u in (gpu.uuid, *gpu.parts) if u.startswith(part)]
