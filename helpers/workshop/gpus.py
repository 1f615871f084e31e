"""Which GPUs of this machine work may be given to: what `--gpus` means, as UUIDs."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

from helpers.workshop.usage import UsageError


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a MIG part of one. `index` is nvidia-smi's number of the GPU, `parts` the UUIDs of its MIG parts."""

    index: int
    uuid: str
    name: str
    parts: tuple[str, ...] = ()


def choose(text: str) -> tuple[str, ...]:
    """The UUIDs that `--gpus` names.

    Args:
        text: "all", or numbers as nvidia-smi gives them and UUIDs (or their beginnings), with commas between.

    Raises:
        UsageError: There is no such GPU, CUDA_VISIBLE_DEVICES hides it, or it is named twice.
    """
    here = installed()
    if not here:
        raise UsageError(f"--gpus {text}: nvidia-smi lists no GPU on this machine; leave --gpus out.")
    named, allowed = os.environ.get("CUDA_VISIBLE_DEVICES"), _visible(here)
    if text.strip() == "all":
        if not allowed:
            raise UsageError(f"--gpus all: CUDA_VISIBLE_DEVICES={named} hides every GPU of this machine.")
        return allowed
    chosen: list[str] = []
    for part in text.split(","):
        uuids = _named(part, here)
        if len(uuids) != 1:
            listed = "; ".join(
                f"{gpu.index}: {gpu.name}, {', '.join((gpu.uuid, *gpu.parts))}" for gpu in here
            )
            which = "several GPUs" if uuids else "no GPU of this machine"
            raise UsageError(
                f"--gpus {text}: {part.strip() or 'an empty name'} is {which}; there are {listed}."
            )
        if named is not None and uuids[0] not in allowed:
            raise UsageError(
                f"--gpus {text}: CUDA_VISIBLE_DEVICES={named} hides {part.strip()} from this process."
            )
        if uuids[0] in chosen:
            raise UsageError(f"--gpus {text} names {uuids[0]} twice; name it once.")
        chosen.append(uuids[0])
    return tuple(chosen)


def visible() -> tuple[str, ...]:
    """The UUIDs of the GPUs, or of their MIG parts, that this process may use; none where there is no nvidia-smi."""
    return _visible(installed())


def _visible(here: list[Gpu]) -> tuple[str, ...]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return tuple(u for gpu in here for u in (gpu.parts or (gpu.uuid,)))
    return tuple(dict.fromkeys(u for part in named.split(",") for u in _named(part, here)))


def installed() -> list[Gpu]:
    """The GPUs that nvidia-smi lists; none where there is no nvidia-smi."""
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
    """The UUIDs that one name means: a GPU in MIG mode can be used by its parts only."""
    part = part.strip()
    if part.isdigit():
        return [u for gpu in here if gpu.index == int(part) for u in (gpu.parts or (gpu.uuid,))]
    if not part.startswith(("GPU-", "MIG-")):
        return []
    return [u for gpu in here for u in (gpu.uuid, *gpu.parts) if u.startswith(part)]
